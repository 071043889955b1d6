"""Container logs in the format of the Container Runtime Interface (CRI); supervisors write them.

`2026-11-15T04:05:06.123456789Z stdout F text`: F tags a full line or the end of one, P a partial line.
Standard library only.
"""

import errno
import os

from trainwright.cluster.node.supervisor.containers.container_status import MAX_RUNS
from trainwright.cluster.node.supervisor.containers.pacing import OutputPacer
from trainwright.cluster.node.supervisor.files import DISK_FULL, remove_file

MAX_LINE_BYTES = 16 * 1024
"""A longer line is written as several partial ones, as container runtimes do."""

MAX_LOG_BYTES = 10 * 1024 * 1024
"""A log file of this size is rotated (the kubelet's containerLogMaxSize)."""

MAX_ROTATED_FILES = 4
"""Rotated files that are kept besides the current one (the kubelet's containerLogMaxFiles is 5)."""

MAX_RUNS_BYTES = 100 * 1024 * 1024
"""Logs of earlier runs of a container that are kept, at least that of the last one (`kubectl logs --previous`)."""

FLUSH_SECONDS = 0.2
"""An incomplete line is written after this time: a progress bar can be followed, and one that a program rewrites a
thousand times per second is written as five partial lines per second."""

_CHUNK = 64 * 1024
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class LineFormatter:
    """Cuts a stream of bytes into log lines; keeps an incomplete line back until it ends, is too long or is flushed."""

    def __init__(self, stream: str) -> None:
        self._stream = stream.encode()
        self._rest = b""

    @property
    def has_incomplete_line(self) -> bool:
        return bool(self._rest)

    def feed(self, data: bytes, stamp: str) -> bytes:
        head = stamp.encode() + b" " + self._stream
        *lines, self._rest = (self._rest + data).split(b"\n")
        written = []
        for line in lines:
            *pieces, last = _pieces(line)
            written += [b"%b P %b\n" % (head, piece) for piece in pieces]
            written.append(b"%b F %b\n" % (head, last))
        while len(self._rest) >= MAX_LINE_BYTES:
            written.append(b"%b P %b\n" % (head, self._rest[:MAX_LINE_BYTES]))
            self._rest = self._rest[MAX_LINE_BYTES:]
        return b"".join(written)

    def flush(self, stamp: str) -> bytes:
        """What there is of an incomplete line, as a partial one."""
        rest, self._rest = self._rest, b""
        return b"%b %b P %b\n" % (stamp.encode(), self._stream, rest) if rest else b""


class LogFile:
    """The log of one run of a container. Rotation renames it to `PATH.1`, `PATH.1` to `PATH.2`, and so on."""

    def __init__(self, path: str, *, limit: int = MAX_LOG_BYTES) -> None:
        self._path = path
        self._limit = limit
        self.descriptor = os.open(path, _APPEND, 0o600)
        self._size = os.fstat(self.descriptor).st_size

    def write(self, lines: bytes) -> int:
        """Returns how many bytes were written: all, or as many whole lines as fit on the disk."""
        written = 0
        try:
            while written < len(lines):
                if self._size >= self._limit:
                    self._rotate()
                full = lines.find(b"\n", written + self._limit - self._size - 1) + 1
                part = lines[written : full or len(lines)]
                size = _write_records(self.descriptor, part)
                self._size += size
                written += size
                if size < len(part):
                    break
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
        return written

    def close(self) -> None:
        os.close(self.descriptor)

    def _rotate(self) -> None:
        # First what may fail on a full disk: nothing has been renamed then, and the next write tries again.
        fresh = os.open(f"{self._path}.new", _APPEND | os.O_TRUNC, 0o600)
        try:
            self._shift()
            os.rename(f"{self._path}.new", self._path)
        except OSError:
            os.close(fresh)
            raise
        os.close(self.descriptor)
        self.descriptor, self._size = fresh, 0

    def _shift(self) -> None:
        names = [self._path, *rotated_names(self._path)]
        _count_dropped(self._path, names[-1])
        for age in range(MAX_ROTATED_FILES, 0, -1):
            try:
                os.rename(names[age - 1], names[age])
            except FileNotFoundError:
                pass  # not that many rotations yet


def rotated_names(path: str) -> list[str]:
    """Paths of the rotated files, newest first."""
    return [f"{path}.{age}" for age in range(1, MAX_ROTATED_FILES + 1)]


