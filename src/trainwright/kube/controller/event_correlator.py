"""Decides whether an occurrence is a new Event or increases the count of an existing one; without I/O.

As in client-go, identical occurrences are one Event, and too many similar ones are combined into one more. So a job of
a thousand pods does not cost thousands of writes, and users can read its events.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from trainwright.objects import Object
from trainwright.objects.times import format_time

AGGREGATION_WINDOW = timedelta(minutes=10)
"""An occurrence within this time after the last one of its Event increases the count."""

MAX_SIMILAR_EVENTS = 10
"""The number of messages of one object, type and reason that get their own Event within the window. Further messages
are combined."""

COMBINED_PREFIX = "(combined from similar events): "

_REMEMBERED_EVENTS = 4096
_MAX_NAME_LENGTH = 253


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One call of `EventRecorder.record`."""

    reference: Object
    type: str
    reason: str
    message: str
    at: datetime
    component: str = ""
    standing: bool = False
    """A state that lasts, not a single occurrence: its Event has the same name in every process."""

    @property
    def object_id(self) -> str:
        """The events of one object are written in order."""
        return "/".join(self.reference.get(part, "") for part in ("kind", "namespace", "name", "uid"))

    @property
    def similarity_key(self) -> tuple[str, ...]:
        """Equal for similar occurrences."""
        return self.object_id, self.reference.get("fieldPath", ""), self.type, self.reason, self.component

    def __str__(self) -> str:
        name = "/".join(filter(None, (self.reference.get("namespace"), self.reference["name"])))
        return f"{self.reason} of {self.reference['kind']} {name} ({self.message})"


@dataclass(slots=True, eq=False)
class EventSeries:
    """One Event, written or not, and its count.

    `written` is the count in the API, 0 if the Event has not been created. `not_before` is the earliest time of the
    next write, by the clock of the recorder.
    """

    occurrence: Occurrence
    """The first one."""
    message: str
    combined: bool
    first: datetime
    last: datetime
    name: str
    standing: bool = False
    count: int = 1
    written: int = 0
    not_before: float = 0.0

    @property
    def namespace(self) -> str:
        """Events of cluster-scoped objects are in the namespace default."""
        return self.occurrence.reference.get("namespace") or "default"

    @property
    def is_outdated(self) -> bool:
        return self.count > self.written

    def add(self, occurrence: Occurrence) -> None:
        self.count += 1
        self.last = max(self.last, occurrence.at)
        if self.combined:
            self.message = COMBINED_PREFIX + occurrence.message

    def restart(self, name: str) -> None:
        """The Event was deleted: a new one counts the occurrences that were not written yet. A standing Event keeps its
        name."""
        self.count, self.written, self.first = self.count - self.written, 0, self.last
        if not self.standing:
            self.name = name

    def patch(self) -> Object:
        """Updates the Event. A standing one has no count."""
        patch: Object = {"lastTimestamp": format_time(self.last)}
        if not self.standing:
            patch["count"] = self.count
        return {**patch, "message": self.message} if self.combined else patch

    def __str__(self) -> str:
        return str(replace(self.occurrence, message=self.message))


@dataclass(slots=True)
class _Similar:
    """The Events of one object, type, reason and component."""

    by_message: dict[str, EventSeries] = field(default_factory=dict)
    combined: EventSeries | None = None

    def __len__(self) -> int:
        return len(self.by_message) + (self.combined is not None)

    def drop_expired(self, moment: datetime) -> None:
        if self.combined and moment - self.combined.last > AGGREGATION_WINDOW:
            self.combined = None
        for message in [text for text, series in self.by_message.items() if moment - series.last > AGGREGATION_WINDOW]:
            del self.by_message[message]

    @property
    def is_combining(self) -> bool:
        return self.combined is not None or len(self.by_message) >= MAX_SIMILAR_EVENTS


