"""Reads the log of one run of a container while its supervisor writes, rotates or moves it: every record once."""

import calendar
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from trainwright.cluster.node.supervisor.containers.cri_log import dropped_bytes, rotated_names
from trainwright.cluster.node.supervisor.files import read_state
from trainwright.cluster.node.supervisor.pod_json import ContainerStatus

_BLOCK = 64 * 1024
"""Longer than any record."""

_STEP_RECORDS = 2000
"""A step takes a millisecond."""

_RECORD = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z) (stdout|stderr) ([PF]) ([^\n]*)\n")


def split_records(data: bytes) -> list[tuple[bytes, bytes, bytes, bytes]]:
    """Time stamp, stream, tag and text of each record. What a power failure left of one is skipped."""
    return _RECORD.findall(data)


@lru_cache(maxsize=1024)
def _whole_seconds(text: str) -> int:
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def seconds(stamp: str) -> float:
    """Since the epoch, of a time stamp of the supervisor: `2026-11-15T04:05:06.123456789Z`."""
    return _whole_seconds(stamp[:19]) + float(stamp[19:-1] or 0)


def find_pod(node: Path, uid: str) -> Path:
    """Where the directory of a pod is now: the node moves it when the Pod object has been deleted."""
    pod = node / "pods" / uid
    return pod if pod.exists() else node / "removed" / uid


def find_log(node: Path, uid: str, container: str, run: int) -> Path:
    return find_pod(node, uid) / "logs" / container / f"{run}.log"


def container_status(directory: Path, container: str) -> ContainerStatus | None:
    """What the supervisor has last written about a container of the pod in this directory."""
    state = read_state(str(directory))
    statuses = [*state["initContainers"], *state["containers"]] if state is not None else []
    return next((status for status in statuses if status["name"] == container), None)


def run_has_ended(directory: Path, container: str, run: int) -> bool:
    status = container_status(directory, container)
    return status is None or "running" not in status["state"] or int(status["restarts"]) > run


@dataclass
class _OpenFile:
    descriptor: int
    offset: int = 0
    gap: str = ""
    """What is missing before it, if rotation deleted files that were not read."""

    @property
    def size(self) -> int:
        return os.fstat(self.descriptor).st_size


