"""The cache of one resource: filled by a watch, and updated at once by the responses to our own writes.

Every rule here compares resourceVersions, which Kubernetes documents as integers that increase with every write to a
resource. So a controller reads its own writes and needs no expectations.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from trainwright.objects import Object
from trainwright.objects.metadata import ObjectMeta

T = TypeVar("T")

Index = Callable[[T], Iterable[str]]
"""The index values of an object."""

Change = tuple[T | None, T | None]
"""The object before and after the change; None if it did not exist or no longer exists."""


def raw_metadata(obj: Object) -> ObjectMeta:
    return msgspec.convert(obj["metadata"], ObjectMeta)


def _metadata_of(item: Any) -> ObjectMeta:
    return raw_metadata(item) if isinstance(item, dict) else item.metadata


class Store(Generic[T]):
    """Objects by `NAMESPACE/NAME`, or `NAME` if cluster-scoped: whole ones, or views, which have their `metadata`.
    Callers must not change the objects.

    The watch has delivered all events up to its position, `last_version`. A response to a write is stored if it is
    newer than that; an older one may be about an object that was deleted since. An object is never replaced by an older
    version of itself. `matches` is the selector of the watch, if it has one.
    """

    def __init__(
        self,
        *,
        indexes: Mapping[str, Index[T]] | None = None,
        matches: Callable[[T], bool] | None = None,
    ) -> None:
        self._matches = matches
        self._indexes = dict(indexes or {})
        self._entries: dict[str, _Entry[T]] = {}
        self._index: dict[str, dict[str, dict[str, None]]] = {name: {} for name in self._indexes}
        self._position = 0
        # By key: the object that listeners know, where a write of our own is newer.
        self._notified: dict[str, T | None] = {}
        # By uid: objects whose deletion is confirmed but not yet delivered by the watch, with their last known version.
        self._deleted: dict[str, int] = {}
        # By key: the version of a removed object, so that older events do not bring it back.
        self._min_version: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def last_version(self) -> str:
        """The position of the watch; empty before the first list."""
        return str(self._position) if self._position else ""

    def get(self, key: str) -> T | None:
        entry = self._entries.get(key)
        return entry.item if entry else None

    def all(self) -> list[T]:
        return [entry.item for entry in self._entries.values()]

    def by_index(self, name: str, *values: str) -> list[T]:
        """The objects that have any of the values, each once."""
        index, entry = self._index[name], self._entries
        keys: dict[str, None] = {}
        for value in values:
            keys |= index.get(value, _NOTHING)
        return [entry[key].item for key in keys]

    # Our own writes

    def remember(self, item: T) -> None:
        """Stores the response to a write of ours, unless the watch has delivered something newer.

        A response that no longer matches the selector of the watch removes the object, because no later event would.
        """
        metadata = _metadata_of(item)
        key, version = metadata.namespaced_name, _number(metadata.resource_version)
        entry = self._entries.get(key)
        known = max(self._position, entry.version if entry else 0, self._min_version.get(key, 0))
        if version <= known or metadata.uid in self._deleted:
            return
        if self._matches is not None and not self._matches(item):
            self._min_version[key] = version
            if entry is not None:
                self._notified.setdefault(key, entry.item)
                self._drop(key)
            return
        self._notified.setdefault(key, entry.item if entry else None)
        self._put(key, item, version)

    def forget(self, key: str, *, uid: str) -> None:
        """Removes an object that the server has confirmed to be deleted; late events about it are ignored."""
        entry = self._entries.get(key)
        if entry is None or _metadata_of(entry.item).uid != uid:
            return
        self._deleted[uid] = self._min_version[key] = entry.version
        self._notified.setdefault(key, entry.item)
        self._drop(key)

    # The watch

    def replace(self, items: Iterable[T], version: str) -> list[Change[T]]:
        """Stores a complete list. Other objects are removed unless they are newer than the list."""
        listed = _number(version)
        if listed < self._position:
            # The server was restored from a backup: our versions cannot be compared with its own.
            self._notified = {key: self._before(key) for key in self._entries.keys() | self._notified.keys()}
            self._deleted.clear()
            self._min_version.clear()
            for key in list(self._entries):
                self._drop(key)
        self._position = listed
        changes: list[Change[T]] = []
        keys, uids = set(), set()
        for item in items:
            metadata = _metadata_of(item)
            keys.add(metadata.namespaced_name)
            uids.add(metadata.uid)
            changes += self._store(item, metadata)
        for key in (self._entries.keys() | self._notified.keys()) - keys:
            entry = self._entries.get(key)
            if entry is None or entry.version <= listed:
                changes += self._delete(key)
        self._deleted = {uid: last for uid, last in self._deleted.items() if uid in uids or last > listed}
        self._drop_min_versions()
        return changes

    def apply(self, item: T) -> list[Change[T]]:
        """Stores an ADDED or MODIFIED event, unless the stored object is newer."""
        metadata = _metadata_of(item)
        if not self._advance(metadata.resource_version):
            return []
        return self._store(item, metadata)

    def remove(self, key: str, *, uid: str, version: str) -> list[Change[T]]:
        """Applies a DELETED event; an object of that name that is newer than the event stays."""
        if not self._advance(version):
            return []
        self._deleted.pop(uid, None)
        entry = self._entries.get(key)
        if entry and entry.version > self._position:
            return []
        return self._delete(key)

    def advance(self, version: str) -> None:
        """Applies a BOOKMARK: there are no other events up to this version."""
        self._advance(version)

    def _advance(self, version: str) -> bool:
        """Advances the position; False for an event from before it."""
        number = _number(version)
        if number <= self._position:
            return False
        self._position = number
        self._drop_min_versions()
        return True

    def _drop_min_versions(self) -> None:
        """The watch does not deliver events from before its position again."""
        if self._min_version:
            self._min_version = {key: version for key, version in self._min_version.items() if version > self._position}

    def _store(self, item: T, metadata: ObjectMeta) -> list[Change[T]]:
        key, version = metadata.namespaced_name, _number(metadata.resource_version)
        entry = self._entries.get(key)
        if metadata.uid in self._deleted or max(entry.version if entry else 0, self._min_version.get(key, 0)) > version:
            return []
        before = self._before(key)
        confirmed = key in self._notified or entry is None or entry.version < version
        self._notified.pop(key, None)
        self._put(key, item, version)
        return [(before, item)] if confirmed else []

    def _delete(self, key: str) -> list[Change[T]]:
        before = self._before(key)
        self._notified.pop(key, None)
        if key in self._entries:
            self._drop(key)
        return [(before, None)] if before is not None else []

    def _before(self, key: str) -> T | None:
        return self._notified[key] if key in self._notified else self.get(key)

    def _put(self, key: str, item: T, version: int) -> None:
        entry = self._entries.get(key)
        if entry:
            self._unindex(key, entry.item)
        self._entries[key] = _Entry(item, version)
        for name, function in self._indexes.items():
            for value in function(item):
                self._index[name].setdefault(value, {})[key] = None

    def _drop(self, key: str) -> None:
        self._unindex(key, self._entries.pop(key).item)

    def _unindex(self, key: str, item: T) -> None:
        for name, function in self._indexes.items():
            for value in function(item):
                keys = self._index[name].get(value, {})
                keys.pop(key, None)
                if not keys:
                    self._index[name].pop(value, None)


class _Entry(NamedTuple, Generic[T]):
    item: T
    version: int


_NOTHING: dict[str, None] = {}


def _number(version: str) -> int:
    return int(version) if version else 0
