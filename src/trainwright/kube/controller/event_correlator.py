"""Decides which occurrences make a new Event and which raise the count of one; the recorder's part without I/O.

What users read about an object must not drown in repetition, and a job of a thousand pods must not cost thousands of
writes: identical occurrences are one Event, and too many different ones of a kind are combined in one more.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from trainwright.objects import Object
from trainwright.objects.times import format_time

AGGREGATION_WINDOW = timedelta(minutes=10)
"""An occurrence within this time of the last one of its Event raises its count."""

MOST_DIFFERENT = 10
"""So many different messages of one object, type and reason get an Event each within the window; the others share."""

COMBINED_PREFIX = "(combined from similar events): "

_REMEMBERED_EVENTS = 4096
_LONGEST_NAME = 253


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that happened, just now."""

    reference: Object
    type: str
    reason: str
    message: str
    at: datetime
    component: str = ""
    standing: bool = False
    """It is how things are: its Event has a name that every process would give it."""

    @property
    def lane(self) -> str:
        """Events of one lane stay in order: one lane per object."""
        return "/".join(self.reference.get(part, "") for part in ("kind", "namespace", "name", "uid"))

    @property
    def story(self) -> tuple[str, ...]:
        """What occurrences must have in common to be similar."""
        return self.lane, self.reference.get("fieldPath", ""), self.type, self.reason, self.component

    def __str__(self) -> str:
        name = "/".join(filter(None, (self.reference.get("namespace"), self.reference["name"])))
        return f"{self.reason} of {self.reference['kind']} {name} ({self.message})"


@dataclass(slots=True, eq=False)
class Tally:
    """One Event, in the making or made already, and how often it has occurred since.

    `written` is the count that the Event in the API shows: 0 while there is none. `rests_until` is the moment before
    which it should not be written again, by the clock of whoever writes.
    """

    story: tuple[str, ...]
    component: str
    reference: Object
    type: str
    reason: str
    message: str
    combined: bool
    first: datetime
    last: datetime
    name: str
    standing: bool = False
    count: int = 1
    written: int = 0
    rests_until: float = 0.0

    @property
    def lane(self) -> str:
        return self.story[0]

    @property
    def namespace(self) -> str:
        """Events about objects without a namespace live in the default one."""
        return self.reference.get("namespace") or "default"

    @property
    def has_news(self) -> bool:
        return self.count > self.written

    def occur(self, occurrence: Occurrence) -> None:
        self.count += 1
        self.last = max(self.last, occurrence.at)
        if self.combined:
            self.message = COMBINED_PREFIX + occurrence.message

    def start_again(self, name: str) -> None:
        """The Event has been deleted: another one, of this name unless it is a standing one, takes up what it did not
        show yet."""
        self.count, self.written, self.first = self.count - self.written, 0, self.last
        if not self.standing:
            self.name = name

    def patch(self) -> Object:
        """What brings the Event up to date. How often something standing was found says nothing."""
        news: Object = {"lastTimestamp": format_time(self.last)}
        if not self.standing:
            news["count"] = self.count
        return {**news, "message": self.message} if self.combined else news

    def __str__(self) -> str:
        return str(Occurrence(self.reference, self.type, self.reason, self.message, self.last))


@dataclass(slots=True)
class _Story:
    """The Events of one object, type and reason."""

    by_message: dict[str, Tally] = field(default_factory=dict)
    combined: Tally | None = None

    def __len__(self) -> int:
        return len(self.by_message) + (self.combined is not None)

    def turn_to(self, moment: datetime) -> None:
        """Forgets what has not occurred for so long that it would be news again."""
        if self.combined and moment - self.combined.last > AGGREGATION_WINDOW:
            self.combined = None
        for message in [text for text, one in self.by_message.items() if moment - one.last > AGGREGATION_WINDOW]:
            del self.by_message[message]

    @property
    def is_combining(self) -> bool:
        return self.combined is not None or len(self.by_message) >= MOST_DIFFERENT


