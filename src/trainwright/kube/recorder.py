"""Tells users what happened to an object, as core/v1 Events, without ever holding up or failing who tells it.

Events about one object are sent in the order in which they were recorded; identical ones become one with a count.
"""

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from trainwright.kube.client import Client
from trainwright.kube.errors import ApiError, NotFound, Unreachable
from trainwright.kube.queue import QueueShutDown, WorkQueue
from trainwright.objects import Object
from trainwright.objects.resources import EVENTS
from trainwright.objects.times import format_time

log = logging.getLogger(__name__)

AGGREGATION_WINDOW = timedelta(minutes=10)
"""An event that comes again within this time of its last occurrence raises the count of the first."""

_SENDERS = 4
_REMEMBERED_EVENTS = 4096
_LONGEST_NAME = 253


class EventRecorder:
    """`component` is who reports, `instance` where it runs. Needs a running event loop when it records."""

    def __init__(
        self,
        client: Client,
        component: str,
        instance: str = "",
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        capacity: int = 5000,
    ) -> None:
        self._client = client
        self._clock = clock
        self._capacity = capacity
        self._aggregator = Aggregator(component, instance)
        self._pending: dict[str, deque[Occurrence]] = {}
        self._outstanding = 0
        self._idle = asyncio.Event()
        self._queue = WorkQueue()
        self._senders: list[asyncio.Task[None]] = []
        self._dropped = 0

    def record(self, about: Object, type: str, reason: str, message: str) -> None:  # noqa: A002
        """Returns at once. `about` is the object, or an ObjectReference to it; `type` is Normal or Warning."""
        try:
            reference = reference_to(about)
        except KeyError as missing:
            log.error("event %s (%s) is about an object without %s", reason, message, missing)
            return
        now = self._clock()
        occurrence = Occurrence(reference, type, reason, message, first=now, last=now)
        lane = self._pending.get(occurrence.lane)
        if lane and lane[-1].identity == occurrence.identity:
            lane[-1] = lane[-1].merged(occurrence)
            return
        if self._outstanding >= self._capacity:
            self._drop(occurrence)
            return
        self._pending.setdefault(occurrence.lane, deque()).append(occurrence)
        self._outstanding += 1
        self._idle.clear()
        self._start_senders()
        self._queue.add(occurrence.lane)

    async def close(self, timeout: float = 5.0) -> None:
        """Sends what is still waiting, as far as that is possible in time."""
        if self._outstanding:
            try:
                async with asyncio.timeout(timeout):
                    await self._idle.wait()
            except TimeoutError:
                log.warning("%d events could not be sent within %g s", self._outstanding, timeout)
        self._queue.shut_down()
        for sender in self._senders:
            sender.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)

    def _start_senders(self) -> None:
        if not self._senders:
            self._senders = [asyncio.create_task(self._send_for_ever()) for _ in range(_SENDERS)]

    async def _send_for_ever(self) -> None:
        while True:
            try:
                lane = await self._queue.get()
            except QueueShutDown:
                return
            try:
                await self._send_lane(lane)
            finally:
                self._queue.done(lane)

    async def _send_lane(self, name: str) -> None:
        # Empty if the events that it was queued for went along with those before them.
        lane = self._pending.get(name, deque())
        while lane:
            occurrence = lane.popleft()
            try:
                await self._send(occurrence)
            except (ApiError, Unreachable) as error:
                log.warning("event %s is lost: %s", occurrence, error)
            except Exception:
                log.exception("event %s is lost", occurrence)
            self._outstanding -= 1
        self._pending.pop(name, None)
        if not self._outstanding:
            self._idle.set()
            if self._dropped:
                log.warning("%d events were dropped", self._dropped)
                self._dropped = 0

    async def _send(self, occurrence: "Occurrence") -> None:
        known = self._aggregator.recall(occurrence)
        if known is not None:
            try:
                await self._client.patch(EVENTS, known.name, known.patch(), namespace=known.namespace)
            except NotFound:
                # Somebody has cleaned up; the story starts again.
                self._aggregator.forget(occurrence)
            else:
                return
        await self._client.create(EVENTS, self._aggregator.introduce(occurrence))

    def _drop(self, occurrence: "Occurrence") -> None:
        if not self._dropped:
            log.warning("more than %d events are waiting: dropping %s and others", self._capacity, occurrence)
        self._dropped += 1


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that happened, once or several times in a row."""

    reference: Object
    type: str
    reason: str
    message: str
    first: datetime
    last: datetime
    count: int = 1

    @property
    def lane(self) -> str:
        """Events of one lane stay in order: one lane per object."""
        return "/".join(self.reference.get(field, "") for field in ("kind", "namespace", "name", "uid"))

    @property
    def identity(self) -> tuple[str, ...]:
        return self.lane, self.reference.get("fieldPath", ""), self.type, self.reason, self.message

    def merged(self, later: "Occurrence") -> "Occurrence":
        return Occurrence(
            later.reference,
            self.type,
            self.reason,
            self.message,
            first=self.first,
            last=later.last,
            count=self.count + later.count,
        )

    def __str__(self) -> str:
        name = "/".join(filter(None, (self.reference.get("namespace"), self.reference["name"])))
        return f"{self.reason} of {self.reference['kind']} {name} ({self.message})"


@dataclass(slots=True)
class SentEvent:
    """An Event that exists and may be counted up."""

    namespace: str
    name: str
    count: int
    last: datetime

    def patch(self) -> Object:
        return {"count": self.count, "lastTimestamp": format_time(self.last)}


class Aggregator:
    """Decides which occurrences make a new Event and which raise the count of one that was sent; does no I/O."""

    def __init__(self, component: str, instance: str = "", *, names: Callable[[], int] = time.time_ns) -> None:
        self._component = component
        self._instance = instance
        self._names = names
        self._last_name = 0
        self._sent: OrderedDict[tuple[str, ...], SentEvent] = OrderedDict()

    def recall(self, occurrence: Occurrence) -> SentEvent | None:
        """The Event to count up, counted up already; None if a new one is due."""
        sent = self._sent.get(occurrence.identity)
        if sent is None or occurrence.first - sent.last > AGGREGATION_WINDOW:
            return None
        sent.count += occurrence.count
        sent.last = occurrence.last
        self._sent.move_to_end(occurrence.identity)
        return sent

    def forget(self, occurrence: Occurrence) -> None:
        self._sent.pop(occurrence.identity, None)

    def introduce(self, occurrence: Occurrence) -> Object:
        """A new Event, remembered for later occurrences."""
        reference = occurrence.reference
        namespace = reference.get("namespace") or "default"
        # Two events in one nanosecond, or a clock set back, must not share a name.
        self._last_name = max(self._last_name + 1, self._names())
        suffix = f".{self._last_name:x}"
        name = reference["name"][: _LONGEST_NAME - len(suffix)] + suffix
        self._sent[occurrence.identity] = SentEvent(namespace, name, occurrence.count, occurrence.last)
        while len(self._sent) > _REMEMBERED_EVENTS:
            self._sent.popitem(last=False)
        source = {"component": self._component}
        if self._instance:
            source["host"] = self._instance
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": reference,
            "type": occurrence.type,
            "reason": occurrence.reason,
            "message": occurrence.message,
            "source": source,
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
            "firstTimestamp": format_time(occurrence.first),
            "lastTimestamp": format_time(occurrence.last),
            "count": occurrence.count,
        }


_REFERENCE_FIELDS = ("namespace", "uid", "resourceVersion", "fieldPath")


def reference_to(about: Object) -> Object:
    """The ObjectReference of an object (or of a reference). Without apiVersion, kind or name: KeyError."""
    source = about.get("metadata", about)
    reference = {"apiVersion": about["apiVersion"], "kind": about["kind"], "name": source["name"]}
    return reference | {field: source[field] for field in _REFERENCE_FIELDS if source.get(field)}
