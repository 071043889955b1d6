"""What we know of one resource without asking: filled by a watch, corrected at once by the answers to our own writes.

Every rule here compares resourceVersions, which Kubernetes documents as integers that grow with every write to a
resource. That is what lets a controller read its own writes, and do without counting the events that it expects.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

import msgspec

from trainwright.objects import Object
from trainwright.objects.metadata import ObjectMeta

T = TypeVar("T")

Index = Callable[[T], Iterable[str]]
"""Under which values an object is found."""

Change = tuple[T | None, T | None]
"""Before and after, as listeners see it; None where there is no object."""


def raw_metadata(obj: Object) -> ObjectMeta:
    """For stores that hold whole objects."""
    return msgspec.convert(obj["metadata"], ObjectMeta)


class Store(Generic[T]):
    """Objects by `NAMESPACE/NAME` (`NAME` if of the whole cluster). What it hands out must not be changed.

    The watch has a position, `last_version`: everything that happened up to there has been seen. A remembered answer
    from beyond it goes in; one from before it is old news, perhaps of an object that is gone. No object is ever
    replaced by an older state of itself. `matches` is the selector of the watch, if it has one.
    """

    def __init__(
        self,
        *,
        metadata: Callable[[T], ObjectMeta],
        indexes: Mapping[str, Index[T]] | None = None,
        matches: Callable[[T], bool] | None = None,
    ) -> None:
        self._metadata = metadata
        self._matches = matches
        self._indexes = dict(indexes or {})
        self._held: dict[str, _Held[T]] = {}
        self._index: dict[str, dict[str, dict[str, None]]] = {name: {} for name in self._indexes}
        self._position = 0
        # By key: what listeners were last told, where a write of our own has overtaken it.
        self._told: dict[str, T | None] = {}
        # By uid: objects that we know are gone although the watch has not said so, and their last known version.
        self._gone: dict[str, int] = {}
        # By key: older than what was there is older than the truth, although nothing is there any more.
        self._floor: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def last_version(self) -> str:
        """The position of the watch; empty before the first list."""
        return str(self._position) if self._position else ""

    def get(self, key: str) -> T | None:
        held = self._held.get(key)
        return held.item if held else None

    def all(self) -> list[T]:
        return [held.item for held in self._held.values()]

    def by_index(self, name: str, *values: str) -> list[T]:
        """All that are found under any of the values, each once."""
        index, held = self._index[name], self._held
        keys: dict[str, None] = {}
        for value in values:
            keys |= index.get(value, _NOTHING)
        return [held[key].item for key in keys]

    # Our own writes

    def remember(self, item: T) -> None:
        """Takes in the server's answer to a write of ours, unless the watch has passed it or knows better.

        An answer that the watch does not select any more removes the object: no later event would.
        """
        metadata = self._metadata(item)
        key, version = metadata.namespaced_name, _number(metadata.resource_version)
        held = self._held.get(key)
        known = max(self._position, held.version if held else 0, self._floor.get(key, 0))
        if version <= known or metadata.uid in self._gone:
            return
        if self._matches is not None and not self._matches(item):
            self._floor[key] = version
            if held is not None:
                self._told.setdefault(key, held.item)
                self._drop(key)
            return
        self._told.setdefault(key, held.item if held else None)
        self._put(key, item, version)

    def forget(self, key: str, *, uid: str) -> None:
        """Takes out an object that the server has told us is gone; events that still show it are ignored."""
        held = self._held.get(key)
        if held is None or self._metadata(held.item).uid != uid:
            return
        self._gone[uid] = self._floor[key] = held.version
        self._told.setdefault(key, held.item)
        self._drop(key)

    # The watch

    def replace(self, items: Iterable[T], version: str) -> list[Change[T]]:
        """Takes in a whole list. What it lacks is gone, unless it is newer than the list."""
        listed = _number(version)
        if listed < self._position:
            # The server's history has been set back (restored from a backup): nothing that we know is comparable.
            self._told = {key: self._before(key) for key in self._held.keys() | self._told.keys()}
            self._gone.clear()
            self._floor.clear()
            for key in list(self._held):
                self._drop(key)
        self._position = listed
        changes: list[Change[T]] = []
        keys, uids = set(), set()
        for item in items:
            metadata = self._metadata(item)
            keys.add(metadata.namespaced_name)
            uids.add(metadata.uid)
            changes += self._take(item, metadata)
        for key in (self._held.keys() | self._told.keys()) - keys:
            held = self._held.get(key)
            if held is None or held.version <= listed:
                changes += self._lose(key)
        self._gone = {uid: last for uid, last in self._gone.items() if uid in uids or last > listed}
        self._raise_floor()
        return changes

    def apply(self, item: T) -> list[Change[T]]:
        """Takes in an ADDED or MODIFIED event: no change if it is older than what we hold, else one."""
        metadata = self._metadata(item)
        if not self._pass(metadata.resource_version):
            return []
        return self._take(item, metadata)

    def remove(self, key: str, *, uid: str, version: str) -> list[Change[T]]:
        """Takes in a DELETED event; an object of that name that is newer than the event stays."""
        if not self._pass(version):
            return []
        self._gone.pop(uid, None)
        held = self._held.get(key)
        if held and held.version > self._position:
            return []
        return self._lose(key)

    def advance(self, version: str) -> None:
        """Takes in a BOOKMARK: nothing of ours has changed up to there."""
        self._pass(version)

    def _pass(self, version: str) -> bool:
        """Moves the position on; False for an event from before it, which has nothing new to say."""
        number = _number(version)
        if number <= self._position:
            return False
        self._position = number
        self._raise_floor()
        return True

    def _raise_floor(self) -> None:
        """What the watch has passed it never shows again."""
        if self._floor:
            self._floor = {key: version for key, version in self._floor.items() if version > self._position}

    def _take(self, item: T, metadata: ObjectMeta) -> list[Change[T]]:
        key, version = metadata.namespaced_name, _number(metadata.resource_version)
        held = self._held.get(key)
        if metadata.uid in self._gone or max(held.version if held else 0, self._floor.get(key, 0)) > version:
            return []
        before = self._before(key)
        confirmed = key in self._told or held is None or held.version < version
        self._told.pop(key, None)
        self._put(key, item, version)
        return [(before, item)] if confirmed else []

    def _lose(self, key: str) -> list[Change[T]]:
        before = self._before(key)
        self._told.pop(key, None)
        if key in self._held:
            self._drop(key)
        return [(before, None)] if before is not None else []

    def _before(self, key: str) -> T | None:
        return self._told[key] if key in self._told else self.get(key)

    def _put(self, key: str, item: T, version: int) -> None:
        held = self._held.get(key)
        if held:
            self._unindex(key, held.item)
        self._held[key] = _Held(item, version)
        for name, function in self._indexes.items():
            for value in function(item):
                self._index[name].setdefault(value, {})[key] = None

    def _drop(self, key: str) -> None:
        self._unindex(key, self._held.pop(key).item)

    def _unindex(self, key: str, item: T) -> None:
        for name, function in self._indexes.items():
            for value in function(item):
                keys = self._index[name].get(value, {})
                keys.pop(key, None)
                if not keys:
                    self._index[name].pop(value, None)


class _Held(NamedTuple, Generic[T]):
    item: T
    version: int


_NOTHING: dict[str, None] = {}


def _number(version: str) -> int:
    return int(version) if version else 0
