"""Reads container logs for the log endpoint of the API server: all, the tail, or followed."""

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
_FOLLOW_SECONDS = 0.05
"""Between two reads of a followed file."""


class ContainerLogs:
    """`directory` is the node's, the same as that of the agent."""

    def __init__(self, directory: Path) -> None:
        self._pods = directory / "pods"

    def read(self, pod: Object, container: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        """Raises LogUnavailable before it returns, never while the log is read."""
        directory = self._pods / str(pod["metadata"]["uid"])
        run = _run_number(directory, pod, container, options)
        path = directory / "logs" / container / f"{run}.log"
        if not any(file.exists() for file in _paths(path)):
            name = pod["metadata"]["name"]
            raise LogUnavailable(f'the log of container "{container}" in pod "{name}" does not exist')
        return _pieces(path, options, ended=lambda: _ended(directory, container, run))


class LogDecoder:
    """From CRI lines to the output of the container; partial lines become one line again."""

    def __init__(self, *, timestamps: bool, since: datetime | None) -> None:
        self._timestamps = timestamps
        self._since = since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode() if since else b""
        self._rest = b""
        self._open_lines: set[bytes] = set()

    def feed(self, data: bytes) -> bytes:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return b"".join(self._line(line) for line in lines)

    def _line(self, line: bytes) -> bytes:
        stamp, _, rest = line.partition(b" ")
        stream, _, rest = rest.partition(b" ")
        tag, _, text = rest.partition(b" ")
        if stamp < self._since:
            return b""
        head = b"" if stream in self._open_lines or not self._timestamps else stamp + b" "
        if tag == b"P":
            self._open_lines.add(stream)
            return head + text
        self._open_lines.discard(stream)
        return head + text + b"\n"


async def _pieces(path: Path, options: LogOptions, *, ended: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
    left = options.limit_bytes
    decoder = LogDecoder(timestamps=options.timestamps, since=options.since)
    files = _open_all(path)
    try:
        if options.tail_lines is not None:
            _seek(files, _tail_offset(files, options.tail_lines))
        while left is None or left > 0:
            # The order matters: a container's last output is in the log before its end is recorded, and rotated files
            # are no longer written.
            last = not options.follow or ended()
            if options.follow:
                files += _open_newer(path, files)
            for piece in _decoded(files, decoder):
                part = piece if left is None else piece[:left]
                yield part
                if left is not None:
                    left -= len(part)
                    if left <= 0:
                        return
                await asyncio.sleep(0)  # lets other tasks run: a log may be gigabytes long
            if last:
                return
            await asyncio.sleep(_FOLLOW_SECONDS)
    finally:
        _close(files)


def _decoded(files: list[BinaryIO], decoder: LogDecoder) -> Iterator[bytes]:
    """The unread output of the files; closes all files but the last."""
    while files:
        while data := files[0].read(_BLOCK):
            if piece := decoder.feed(data):
                yield piece
        if len(files) == 1:
            return
        files.pop(0).close()


def _open_all(path: Path) -> list[BinaryIO]:
    """The files of a log, the oldest first; none if the pod is being removed.

    They are opened from the newest to the oldest, the direction of a rotation: a file that is renamed meanwhile may be
    opened twice, but is never missed.
    """
    while True:
        files: list[BinaryIO] = []
        for one in _paths(path):
            with suppress(FileNotFoundError):
                files.insert(0, one.open("rb"))
                if any(_same(files[0], other) for other in files[1:]):
                    files.pop(0).close()
        newest = next((one for one in _paths(path) if one.exists()), None)
        if not files or (newest and _is_file(newest, files[-1])):
            return files
        _close(files)  # rotated or removed meanwhile


def _open_newer(path: Path, files: list[BinaryIO]) -> list[BinaryIO]:
    """The files after the last open one; all files if that one has been deleted by rotation."""
    if files and _is_file(path, files[-1]):
        return []
    found = _open_all(path)
    known = next((at for at, file in enumerate(found) if files and _same(file, files[-1])), -1)
    _close(found[: known + 1])
    return found[known + 1 :]


def _paths(path: Path) -> list[Path]:
    """Paths of the files of a log, the newest first; some may not exist."""
    return [path, *map(Path, rotated_names(str(path)))]


def _is_file(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _same(one: BinaryIO, other: BinaryIO) -> bool:
    return os.path.sameopenfile(one.fileno(), other.fileno())


def _close(files: list[BinaryIO]) -> None:
    for file in files:
        file.close()


def _run_number(directory: Path, pod: Object, container: str, options: LogOptions) -> int:
    """The run of the container whose log is read: the last one that was started, or the one before it."""
    name = pod["metadata"]["name"]
    status = _container_status(directory, container)
    if status is None:
        reason = _waiting_reason(pod, container)
        raise LogUnavailable(f'container "{container}" in pod "{name}" is waiting to start: {reason}')
    latest = int(status["restarts"])
    is_waiting = "waiting" in status["state"]
    if options.previous:
        previous = latest if is_waiting and status["last"] else latest - 1
        if previous < 0 or not status["last"]:
            raise LogUnavailable(f'previous terminated container "{container}" in pod "{name}" not found')
        return previous
    if is_waiting and not status["last"]:
        reason = status["state"]["waiting"]["reason"]
        raise LogUnavailable(f'container "{container}" in pod "{name}" is waiting to start: {reason}')
    return latest


def _ended(directory: Path, container: str, run: int) -> bool:
    status = _container_status(directory, container)
    return status is None or "running" not in status["state"] or int(status["restarts"]) > run


def _container_status(directory: Path, container: str) -> dict[str, Any] | None:
    with suppress(ValueError):
        state = read_json(str(directory / "state.json"), default=None)
        if state is not None:
            for status in [*state["initContainers"], *state["containers"]]:
                if status["name"] == container:
                    return dict(status)
    return None


def _waiting_reason(pod: Object, container: str) -> str:
    pod_status = pod.get("status") or {}
    statuses = [*(pod_status.get("initContainerStatuses") or []), *(pod_status.get("containerStatuses") or [])]
    for status in statuses:
        if status["name"] == container and "waiting" in status.get("state", {}):
            return str(status["state"]["waiting"].get("reason", ""))
    return "ContainerCreating"


def _tail_offset(files: list[BinaryIO], lines: int) -> int:
    """Where the last `lines` lines begin in the concatenated files; searched from the end, because logs are long and
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
    """Offsets at which a line of the container begins. The first line of an incomplete text is skipped."""
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
