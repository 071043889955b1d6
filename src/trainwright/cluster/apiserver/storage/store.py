"""All objects of the cluster in memory, backed by the journal, with a watch cache of recent changes.

A write is visible to readers and watchers only after its commit, so a crash never undoes a change that a client has
seen.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from trainwright.cluster.apiserver.storage.journal import Journal, Write
from trainwright.objects import Object

log = logging.getLogger(__name__)

WATCH_CACHE_SIZE = 4096
"""Changes per resource that are kept for watches; a watch from an older version has to list again."""

_HOT_CHANGES = 64
"""The newest changes keep their decoded objects and encoded watch events."""

MAX_OBJECT_BYTES = 3 * 1024 * 1024
"""As JSON. etcd refuses half of it, but its objects are in a shorter form. Patches and defaults could otherwise let an
object grow without end."""

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""


class ObjectTooLargeError(Exception):
    """The object is not stored; the message is etcd's."""


class Stored:
    """One version of one object as JSON, decoded on first use. The dictionary must not be modified."""

    __slots__ = ("_obj", "key", "raw", "version")

    def __init__(self, key: Key, version: int, raw: bytes, obj: Object | None = None) -> None:
        self.key = key
        self.version = version
        self.raw = raw
        self._obj = obj

    @property
    def obj(self) -> Object:
        if self._obj is None:
            self._obj = msgspec.json.decode(self.raw)
        return self._obj

    def drop_decoded(self) -> None:
        """Frees the decoded object, which takes several times the memory of the JSON."""
        self._obj = None


@dataclass(slots=True)
class Change:
    """One change of an object. `old` is None for a new object; `new` of a removed one is its last state."""

    version: int
    old: Stored | None
    new: Stored
    removed: bool = False
    encoded: dict[object, bytes] = field(default_factory=dict)
    """Watch events by representation, encoded once for all watchers."""

    def drop_caches(self) -> None:
        """Frees what can be computed again for a slow watcher."""
        self.encoded.clear()
        if self.old is not None:
            self.old.drop_decoded()
        if self.removed:
            self.new.drop_decoded()


@dataclass(slots=True)
class _Table:
    objects: dict[Key, Stored] = field(default_factory=dict)
    history: deque[Change] = field(default_factory=deque)
    floor: int = 0
    """The newest version from which a watch can no longer start."""
    watchers: set[Callable[[Change], None]] = field(default_factory=set)


class ResourceVersionTooOld(Exception):  # noqa: N818 - the API's name
    """The watch cache no longer has the changes since the requested version."""


@dataclass(frozen=True, slots=True)
class Removed:
    """The result of a TryUpdate that removes the object; watchers get its `last` state."""

    last: Object


TryUpdate = Callable[[Stored | None], Object | Removed]
"""From the stored object to the new one; returns the stored dictionary itself for no change."""