class Aggregator:
    """Remembers a bounded number of Events, those that occurred last. `names` are numbers that tell Events apart."""

    def __init__(self, *, names: Callable[[], int] = time.time_ns) -> None:
        self._names = names
        self._last_name = 0
        self._stories: OrderedDict[tuple[str, ...], _Story] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def recall(self, occurrence: Occurrence) -> Tally | None:
        """The Event that the occurrence belongs to, counted up already; None if a new one is due."""
        story = self._stories.get(occurrence.story)
        if story is None:
            return None
        self._size -= len(story)
        story.turn_to(occurrence.at)
        self._size += len(story)
        self._stories.move_to_end(occurrence.story)
        self._drop_if_empty(occurrence.story, story)
        tally = story.by_message.get(occurrence.message) or story.combined
        if tally is not None:
            tally.occur(occurrence)
        return tally

    def introduce(self, occurrence: Occurrence) -> Tally:
        """A new Event, remembered for later occurrences: one of its own, or the one for all the others."""
        story = self._stories.setdefault(occurrence.story, _Story())
        combining = story.is_combining
        standing = occurrence.standing and not combining
        about = occurrence.reference["name"]
        tally = Tally(
            story=occurrence.story,
            component=occurrence.component,
            reference=occurrence.reference,
            type=occurrence.type,
            reason=occurrence.reason,
            message=COMBINED_PREFIX + occurrence.message if combining else occurrence.message,
            combined=combining,
            first=occurrence.at,
            last=occurrence.at,
            name=_with_suffix(about, _digest(occurrence)) if standing else self.new_name(about),
            standing=standing,
        )
        if combining:
            story.combined = tally
        else:
            story.by_message[occurrence.message] = tally
        self._size += 1
        while self._size > _REMEMBERED_EVENTS:
            _, oldest = self._stories.popitem(last=False)
            self._size -= len(oldest)
        return tally

    def forget(self, tally: Tally) -> None:
        """The Event could not be made: the next occurrence tries anew."""
        story = self._stories.get(tally.story)
        if story is None:
            return
        if story.combined is tally:
            story.combined = None
            self._size -= 1
        elif story.by_message.get(tally.message) is tally:
            del story.by_message[tally.message]
            self._size -= 1
        self._drop_if_empty(tally.story, story)

    def new_name(self, about: str) -> str:
        # Two events in one nanosecond, or a clock set back, must not share a name.
        self._last_name = max(self._last_name + 1, self._names())
        return _with_suffix(about, f"{self._last_name:x}")

    def _drop_if_empty(self, name: tuple[str, ...], story: _Story) -> None:
        """What counts for nothing would never have to make room."""
        if not story:
            del self._stories[name]


def _with_suffix(about: str, suffix: str) -> str:
    return f"{about[: _LONGEST_NAME - len(suffix) - 1]}.{suffix}"


def _digest(occurrence: Occurrence) -> str:
    words = "\0".join((*occurrence.story[:-1], occurrence.message))
    return hashlib.blake2b(words.encode(), digest_size=8).hexdigest()


def event_of(tally: Tally, *, instance: str) -> Object:
    """The core/v1 Event. `instance` is the host of the reporting component."""
    source = {"component": tally.component}
    if instance:
        source["host"] = instance
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": tally.name, "namespace": tally.namespace},
        "involvedObject": tally.reference,
        "type": tally.type,
        "reason": tally.reason,
        "message": tally.message,
        "source": source,
        "reportingComponent": tally.component,
        "reportingInstance": instance,
        "firstTimestamp": format_time(tally.first),
        "lastTimestamp": format_time(tally.last),
        "count": 1 if tally.standing else tally.count,
    }


_REFERENCE_FIELDS = ("namespace", "uid", "resourceVersion", "fieldPath")


def reference_to(about: Object) -> Object:
    """The ObjectReference of an object (or of a reference). Without apiVersion, kind or name: KeyError."""
    source = about.get("metadata", about)
    reference = {"apiVersion": about["apiVersion"], "kind": about["kind"], "name": source["name"]}
    return reference | {field: source[field] for field in _REFERENCE_FIELDS if source.get(field)}