def dropped_bytes(path: str) -> int:
    """How much of the beginning of a log rotation has deleted."""
    try:
        with open(_dropped(path), encoding="ascii") as file:
            return int(file.read() or 0)
    except (FileNotFoundError, ValueError):
        return 0


def _count_dropped(path: str, oldest: str) -> None:
    """Before a rotation that deletes the oldest file: readers that come too late for it can say so."""
    try:
        total = dropped_bytes(path) + os.stat(oldest).st_size
        with open(_dropped(path), "w", encoding="ascii") as file:
            file.write(str(total))
    except OSError:
        pass  # not that many rotations yet, or the disk is full


def _dropped(path: str) -> str:
    return f"{path}.dropped"


def remove_old_logs(directory: str, next_run: int) -> None:
    """Before a run: removes the logs of the oldest runs of the container if those of all runs are too many or too
    big."""
    sizes: dict[int, int] = {}
    for name in os.listdir(directory):
        run = int(name.partition(".")[0])
        sizes[run] = sizes.get(run, 0) + os.stat(os.path.join(directory, name)).st_size
    kept = total = 0
    for run in sorted(sizes, reverse=True):
        kept, total = kept + 1, total + sizes[run]
        if run < next_run - 1 and (kept > MAX_RUNS or total > MAX_RUNS_BYTES):
            _remove_log(os.path.join(directory, f"{run}.log"))


def _remove_log(path: str) -> None:
    for name in (path, f"{path}.new", _dropped(path), *rotated_names(path)):
        remove_file(name)


class LogPipe:
    """Copies one output stream of a container from its pipe into the log."""

    def __init__(
        self, reader: int, log: LogFile, stream: str, pacer: OutputPacer, *, interactive: bool = False
    ) -> None:
        """`interactive`: incomplete lines, such as prompts, are written at once."""
        os.set_blocking(reader, False)
        self._flush_seconds = 0.0 if interactive else FLUSH_SECONDS
        self.reader = reader
        self._pacer = pacer
        self._log = log
        self._stream = stream
        self._lines = LineFormatter(stream)
        self._missing = 0
        self.flush_at: float | None = None
        """When to call `flush`, in monotonic seconds; None if all output has been written."""

    @property
    def drops_output(self) -> bool:
        """True while the disk is full."""
        return self._missing > 0

    def copy(self, stamp: str, now: float) -> bool:
        """Copies the available output; False at the end of the stream. `now` is in monotonic seconds."""
        try:
            data = _read(self.reader)
        except BlockingIOError:
            return True
        if not data:
            return False
        self._pacer.count(data.count(b"\n"), len(data), now)
        self._write(self._lines.feed(data, stamp), stamp)
        if not self._lines.has_incomplete_line:
            self.flush_at = None
        elif self.flush_at is None:
            self.flush_at = now + self._flush_seconds
        return True

    def flush(self, stamp: str) -> None:
        """Writes an incomplete line, for example a progress bar, which ends only after minutes."""
        self.flush_at = None
        self._write(self._lines.flush(stamp), stamp)

    def close(self, stamp: str) -> None:
        """Copies what is left in the pipe, then closes it."""
        while True:
            try:
                data = _read(self.reader)
            except BlockingIOError:
                break
            if not data:
                break
            self._write(self._lines.feed(data, stamp), stamp)
        self.flush(stamp)
        os.close(self.reader)

    def _write(self, data: bytes, stamp: str) -> None:
        """A full disk never blocks the program: lines are dropped, and the log says so as soon as it can."""
        if not data:
            return
        text = f"[{self._missing} bytes of the log are missing here: the disk was full]"
        gap = f"{stamp} {self._stream} F {text}\n".encode() if self._missing else b""
        missing = len(gap + data) - self._log.write(gap + data)
        self._missing = missing if missing <= len(data) else self._missing + len(data)


def _read(reader: int) -> bytes:
    try:
        return os.read(reader, _CHUNK)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""  # a terminal that no process has open any more


def _write_records(descriptor: int, records: bytes) -> int:
    """Returns how many bytes were written: all, or as many whole records as fit on the disk."""
    view, written = memoryview(records), 0
    try:
        while written < len(records):
            written += os.write(descriptor, view[written:])
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        # Half a record would corrupt the next one. Whole ones may have been read already, so they stay.
        whole = records.rfind(b"\n", 0, written) + 1
        if whole < written:
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - (written - whole))
        return whole
    return written


def _pieces(line: bytes) -> list[bytes]:
    return [line[start : start + MAX_LINE_BYTES] for start in range(0, max(len(line), 1), MAX_LINE_BYTES)]