class ObjectStore:
    """Keeps objects under a resource's name (`pods`, `pytorchjobs.kubeflow.org`), namespace and name."""

    def __init__(self, path: Path | None) -> None:
        self._journal = Journal(path) if path else None
        self._tables: dict[str, _Table] = {}
        self._locks: dict[tuple[str, Key], _KeyLock] = {}
        self._allocated_version = 1
        self._visible_version = 1
        self._loaded_version = 0
        if self._journal:
            self._allocated_version, writes = self._journal.load()
            self._visible_version = self._loaded_version = self._allocated_version
            for write in writes:
                if write.body is not None:
                    key = (write.namespace, write.name)
                    self._table(write.resource).objects[key] = Stored(key, write.version, write.body)

    @property
    def version(self) -> int:
        """The newest visible resourceVersion."""
        return self._visible_version

    def get(self, resource: str, namespace: str, name: str) -> Stored | None:
        return self._table(resource).objects.get((namespace, name))

    def list(self, resource: str, namespace: str | None = None) -> list[Stored]:
        """All objects, or those of one namespace, ordered by key."""
        objects = self._table(resource).objects
        keys = objects if namespace is None else [key for key in objects if key[0] == namespace]
        return [objects[key] for key in sorted(keys)]

    def count(self, resource: str) -> int:
        return len(self._table(resource).objects)

    async def guaranteed_update(self, resource: str, namespace: str, name: str, try_update: TryUpdate) -> Change | None:
        """Creates, updates or removes an object: runs `try_update` under the object's lock and commits the result.

        Sets the resourceVersion. Returns None if nothing changed.
        """
        key = (namespace, name)
        async with self._locked(resource, key):
            old = self._table(resource).objects.get(key)
            new = try_update(old)
            if old is not None and new is old.obj:
                return None
            return await self._commit(resource, key, old, new)

    def list_at(self, resource: str, version: int) -> Sequence[Stored]:
        """All objects as they were at `version`: the current ones with later changes reverted."""
        objects = dict(self._table(resource).objects)
        for change in reversed(self.changes_since(resource, version)):
            if change.old is None:
                objects.pop(change.new.key, None)
            else:
                objects[change.new.key] = change.old
        return [objects[key] for key in sorted(objects)]

    def changes_since(self, resource: str, version: int) -> Sequence[Change]:
        """The changes after `version`; raises ResourceVersionTooOld if the watch cache no longer has all of them."""
        table = self._table(resource)
        if version < table.floor:
            raise ResourceVersionTooOld
        return [change for change in table.history if change.version > version]

    def subscribe(self, resource: str, notify: Callable[[Change], None]) -> Callable[[], None]:
        """Calls `notify` on every change, in order of version, until the returned function is called."""
        watchers = self._table(resource).watchers
        watchers.add(notify)
        return lambda: watchers.discard(notify)

    def close(self) -> None:
        """Waits until the journal has committed what was handed to it."""
        if self._journal:
            self._journal.close()

    def _table(self, resource: str) -> _Table:
        table = self._tables.get(resource)
        if table is None:
            table = self._tables[resource] = _Table(floor=self._loaded_version)
        return table

    @contextlib.asynccontextmanager
    async def _locked(self, resource: str, key: Key) -> AsyncIterator[None]:
        entry = self._locks.setdefault((resource, key), _KeyLock())
        entry.writers += 1
        try:
            async with entry.lock:
                yield
        finally:
            entry.writers -= 1
            if not entry.writers:
                del self._locks[resource, key]

    async def _commit(self, resource: str, key: Key, old: Stored | None, new: Object | Removed) -> Change:
        version = self._allocated_version + 1
        removed = isinstance(new, Removed)
        last = new.last if isinstance(new, Removed) else new
        obj = last | {"metadata": last["metadata"] | {"resourceVersion": str(version)}}
        stored = Stored(key, version, msgspec.json.encode(obj), obj)
        if len(stored.raw) > MAX_OBJECT_BYTES and not removed:
            raise ObjectTooLargeError("etcdserver: request is too large")
        self._allocated_version = version
        change = Change(version, old, stored, removed=removed)
        if self._journal is None:
            self._publish(resource, change)
            return change
        loop = asyncio.get_running_loop()
        committed: asyncio.Future[None] = loop.create_future()
        write = Write(resource, *key, version, None if removed else stored.raw)
        publish = partial(self._committed, resource, change, committed)
        self._journal.append(write, partial(_call_in_loop, loop, publish))
        # A queued commit cannot be undone, so it is published even if the caller is cancelled.
        await _wait_uncancelled(committed)
        return change

    def _committed(
        self, resource: str, change: Change, committed: "asyncio.Future[None]", error: Exception | None
    ) -> None:
        if error is not None:
            committed.set_exception(error)
            return
        self._publish(resource, change)
        committed.set_result(None)

    def _publish(self, resource: str, change: Change) -> None:
        table = self._table(resource)
        if change.removed:
            del table.objects[change.new.key]
        else:
            table.objects[change.new.key] = change.new
        table.history.append(change)
        if len(table.history) > _HOT_CHANGES:
            table.history[-_HOT_CHANGES - 1].drop_caches()
        if len(table.history) > WATCH_CACHE_SIZE:
            table.floor = table.history.popleft().version
        self._visible_version = change.version
        for notify in tuple(table.watchers):
            try:
                notify(change)
            except Exception:  # the write is committed: its caller and the other watchers are not affected
                log.exception("a watcher of %s failed", resource)


@dataclass(slots=True)
class _KeyLock:
    """The lock of one object; it exists only while there are writers."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    writers: int = 0


def _call_in_loop(
    loop: asyncio.AbstractEventLoop, publish: Callable[[Exception | None], None], error: Exception | None
) -> None:
    """Called in the journal's thread; does nothing if the loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(publish, error)


async def _wait_uncancelled(committed: Awaitable[None]) -> None:
    """Waits for the commit even if the task is cancelled, then raises the cancellation."""
    waiting = asyncio.ensure_future(committed)
    try:
        await asyncio.shield(waiting)
    except asyncio.CancelledError:
        while not waiting.done():
            try:
                await asyncio.shield(waiting)
            except asyncio.CancelledError:
                continue
        raise
