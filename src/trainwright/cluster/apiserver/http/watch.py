"""Watches: the initial state, then the changes since a resourceVersion, then live events, as lines of JSON.

Every event is encoded once per representation; a watcher that reads too slowly gets 410 Expired and has to list again.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from datetime import datetime

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.http.requests import SelectionPredicate
from trainwright.cluster.apiserver.http.responses import (
    Representation,
    encode,
    partial_object_metadata,
    plain_body,
    table,
)
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.storage.store import Change, ObjectStore, ResourceVersionTooOld, Stored
from trainwright.objects import Object

BUFFER_SIZE = 4096
"""The events that are buffered for one watcher before it is closed."""

BOOKMARK_SECONDS = 60.0

_INITIAL_END = {"k8s.io/initial-events-end": "true"}


@dataclass(frozen=True, slots=True)
class WatchOptions:
    version: int | None
    """The events after this resourceVersion are sent; None: the initial state first."""
    namespace: str | None
    selection: SelectionPredicate
    representation: Representation
    bookmarks: bool = False
    initial_events: bool = False
    timeout: float | None = None


class Watch:
    """One watcher, subscribed from construction on, so that no event is missed before the first read."""

    def __init__(
        self, store: ObjectStore, kind: ResourceType, options: WatchOptions, clock: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._kind = kind
        self._options = options
        self._clock = clock
        self._pending: deque[Change] = deque()
        self._changed = asyncio.Event()
        self._overflowed = False
        self._stopped = False
        self._columns_sent = False
        self._version = store.version
        self._unsubscribe = store.subscribe(kind.key, self._notify)

    def stop(self) -> None:
        """Ends the stream cleanly."""
        self._stopped = True
        self._changed.set()

    def close(self) -> None:
        """Unsubscribes. Must be called even if `lines` was never read."""
        self._unsubscribe()

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """Chunks of whole lines, until the timeout, `stop`, or an error event."""
        loop = asyncio.get_running_loop()
        deadline = None if self._options.timeout is None else loop.time() + self._options.timeout
        try:
            if first := self._initial_lines():
                yield first
        except ResourceVersionTooOld:
            yield _error_line(f"too old resource version: {self._options.version} ({self._store.version})")
            return
        next_bookmark = loop.time() + BOOKMARK_SECONDS
        while not self._stopped:
            until = min(next_bookmark, deadline) if deadline is not None else next_bookmark
            await self._wait(until - loop.time())
            if self._overflowed:
                yield _error_line("too old resource version: the watch fell behind")
                return
            if lines := self._drain():
                yield lines
            if deadline is not None and loop.time() >= deadline:
                break
            if loop.time() >= next_bookmark:
                next_bookmark = loop.time() + BOOKMARK_SECONDS
                if self._options.bookmarks:
                    yield self._bookmark()
        if self._options.bookmarks:
            yield self._bookmark()

    def _notify(self, change: Change) -> None:
        if len(self._pending) >= BUFFER_SIZE:
            self._overflowed = True
            self._pending.clear()
        elif not self._overflowed:
            self._pending.append(change)
        self._changed.set()

    async def _wait(self, seconds: float) -> None:
        if self._pending or self._stopped or self._overflowed:
            return
        self._changed.clear()
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await self._changed.wait()
        except TimeoutError:
            return

    def _initial_lines(self) -> bytes:
        """The initial state, or the changes since the requested version."""
        options = self._options
        if options.version is None or options.initial_events:
            self._version = self._store.version
            lines = [self._line("ADDED", stored, {}) for stored in self._selected()]
            if options.initial_events and options.bookmarks:
                lines.append(self._bookmark(_INITIAL_END))
            return b"".join(lines)
        missed = [
            change
            for change in self._store.changes_since(self._kind.key, options.version)
            if change.version <= self._version
        ]
        return b"".join(self._lines_of(change) for change in missed)

    def _selected(self) -> list[Stored]:
        listed = self._store.list(self._kind.key, self._options.namespace)
        return [stored for stored in listed if self._options.selection.matches(stored)]

    def _drain(self) -> bytes:
        lines = []
        while self._pending:
            change = self._pending.popleft()
            after = max(self._version, self._options.version or 0)
            if change.version > after:
                lines.append(self._lines_of(change))
                self._version = change.version
        return b"".join(lines)

    def _lines_of(self, change: Change) -> bytes:
        """The event for this watcher: an object that starts or stops matching the selectors is ADDED or DELETED."""
        namespace = self._options.namespace
        if namespace is not None and change.new.key[0] != namespace:
            return b""
        selection = self._options.selection
        before = change.old is not None and selection.matches(change.old)
        after = not change.removed and selection.matches(change.new)
        if after:
            return self._line("MODIFIED" if before else "ADDED", change.new, change.encoded)
        if not before or change.old is None:
            return b""
        if change.removed:
            return self._line("DELETED", change.new, change.encoded)
        # It exists, but has left the selection: the watcher gets the state that it last knew, at the change's version.
        return self._line("DELETED", _at_version(change.old, change.version), {})

    def _line(self, event: str, stored: Stored, cache: dict[object, bytes]) -> bytes:
        representation = self._options.representation
        first_table = representation.kind == "Table" and not self._columns_sent
        key = (event, self._kind.resource.version, representation)
        if first_table or key not in cache:
            line = b'{"type":"%s","object":%s}\n' % (event.encode(), self._encoded(stored))
            if first_table:
                self._columns_sent = True
                return line
            cache[key] = line
        return cache[key]

    def _encoded(self, stored: Stored) -> bytes:
        representation = self._options.representation
        if representation.kind == "Table":
            metadata = {"resourceVersion": str(stored.version)}
            rows = table(
                self._kind, [stored.obj], representation, self._clock(), metadata, with_columns=not self._columns_sent
            )
            return encode(rows)
        return encode(partial_object_metadata(stored.obj)) if representation.kind else plain_body(self._kind, stored)

    def _bookmark(self, annotations: Object | None = None) -> bytes:
        """A BOOKMARK event with the newest version that the watcher has seen."""
        version = str(max(self._version, self._store.version if not self._pending else 0))
        metadata = {"resourceVersion": version} | ({"annotations": annotations} if annotations else {})
        resource = self._kind.resource
        obj: Object = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        if self._options.representation.kind == "Table":
            representation = Representation("Table", "Metadata")
            rows = [{"cells": [None] * len(self._kind.columns), "object": partial_object_metadata(obj)}]
            obj = table(self._kind, [], representation, self._clock(), {"resourceVersion": version}, with_columns=False)
            obj["rows"] = rows
        elif self._options.representation.kind:
            obj = partial_object_metadata(obj)
        return encode({"type": "BOOKMARK", "object": obj}) + b"\n"


def _at_version(stored: Stored, version: int) -> Stored:
    metadata = stored.obj["metadata"] | {"resourceVersion": str(version)}
    obj = stored.obj | {"metadata": metadata}
    return Stored(stored.key, version, encode(obj), obj)


def _error_line(message: str) -> bytes:
    return encode({"type": "ERROR", "object": errors.expired(message).status()}) + b"\n"
