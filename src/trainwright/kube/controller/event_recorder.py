"""Records core/v1 Events in the background: the caller never waits and never fails.

Events of one object are written in the order in which they were recorded; `event_correlator` decides which ones only
increase a count. A count is written at once, and then at most every few seconds.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from trainwright.kube.client import requests, responses
from trainwright.kube.client.errors import AlreadyExists, ApiError, NotFound, Unreachable
from trainwright.kube.client.requests import Request, Transport
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.event_correlator import (
    EventCorrelator,
    EventSeries,
    Occurrence,
    object_reference,
    render_event,
)
from trainwright.kube.controller.outcome import RequeueAfter
from trainwright.kube.controller.workqueue import WorkQueue
from trainwright.objects import Object
from trainwright.objects.resources import EVENTS

log = logging.getLogger(__name__)

COUNTING_SECONDS = 3.0
"""Minimum time between two writes of the same Event."""

_SENDERS = 4
_CLOCK_RESOLUTION = 0.001


class EventRecorder:
    """`component` is the reporting controller unless `record` names another, `instance` the host that it runs on. Needs
    a running event loop when it records.

    `delay` is how many seconds a new Event waits, so that writing it does not compete with the work that it is about.
    `capacity` bounds the Events that wait to be written; further ones are dropped. The log names the first of them, and
    their number once half of the waiting ones have been written, or on close.
    """

    def __init__(
        self,
        client: Transport,
        component: str = "",
        instance: str = "",
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        capacity: int = 10_000,
        delay: float = 0.0,
    ) -> None:
        self._client = client
        self._component, self._instance = component, instance
        self._clock = clock
        self._capacity = capacity
        self._delay = delay
        self._correlator = EventCorrelator()
        self._waiting: dict[str, dict[EventSeries, None]] = {}
        self.outstanding = 0
        """The number of Events that wait to be created or updated."""
        self._idle = asyncio.Event()
        self._queue = WorkQueue[str](coalesce_seconds=0)
        self._controller = Controller(
            self._send_events, log=log, queue=self._queue, workers=_SENDERS, retry_log_level=logging.WARNING
        )
        self._sending: asyncio.Task[None] | None = None
        self._closing, self._closed = False, False
        self._dropped = 0

    def record(
        self,
        about: Object,
        type: str,  # noqa: A002
        reason: str,
        message: str,
        *,
        at: datetime | None = None,
        standing: bool = False,
        component: str = "",
    ) -> None:
        """Returns at once. `about` is the object or an ObjectReference; `type` is Normal or Warning; `at` is the time
        of the occurrence, by default now. `standing` is for a state that lasts: all processes record it in the same
        Event, and only its lastTimestamp changes."""
        try:
            reference = object_reference(about)
        except KeyError as missing:
            log.error("event %s (%s): its object has no %s", reason, message, missing)
            return
        occurrence = Occurrence(
            reference, type, reason, message, at or self._clock(), component or self._component, standing=standing
        )
        if self._closed:
            log.warning("event %s is dropped: the recorder is closed", occurrence)
            return
        series = self._correlator.count_up(occurrence)
        if series is None:
            if self.outstanding >= self._capacity:
                self._drop(occurrence)
                return
            series = self._correlator.start(occurrence)
            series.not_before = asyncio.get_running_loop().time() + self._delay if self._delay else 0.0
        self._schedule(series)

    @property
    def not_created(self) -> int:
        """The number of Events that wait to be created."""
        return sum(not series.written for waiting in self._waiting.values() for series in waiting)

    async def close(self, timeout: float = 5.0) -> None:
        """Writes the waiting Events, within `timeout` seconds."""
        self._closing = True
        if self.outstanding:
            for object_id in self._waiting:
                self._queue.add(object_id)
            try:
                async with asyncio.timeout(timeout):
                    await self._idle.wait()
            except TimeoutError:
                log.warning("events not sent within %g s: %d", timeout, self.outstanding)
        self._closed = True
        self._log_dropped()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    def _schedule(self, series: EventSeries) -> None:
        waiting = self._waiting.setdefault(series.occurrence.object_id, {})
        if series in waiting:
            return
        waiting[series] = None
        self.outstanding += 1
        self._idle.clear()
        if self._sending is None:
            self._sending = asyncio.create_task(self._controller.run())
        self._queue.add_after(series.occurrence.object_id, self._delay_of(series))

    def _delay_of(self, series: EventSeries) -> float:
        delay = series.not_before - asyncio.get_running_loop().time()
        # A timer may fire slightly early.
        return 0.0 if self._closing or delay < _CLOCK_RESOLUTION else delay

    async def _send_events(self, object_id: str) -> RequeueAfter | None:
        # Empty if its events were sent together with earlier ones.
        waiting = self._waiting.get(object_id, {})
        for series in [series for series in waiting if not self._delay_of(series)]:
            if not await self._try_write(series) or not series.is_outdated:
                del waiting[series]
                self.outstanding -= 1
        if not waiting:
            self._waiting.pop(object_id, None)
        if not self.outstanding:
            self._idle.set()
        if self.outstanding <= self._capacity // 2:
            self._log_dropped()
        return RequeueAfter(min(map(self._delay_of, waiting))) if waiting else None

    async def _try_write(self, series: EventSeries) -> bool:
        try:
            await self._write(series)
        except Exception as error:
            expected = isinstance(error, ApiError | Unreachable)
            log.warning("event %s is dropped: %s", series, error, exc_info=None if expected else error)
            if not series.written:
                self._correlator.forget(series)
            return False
        series.not_before = asyncio.get_running_loop().time() + COUNTING_SECONDS
        return True

    async def _write(self, series: EventSeries) -> None:
        if series.written:
            shown, patch = series.count, series.patch()
            try:
                await self._send(requests.patch_request(EVENTS, series.name, patch, namespace=series.namespace))
            except NotFound:
                # The Event has been deleted.
                series.restart(self._correlator.new_name(series.occurrence.reference["name"]))
            else:
                series.written = shown
                return
        shown, event = series.count, render_event(series, instance=self._instance)
        try:
            await self._send(requests.create_request(EVENTS, event, namespace=series.namespace))
        except AlreadyExists:
            if not series.standing:
                raise
            # Recorded by an earlier process, or by this one long ago.
            await self._send(requests.patch_request(EVENTS, series.name, series.patch(), namespace=series.namespace))
        series.written = shown

    async def _send(self, request: Request) -> None:
        responses.read_bytes(await self._client.send(request))

    def _drop(self, occurrence: Occurrence) -> None:
        if not self._dropped:
            log.warning("more than %d events are waiting: dropping %s and others", self._capacity, occurrence)
        self._dropped += 1

    def _log_dropped(self) -> None:
        if self._dropped:
            log.warning("dropped events: %d", self._dropped)
            self._dropped = 0
