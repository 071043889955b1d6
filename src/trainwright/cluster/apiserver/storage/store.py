"""All objects of the cluster: in memory for reading, in the journal for keeping, with the history that watches replay.

A write is visible to readers and watchers only after its commit, so nobody ever saw what a crash takes back.
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

HISTORY = 4096
"""How many changes per resource a watch may lag behind before it has to list again."""

_FRESH = 64
"""How many of them are kept ready to send."""

Key = tuple[str, str]
"""Namespace (empty for objects of the whole cluster) and name."""


class Stored:
    """One version of one object: the bytes to answer with, decoded on first use. The dictionary is never modified."""

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

    def forget(self) -> None:
        """Keeps the bytes alone, a fraction of the decoded object's memory."""
        self._obj = None


@dataclass(slots=True)
class Change:
    """One step in a resource's history. `old` is None for a new object; a removed one keeps its last state in `new`."""

    version: int
    old: Stored | None
    new: Stored
    removed: bool = False
    encoded: dict[object, bytes] = field(default_factory=dict)
    """Watch lines by representation: encoded once, handed to every watcher."""

    def shrink(self) -> None:
        """What no watcher is likely to ask for any more is made again if one does."""
        self.encoded.clear()
        if self.old is not None:
            self.old.forget()
        if self.removed:
            self.new.forget()


@dataclass(slots=True)
class _Table:
    objects: dict[Key, Stored] = field(default_factory=dict)
    history: deque[Change] = field(default_factory=deque)
    floor: int = 0
    """The newest version that a watch can no longer start from."""
    watchers: set[Callable[[Change], None]] = field(default_factory=set)


class Gone(Exception):  # noqa: N818 - named as the API names it
    """The history no longer reaches back to the version that a watch asked for."""


@dataclass(frozen=True, slots=True)
class Removed:
    """The decision to remove an object; watchers are told its `last` state."""

    last: Object


Decide = Callable[[Stored | None], Object | Removed]
"""Given what is stored now: the object to store, the stored dictionary itself for no change, or its removal."""


class ObjectStore:
    """Keeps objects under a resource's name (`pods`, `pytorchjobs.kubeflow.org`), namespace and name."""

    def __init__(self, path: Path | None) -> None:
        self._journal = Journal(path) if path else None
        self._tables: dict[str, _Table] = {}
        self._turns: dict[tuple[str, Key], _Turn] = {}
        self._given_out = 1
        self._visible = 1
        self._start = 0
        if self._journal:
            self._given_out, writes = self._journal.load()
            self._visible = self._start = self._given_out
            for write in writes:
                if write.body is not None:
                    key = (write.namespace, write.name)
                    self._table(write.resource).objects[key] = Stored(key, write.version, write.body)

    @property
    def version(self) -> int:
        """The newest version that anybody can have seen."""
        return self._visible

    def get(self, resource: str, namespace: str, name: str) -> Stored | None:
        return self._table(resource).objects.get((namespace, name))

    def list(self, resource: str, namespace: str | None = None) -> list[Stored]:
        """All objects, or those of one namespace, ordered by key."""
        objects = self._table(resource).objects
        keys = objects if namespace is None else [key for key in objects if key[0] == namespace]
        return [objects[key] for key in sorted(keys)]

    def count(self, resource: str) -> int:
        return len(self._table(resource).objects)

    async def change(self, resource: str, namespace: str, name: str, decide: Decide) -> Change | None:
        """Runs `decide` on the stored object while nobody else writes to it, and returns when the result is durable.

        The new object gets its resourceVersion here. An answer of None means that nothing changed.
        """
        key = (namespace, name)
        async with self._alone(resource, key):
            old = self._table(resource).objects.get(key)
            new = decide(old)
            if old is not None and new is old.obj:
                return None
            return await self._commit(resource, key, old, new)

    def list_at(self, resource: str, version: int) -> Sequence[Stored]:
        """All objects as they were at `version`: the present ones with later changes taken back."""
        objects = dict(self._table(resource).objects)
        for change in reversed(self.changes_since(resource, version)):
            if change.old is None:
                objects.pop(change.new.key, None)
            else:
                objects[change.new.key] = change.old
        return [objects[key] for key in sorted(objects)]

    def changes_since(self, resource: str, version: int) -> Sequence[Change]:
        """The history after `version`; raises Gone when it is not all there any more."""
        table = self._table(resource)
        if version < table.floor:
            raise Gone
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
            table = self._tables[resource] = _Table(floor=self._start)
        return table

    @contextlib.asynccontextmanager
    async def _alone(self, resource: str, key: Key) -> AsyncIterator[None]:
        turn = self._turns.setdefault((resource, key), _Turn())
        turn.writers += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.writers -= 1
            if not turn.writers:
                del self._turns[resource, key]

    async def _commit(self, resource: str, key: Key, old: Stored | None, new: Object | Removed) -> Change:
        self._given_out += 1
        version = self._given_out
        removed = isinstance(new, Removed)
        last = new.last if isinstance(new, Removed) else new
        obj = last | {"metadata": last["metadata"] | {"resourceVersion": str(version)}}
        stored = Stored(key, version, msgspec.json.encode(obj), obj)
        change = Change(version, old, stored, removed=removed)
        if self._journal is None:
            self._publish(resource, change)
            return change
        loop = asyncio.get_running_loop()
        committed: asyncio.Future[None] = loop.create_future()
        write = Write(resource, *key, version, None if removed else stored.raw)
        publish = partial(self._committed, resource, change, committed)
        self._journal.append(write, partial(_hand_over, loop, publish))
        # The commit cannot be called back: a caller who goes away must not keep it from being published.
        await _to_the_end(committed)
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
        if len(table.history) > _FRESH:
            table.history[-_FRESH - 1].shrink()
        if len(table.history) > HISTORY:
            table.floor = table.history.popleft().version
        self._visible = change.version
        for notify in tuple(table.watchers):
            try:
                notify(change)
            except Exception:  # the write is done: neither its author nor the other watchers may suffer
                log.exception("a watcher of %s failed", resource)


@dataclass(slots=True)
class _Turn:
    """The queue of writers at one object; it exists only while somebody is in it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    writers: int = 0


def _hand_over(
    loop: asyncio.AbstractEventLoop, publish: Callable[[Exception | None], None], error: Exception | None
) -> None:
    """From the journal's thread to the loop; a loop that has ended has nobody left to tell."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(publish, error)


async def _to_the_end(committed: Awaitable[None]) -> None:
    """Waits for the commit even if the waiting task is cancelled, then lets the cancellation through."""
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
