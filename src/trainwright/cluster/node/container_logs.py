"""Reads what containers printed, for the API server's log endpoint: whole, the end of it, or as it comes."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from trainwright.cluster.node.supervisor.cri_log import rotated_names
from trainwright.cluster.node.supervisor.files import read_json
from trainwright.objects import Object
from trainwright.objects.logs import LogOptions, LogUnavailable

_BLOCK = 64 * 1024
_PAUSE = 0.05
"""Seconds between two looks at a file that is followed."""


class PodLogs:
    """`directory` is the node's, as the agent was given it."""

    def __init__(self, directory: Path) -> None:
        self._pods = directory / "pods"

    def read(self, pod: Object, container: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        """Raises LogUnavailable at once, never later."""
        directory = self._pods / str(pod["metadata"]["uid"])
        instance = _instance(directory, pod, container, options)
        path = directory / "logs" / container / f"{instance}.log"
        if not any(file.exists() for file in _paths(path)):
            name = pod["metadata"]["name"]
            raise LogUnavailable(f'the log of container "{container}" in pod "{name}" does not exist')
        return _pieces(path, options, ended=lambda: _ended(directory, container, instance))


class Renderer:
    """From log lines to what a reader sees; pieces of one line become one line again."""

    def __init__(self, *, timestamps: bool, since: datetime | None) -> None:
        self._timestamps = timestamps
        self._since = since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode() if since else b""
        self._rest = b""
        self._inside: set[bytes] = set()

    def feed(self, data: bytes) -> bytes:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return b"".join(self._line(line) for line in lines)

    def _line(self, line: bytes) -> bytes:
        stamp, _, rest = line.partition(b" ")
        stream, _, rest = rest.partition(b" ")
        tag, _, text = rest.partition(b" ")
        if stamp < self._since:
            return b""
        head = b"" if stream in self._inside or not self._timestamps else stamp + b" "
        if tag == b"P":
            self._inside.add(stream)
            return head + text
        self._inside.discard(stream)
        return head + text + b"\n"


async def _pieces(path: Path, options: LogOptions, *, ended: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
    left = options.limit_bytes
    renderer = Renderer(timestamps=options.timestamps, since=options.since)
    files = _open_all(path)
    try:
        if options.tail_lines is not None:
            _seek(files, _tail_offset(files, options.tail_lines))
        while left is None or left > 0:
            # The order matters: what an ended container wrote was there before its end was recorded, and a file that
            # was replaced is not written to any more.
            last = not options.follow or ended()
            if options.follow:
                files += _open_newer(path, files)
            for piece in _rendered(files, renderer):
                part = piece if left is None else piece[:left]
                yield part
                if left is not None:
                    left -= len(part)
                    if left <= 0:
                        return
                await asyncio.sleep(0)  # others have their turn: a log may be gigabytes long
            if last:
                return
            await asyncio.sleep(_PAUSE)
    finally:
        _close(files)


def _rendered(files: list[BinaryIO], renderer: Renderer) -> Iterator[bytes]:
    """What is new in the files, which are closed on the way, all but the last."""
    while files:
        while data := files[0].read(_BLOCK):
            if piece := renderer.feed(data):
                yield piece
        if len(files) == 1:
            return
        files.pop(0).close()


def _open_all(path: Path) -> list[BinaryIO]:
    """The files of a log, the oldest first; none if the pod was removed in this moment.

    They are opened from the newest on, the way that a rotation moves them: so one that moves meanwhile may be met
    twice, but is never missed.
    """
    while True:
        files: list[BinaryIO] = []
        for one in _paths(path):
            with suppress(FileNotFoundError):
                files.insert(0, one.open("rb"))
                if any(_same(files[0], other) for other in files[1:]):
                    files.pop(0).close()
        newest = next((one for one in _paths(path) if one.exists()), None)
        if not files or (newest and _names(newest, files[-1])):
            return files
        _close(files)  # the log went on meanwhile in another file, or it was removed


def _open_newer(path: Path, files: list[BinaryIO]) -> list[BinaryIO]:
    """What the log went on in after the last of the files; all that there is if even that one was dropped already."""
    if files and _names(path, files[-1]):
        return []
    found = _open_all(path)
    known = next((at for at, file in enumerate(found) if files and _same(file, files[-1])), -1)
    _close(found[: known + 1])
    return found[known + 1 :]


def _paths(path: Path) -> list[Path]:
    """Where the files of a log may be, the newest first."""
    return [path, *map(Path, rotated_names(str(path)))]


def _names(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _same(one: BinaryIO, other: BinaryIO) -> bool:
    return os.path.sameopenfile(one.fileno(), other.fileno())


def _close(files: list[BinaryIO]) -> None:
    for file in files:
        file.close()


def _instance(directory: Path, pod: Object, container: str, options: LogOptions) -> int:
    """Which run of the container is meant, as the kubelet counts: the last one that was started, or the one before."""
    name = pod["metadata"]["name"]
    record = _record(directory, container)
    if record is None:
        reason = _waiting_reason(pod, container)
        raise LogUnavailable(f'container "{container}" in pod "{name}" is waiting to start: {reason}')
    latest = int(record["restarts"])
    waits = "waiting" in record["state"]
    if options.previous:
        wanted = latest if waits and record["last"] else latest - 1
        if wanted < 0 or not record["last"]:
            raise LogUnavailable(f'previous terminated container "{container}" in pod "{name}" not found')
        return wanted
    if waits and not record["last"]:
        reason = record["state"]["waiting"]["reason"]
        raise LogUnavailable(f'container "{container}" in pod "{name}" is waiting to start: {reason}')
    return latest


def _ended(directory: Path, container: str, instance: int) -> bool:
    record = _record(directory, container)
    return record is None or "running" not in record["state"] or int(record["restarts"]) > instance


def _record(directory: Path, container: str) -> dict[str, Any] | None:
    with suppress(ValueError):
        state = read_json(str(directory / "state.json"), default=None)
        if state is not None:
            for record in [*state["initContainers"], *state["containers"]]:
                if record["name"] == container:
                    return dict(record)
    return None


def _waiting_reason(pod: Object, container: str) -> str:
    status = pod.get("status") or {}
    for one in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        if one["name"] == container and "waiting" in one.get("state", {}):
            return str(one["state"]["waiting"].get("reason", ""))
    return "ContainerCreating"


def _tail_offset(files: list[BinaryIO], lines: int) -> int:
    """Where the last so many lines of the files, taken as one, begin; found from the end, because logs are long and
    tails are short."""
    end = sum(os.fstat(file.fileno()).st_size for file in files)
    if lines <= 0:
        return end
    start, text = end, b""
    while start > 0:
        size = min(_BLOCK, start)
        start -= size
        _seek(files, start)
        text = _read(files, size) + text
        starts = _line_starts(text, complete=start == 0)
        if len(starts) > lines:
            break
    starts = _line_starts(text, complete=start == 0)
    return start + (starts[-lines] if len(starts) >= lines else starts[0] if starts else 0)


def _seek(files: list[BinaryIO], offset: int) -> None:
    for file in files:
        offset -= file.seek(min(offset, os.fstat(file.fileno()).st_size))


def _read(files: list[BinaryIO], size: int) -> bytes:
    text = b""
    for file in files:
        text += file.read(size - len(text))
    return text


def _line_starts(text: bytes, *, complete: bool) -> list[int]:
    """Offsets at which a line of the container begins; the first log line of an incomplete text is not trusted."""
    offset = 0 if complete else text.find(b"\n") + 1
    starts, open_line = [], not complete
    while offset < len(text):
        end = text.find(b"\n", offset)
        end = len(text) if end < 0 else end
        if not open_line:
            starts.append(offset)
        open_line = text[offset:end].split(b" ", 3)[2:3] == [b"P"]
        offset = end + 1
    return starts