class EventCorrelator:
    """Remembers a bounded number of the latest Events. `names` returns numbers for unique names."""

    def __init__(self, *, names: Callable[[], int] = time.time_ns) -> None:
        self._names = names
        self._last_name = 0
        self._similar: OrderedDict[tuple[str, ...], _Similar] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def count_up(self, occurrence: Occurrence) -> EventSeries | None:
        """The Event of the occurrence with its count increased; None if it needs a new one."""
        similar = self._similar.get(occurrence.similarity_key)
        if similar is None:
            return None
        self._size -= len(similar)
        similar.drop_expired(occurrence.at)
        self._size += len(similar)
        self._similar.move_to_end(occurrence.similarity_key)
        self._drop_if_empty(occurrence.similarity_key, similar)
        series = similar.by_message.get(occurrence.message) or similar.combined
        if series is not None:
            series.add(occurrence)
        return series

    def start(self, occurrence: Occurrence) -> EventSeries:
        """A new Event: of its own, or combined with similar ones."""
        similar = self._similar.setdefault(occurrence.similarity_key, _Similar())
        combining = similar.is_combining
        standing = occurrence.standing and not combining
        about = occurrence.reference["name"]
        series = EventSeries(
            occurrence,
            message=COMBINED_PREFIX + occurrence.message if combining else occurrence.message,
            combined=combining,
            first=occurrence.at,
            last=occurrence.at,
            name=_with_suffix(about, _digest(occurrence)) if standing else self.new_name(about),
            standing=standing,
        )
        if combining:
            similar.combined = series
        else:
            similar.by_message[occurrence.message] = series
        self._size += 1
        while self._size > _REMEMBERED_EVENTS:
            _, oldest = self._similar.popitem(last=False)
            self._size -= len(oldest)
        return series

    def forget(self, series: EventSeries) -> None:
        """The Event could not be created: the next occurrence starts a new one."""
        key = series.occurrence.similarity_key
        similar = self._similar.get(key)
        if similar is None:
            return
        if similar.combined is series:
            similar.combined = None
            self._size -= 1
        elif similar.by_message.get(series.message) is series:
            del similar.by_message[series.message]
            self._size -= 1
        self._drop_if_empty(key, similar)

    def new_name(self, about: str) -> str:
        # Names must be unique even within a nanosecond, and if the clock is set back.
        self._last_name = max(self._last_name + 1, self._names())
        return _with_suffix(about, f"{self._last_name:x}")

    def _drop_if_empty(self, name: tuple[str, ...], similar: _Similar) -> None:
        if not similar:
            del self._similar[name]


def _with_suffix(about: str, suffix: str) -> str:
    return f"{about[: _MAX_NAME_LENGTH - len(suffix) - 1]}.{suffix}"


def _digest(occurrence: Occurrence) -> str:
    text = "\0".join((*occurrence.similarity_key[:-1], occurrence.message))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def render_event(series: EventSeries, *, instance: str) -> Object:
    """The core/v1 Event. `instance` is the host of the reporting component."""
    occurrence = series.occurrence
    source = {"component": occurrence.component}
    if instance:
        source["host"] = instance
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": series.name, "namespace": series.namespace},
        "involvedObject": occurrence.reference,
        "type": occurrence.type,
        "reason": occurrence.reason,
        "message": series.message,
        "source": source,
        "reportingComponent": occurrence.component,
        "reportingInstance": instance,
        "firstTimestamp": format_time(series.first),
        "lastTimestamp": format_time(series.last),
        "count": 1 if series.standing else series.count,
    }


_REFERENCE_FIELDS = ("namespace", "uid", "resourceVersion", "fieldPath")


def object_reference(about: Object) -> Object:
    """The ObjectReference of an object or of a reference. Raises KeyError without apiVersion, kind or name."""
    source = about.get("metadata", about)
    reference = {"apiVersion": about["apiVersion"], "kind": about["kind"], "name": source["name"]}
    return reference | {field: source[field] for field in _REFERENCE_FIELDS if source.get(field)}
