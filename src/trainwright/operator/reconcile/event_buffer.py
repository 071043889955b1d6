"""Holds back the events of jobs while plans are applied: creating pods matters more than recording events."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from trainwright.engine import JobEvent
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.objects import Object

log = logging.getLogger(__name__)

MAX_DELAY_SECONDS = 15.0
"""The longest time that an event is held back, however busy the operator is. An event costs the API server half as much
as a pod; creating two thousand jobs at the same time takes about this long."""

BATCH_SIZE, BATCH_SECONDS = 10, 1.0
"""This many events are recorded per interval even while plans are applied. It costs next to nothing, and a job whose
writes are slow does not delay the events of other jobs."""

Record = Callable[[Object, JobEvent, datetime], None]
"""Takes the job, the event and the time at which it happened."""


class EventBuffer:
    """Passes events to `record` in their order, as soon as no plan is being applied. Needs a running event loop."""

    def __init__(self, record: Record, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._record = record
        self._clock = clock
        self._pending: deque[tuple[float, Object, JobEvent, datetime]] = deque()
        self._holds = 0
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Holds events back until the last such block ends."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            if not self._holds:
                self.flush()

    def record(self, job: Object, event: JobEvent) -> None:
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s: %s %s: %s", ObjectKey.of(job), event.type, event.reason, event.message)
        loop = asyncio.get_running_loop()
        self._pending.append((loop.time() + MAX_DELAY_SECONDS, job, event, self._clock()))
        if not self._holds:
            self.flush()
        elif self._timer is None:
            self._timer = loop.call_later(BATCH_SECONDS, self._record_batch)

    def flush(self) -> None:
        """Records all pending events."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._pending:
            self._record_next()

    def _record_batch(self) -> None:
        """Records one batch, and all events that are overdue."""
        self._timer = None
        loop = asyncio.get_running_loop()
        remaining = BATCH_SIZE
        while self._pending and (remaining > 0 or self._pending[0][0] <= loop.time()):
            self._record_next()
            remaining -= 1
        if self._pending:
            self._timer = loop.call_later(BATCH_SECONDS, self._record_batch)

    def _record_next(self) -> None:
        _, job, event, at = self._pending.popleft()
        self._record(job, event, at)
