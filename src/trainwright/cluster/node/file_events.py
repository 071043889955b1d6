"""Waits for changes of files by inotify: a followed log or an attached session costs nothing while it is idle."""

import asyncio
import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_IN_MODIFY, _IN_MOVED_TO, _IN_CREATE, _IN_MOVE_SELF = 0x2, 0x80, 0x100, 0x800
_MASK = _IN_MODIFY | _IN_MOVED_TO | _IN_CREATE | _IN_MOVE_SELF
_IN_NONBLOCK, _IN_CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
_BUFFER = 64 * 1024
_POLL_SECONDS = 0.05
_GATHER_SECONDS = 0.02

_libc = ctypes.CDLL(None, use_errno=True)


class Changes:
    """An idle file is seen to change at once; of one that changes all the time many changes are seen together."""

    def __init__(self, event: asyncio.Event, *, polled: bool) -> None:
        self._event = event
        self._polled = polled
        self._last = 0.0

    def clear(self) -> None:
        """To be called before the files are read."""
        self._event.clear()

    async def wait(self) -> None:
        """Returns when a file may have changed since `clear`."""
        if self._polled:
            await asyncio.sleep(_POLL_SECONDS)
            return
        await self._event.wait()
        loop = asyncio.get_running_loop()
        if (pause := self._last + _GATHER_SECONDS - loop.time()) > 0:
            await asyncio.sleep(pause)
        self._last = loop.time()


class FileEvents:
    """One inotify instance for many directories: a user may have only 128 instances."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._waiting: dict[int, set[asyncio.Event]] = {}
        """Watch descriptor -> events to set."""

    @contextmanager
    def watching(self, *directories: Path) -> Iterator[Changes]:
        """The changes of files in the directories, during a block. If the kernel refuses a watch they are polled."""
        event = asyncio.Event()
        watches = [self._add(directory) for directory in directories]
        added = [watch for watch in watches if watch is not None]
        for watch in added:
            self._waiting.setdefault(watch, set()).add(event)
        try:
            yield Changes(event, polled=len(added) < len(directories))
        finally:
            for watch in added:
                self._release(watch, event)

    def _add(self, directory: Path) -> int | None:
        if self._descriptor is None:
            descriptor = _libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
            if descriptor < 0:
                return None
            self._descriptor = descriptor
            asyncio.get_running_loop().add_reader(descriptor, self._on_events)
        watch = _libc.inotify_add_watch(self._descriptor, os.fsencode(directory), _MASK)
        return watch if watch >= 0 else None

    def _release(self, watch: int, event: asyncio.Event) -> None:
        others = self._waiting.get(watch, set())
        others.discard(event)
        if not others:
            self._waiting.pop(watch, None)
            _libc.inotify_rm_watch(self._descriptor, watch)
        if not self._waiting and self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _on_events(self) -> None:
        if self._descriptor is None:
            return
        try:
            data = os.read(self._descriptor, _BUFFER)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            watch, _, _, length = struct.unpack_from("iIII", data, at)
            at += 16 + length
            affected = [self._waiting.get(watch, ())] if watch >= 0 else self._waiting.values()  # -1: events were lost
            for events in affected:
                for event in events:
                    event.set()