class LogFiles:
    """A position in the files of one log. Files stay open until they are read, so that rotation removes nothing unread.

    `locate` returns the path of the current file; it is called again whenever files are opened. `notes_gaps`: `read`
    adds a record where rotation deleted records before they were read.
    """

    def __init__(self, locate: Callable[[], Path], *, notes_gaps: bool = False) -> None:
        self._locate = locate
        self._notes_gaps = notes_gaps
        self._files: list[_OpenFile] = []

    @property
    def exists(self) -> bool:
        return bool(self._files) or any(path.exists() for path in _paths(self._locate()))

    def read(self) -> Iterator[bytes]:
        """The records that were written since the last call, in pieces of whole records."""
        self._open_newer()
        while self._files:
            file = self._files[0]
            while data := _whole_records(os.pread(file.descriptor, _BLOCK, file.offset)):
                if file.gap and self._notes_gaps:
                    yield b"%b stdout F [%b]\n" % (data.partition(b" ")[0], file.gap.encode())
                file.gap = ""
                file.offset += len(data)
                yield data
            if len(self._files) == 1:
                return
            os.close(self._files.pop(0).descriptor)

    def skip_to_tail(self, size: int) -> None:
        """The next call of `read` begins at the first record within the last `size` bytes."""
        self._open_newer()
        left = size
        for file in reversed(self._files):
            length = file.size
            if length > left:
                # From the byte before, so that a record that begins just there is whole.
                start = length - left - 1
                data = os.pread(file.descriptor, _BLOCK, start)
                file.offset = max(file.offset, start + data.find(b"\n") + 1)
                file.gap = ""
            left = max(0, left - length)

    def skip_to_last_lines(self, lines: int) -> Iterator[None]:
        """Continues at the last `lines` lines of the container, before the first `read`. To be iterated to its end: the
        caller can do something else after every step.

        Searched from the end, because logs are long and tails are short. A line that the container has not ended
        counts. Of a line during which another stream ended lines, only the rest may be read.
        """
        self._open_newer()
        streams: set[bytes] = set()
        for number, file in reversed(list(enumerate(self._files))):
            for count, (end, record) in enumerate(_records_backwards(file)):
                if count % _STEP_RECORDS == 0:
                    yield
                _, stream, tag = (*record.split(b" ", 3), b"", b"")[:3]
                if tag == b"F" or stream not in streams:  # the end of a line, or of what there is of it
                    if lines <= 0:
                        file.offset = end
                        _close(self._files[:number])
                        del self._files[:number]
                        return
                    lines -= 1
                streams.add(stream)

    def close(self) -> None:
        _close(self._files)
        self._files = []

    def _open_newer(self) -> None:
        """Opens the files after the last open one; all files if rotation has removed that one."""
        if self._files and _is_file(self._locate(), self._files[-1]):
            return
        found = _open_all(self._locate)
        last = self._files[-1] if self._files else None
        known = next((at for at, file in enumerate(found) if last and _same(file, last)), -1)
        _close(found[: known + 1])
        if found and known < 0:
            found[0].gap = self._gap(last)
        self._files += found[known + 1 :]

    def _gap(self, last: _OpenFile | None) -> str:
        if last is not None:
            return "a part of the log is missing here: it was rotated away before it was read"
        dropped = dropped_bytes(str(self._locate()))
        return f"the first {dropped} bytes of the log are missing: they were rotated away" if dropped else ""


def _records_backwards(file: _OpenFile) -> Iterator[tuple[int, bytes]]:
    """Each record with the offset after it, the last one first."""
    start = max(0, file.size - _BLOCK)
    end = start + len(_whole_records(os.pread(file.descriptor, _BLOCK, start)))
    start, beginning = end, b""
    while start > 0:
        size = min(_BLOCK, start)
        start -= size
        records = (os.pread(file.descriptor, size, start) + beginning)[:-1].split(b"\n")
        beginning = records.pop(0) + b"\n" if start > 0 else b""
        for record in reversed(records):
            yield end, record
            end -= len(record) + 1


def _whole_records(data: bytes) -> bytes:
    """Without the beginning of a record that is still being written: on a full disk it is taken back."""
    return data[: data.rfind(b"\n") + 1]


def _open_all(locate: Callable[[], Path]) -> list[_OpenFile]:
    """The files of a log, the oldest first; none if there is no log.

    They are opened from the newest to the oldest, the direction of a rotation: a file that is renamed meanwhile may be
    opened twice, but is never missed.
    """
    while True:
        path = locate()
        files: list[_OpenFile] = []
        for place in _paths(path):
            with suppress(FileNotFoundError):
                files.insert(0, _OpenFile(os.open(place, os.O_RDONLY | os.O_CLOEXEC)))
                if any(_same(files[0], other) for other in files[1:]):
                    os.close(files.pop(0).descriptor)
        newest = next((place for place in _paths(path) if place.exists()), None)
        unchanged = _is_file(newest, files[-1]) if newest and files else not newest and not files
        if unchanged and locate() == path:
            return files
        _close(files)  # rotated, moved or removed meanwhile


def _paths(path: Path) -> list[Path]:
    """Paths of the files of a log, the newest first; some may not exist."""
    return [path, *map(Path, rotated_names(str(path)))]


def _is_file(path: Path, file: _OpenFile) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.descriptor))
    except FileNotFoundError:
        return False


def _same(one: _OpenFile, other: _OpenFile) -> bool:
    return os.path.sameopenfile(one.descriptor, other.descriptor)


def _close(files: list[_OpenFile]) -> None:
    for file in files:
        os.close(file.descriptor)
