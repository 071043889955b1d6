"""Tells users what happened to an object, as core/v1 Events, without ever holding up or failing who tells it.

Events about one object are made in the order in which they were recorded; `aggregation` decides what is a new one and
what only raises a count. A count is written at once, and then at most every few seconds while it goes on rising.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from trainwright.kube.client import requests, responses
from trainwright.kube.client.errors import AlreadyExists, ApiError, NotFound, Unreachable
from trainwright.kube.client.requests import Request, Transport
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.event_correlator import Aggregator, Occurrence, Tally, event_of, reference_to
from trainwright.kube.controller.outcome import RequeueAfter
from trainwright.kube.controller.workqueue import WorkQueue
from trainwright.objects import Object
from trainwright.objects.resources import EVENTS

log = logging.getLogger(__name__)

COUNTING_SECONDS = 3.0
"""Between two writes of the same Event lies at least this time."""

_SENDERS = 4
_CLOCK_RESOLUTION = 0.001


class EventRecorder:
    """`component` is the reporting controller unless `record` names another, `instance` the host that it runs on. Needs
    a running event loop when it records.

    `capacity` bounds the Events that wait to be written; what would be one more is dropped. The log names the first
    one, and says how many there were when half of those that waited have been written, or at the end.
    """

    def __init__(
        self,
        client: Transport,
        component: str = "",
        instance: str = "",
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        capacity: int = 10_000,
    ) -> None:
        self._client = client
        self._component, self._instance = component, instance
        self._clock = clock
        self._capacity = capacity
        self._aggregator = Aggregator()
        self._waiting: dict[str, dict[Tally, None]] = {}
        self._outstanding = 0
        self._idle = asyncio.Event()
        self._queue = WorkQueue[str](rest=0)
        self._controller = Controller(self._send_lane, log=log, queue=self._queue, workers=_SENDERS)
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
        """Returns at once. `about` is the object, or an ObjectReference to it; `type` is Normal or Warning; `at` is
        when it happened, if not just now; `standing` if it is how things are, whichever process finds them so: then
        there is one Event for it, of which nothing but the time of the last sight changes."""
        try:
            reference = reference_to(about)
        except KeyError as missing:
            log.error("event %s (%s) is about an object without %s", reason, message, missing)
            return
        occurrence = Occurrence(
            reference, type, reason, message, at or self._clock(), component or self._component, standing=standing
        )
        if self._closed:
            log.warning("event %s is lost: it comes after the end", occurrence)
            return
        tally = self._aggregator.recall(occurrence)
        if tally is None:
            if self._outstanding >= self._capacity:
                self._drop(occurrence)
                return
            tally = self._aggregator.introduce(occurrence)
        self._enlist(tally)

    async def close(self, timeout: float = 5.0) -> None:
        """Writes what is still waiting, as far as that is possible in time."""
        self._closing = True
        if self._outstanding:
            for lane in self._waiting:
                self._queue.add(lane)
            try:
                async with asyncio.timeout(timeout):
                    await self._idle.wait()
            except TimeoutError:
                log.warning("events that could not be sent within %g s: %d", timeout, self._outstanding)
        self._closed = True
        self._tell_dropped()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    def _enlist(self, tally: Tally) -> None:
        """Sees to it that the Event is written, now or when it has rested long enough."""
        lane = self._waiting.setdefault(tally.lane, {})
        if tally in lane:
            return
        lane[tally] = None
        self._outstanding += 1
        self._idle.clear()
        if self._sending is None:
            self._sending = asyncio.create_task(self._controller.run())
        self._queue.add_after(tally.lane, self._rest_of(tally))

    def _rest_of(self, tally: Tally) -> float:
        rest = tally.rests_until - asyncio.get_running_loop().time()
        # A timer may fire a little early; what is left then is less than it can measure.
        return 0.0 if self._closing or rest < _CLOCK_RESOLUTION else rest

    async def _send_lane(self, name: str) -> RequeueAfter | None:
        # Empty if the events that it was queued for went along with those before them.
        lane = self._waiting.get(name, {})
        for tally in [tally for tally in lane if not self._rest_of(tally)]:
            if not await self._was_written(tally) or not tally.has_news:
                del lane[tally]
                self._outstanding -= 1
        if not lane:
            self._waiting.pop(name, None)
        if not self._outstanding:
            self._idle.set()
        if self._outstanding <= self._capacity // 2:
            self._tell_dropped()
        return RequeueAfter(min(map(self._rest_of, lane))) if lane else None

    async def _was_written(self, tally: Tally) -> bool:
        try:
            await self._write(tally)
        except Exception as error:
            expected = isinstance(error, ApiError | Unreachable)
            log.warning("event %s is lost: %s", tally, error, exc_info=None if expected else error)
            if not tally.written:
                self._aggregator.forget(tally)
            return False
        tally.rests_until = asyncio.get_running_loop().time() + COUNTING_SECONDS
        return True

    async def _write(self, tally: Tally) -> None:
        if tally.written:
            shown, patch = tally.count, tally.patch()
            try:
                await self._send(requests.patch_request(EVENTS, tally.name, patch, namespace=tally.namespace))
            except NotFound:
                # Somebody has cleaned up; the story starts again.
                tally.start_again(self._aggregator.new_name(tally.reference["name"]))
            else:
                tally.written = shown
                return
        shown, event = tally.count, event_of(tally, instance=self._instance)
        try:
            await self._send(requests.create_request(EVENTS, event, namespace=tally.namespace))
        except AlreadyExists:
            if not tally.standing:
                raise
            # Told already, by a process before this one or long ago by us.
            await self._send(requests.patch_request(EVENTS, tally.name, tally.patch(), namespace=tally.namespace))
        tally.written = shown

    async def _send(self, request: Request) -> None:
        responses.read_bytes(await self._client.send(request))

    def _drop(self, occurrence: Occurrence) -> None:
        if not self._dropped:
            log.warning("more than %d events are waiting: dropping %s and others", self._capacity, occurrence)
        self._dropped += 1

    def _tell_dropped(self) -> None:
        if self._dropped:
            log.warning("events that were dropped: %d", self._dropped)
            self._dropped = 0
