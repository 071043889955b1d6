"""Holds events back while plans are being carried out: a pod that starts is worth more than the news of another."""

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

LONGEST_WAIT = 15.0
"""Seconds after which an event goes out however busy we are. Each costs the server half as much as a pod, and two
thousand jobs that come at once take about that long."""

TRICKLE, TRICKLE_SECONDS = 10, 1.0
"""So many events in so many seconds go out meanwhile, which costs next to nothing: where events are few, the trouble of
one job does not hold up the news of others."""

Tell = Callable[[Object, JobEvent, datetime], None]
"""About what, the event, and when it happened."""


class Announcer:
    """Calls `tell` for each event, in order, as soon as nothing is being written. Needs a running event loop."""

    def __init__(self, tell: Tell, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._tell = tell
        self._clock = clock
        self._waiting: deque[tuple[float, Object, JobEvent, datetime]] = deque()
        self._writing = 0
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def writing(self) -> Iterator[None]:
        """While any of these blocks is open, events wait."""
        self._writing += 1
        try:
            yield
        finally:
            self._writing -= 1
            if not self._writing:
                self.flush()

    def announce(self, about: Object, event: JobEvent) -> None:
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s: %s %s: %s", ObjectKey.of(about), event.type, event.reason, event.message)
        loop = asyncio.get_running_loop()
        self._waiting.append((loop.time() + LONGEST_WAIT, about, event, self._clock()))
        if not self._writing:
            self.flush()
        elif self._timer is None:
            self._timer = loop.call_later(TRICKLE_SECONDS, self._trickle)

    def flush(self) -> None:
        """Lets everything out that waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            self._tell_next()

    def _trickle(self) -> None:
        """Lets out a few, and all that have waited for long enough."""
        self._timer = None
        loop = asyncio.get_running_loop()
        few = TRICKLE
        while self._waiting and (few > 0 or self._waiting[0][0] <= loop.time()):
            self._tell_next()
            few -= 1
        if self._waiting:
            self._timer = loop.call_later(TRICKLE_SECONDS, self._trickle)

    def _tell_next(self) -> None:
        _, about, event, at = self._waiting.popleft()
        self._tell(about, event, at)
