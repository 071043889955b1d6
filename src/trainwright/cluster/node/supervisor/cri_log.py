"""Container output in the line format of the Container Runtime Interface, written by supervisors and read by `logs`.

`2026-11-15T04:05:06.123456789Z stdout F text`: F ends a line, P is a piece of one. Standard library only.
"""

import os

from trainwright.cluster.node.supervisor.files import NO_ROOM

LONGEST_PIECE = 16 * 1024
"""A line is cut into pieces of this size, as container runtimes do."""

LIMIT = 10 * 1024 * 1024
"""Bytes after which a log goes on in a fresh file, as of the kubelet (containerLogMaxSize)."""

ROTATED = 4
"""How many full files are kept besides the one that is written (the kubelet's containerLogMaxFiles is 5)."""

_CHUNK = 64 * 1024
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class Lines:
    """Cuts a stream of bytes into log lines; what has no line end yet is kept back until it has, or is too long."""

    def __init__(self, stream: str) -> None:
        self._stream = stream.encode()
        self._rest = b""

    def feed(self, data: bytes, stamp: str) -> bytes:
        head = stamp.encode() + b" " + self._stream
        *lines, self._rest = (self._rest + data).split(b"\n")
        written = []
        for line in lines:
            *pieces, last = _pieces(line)
            written += [b"%b P %b\n" % (head, piece) for piece in pieces]
            written.append(b"%b F %b\n" % (head, last))
        while len(self._rest) >= LONGEST_PIECE:
            written.append(b"%b P %b\n" % (head, self._rest[:LONGEST_PIECE]))
            self._rest = self._rest[LONGEST_PIECE:]
        return b"".join(written)

    def finish(self, stamp: str) -> bytes:
        """What is left at the end of the stream: a last line without its end."""
        rest, self._rest = self._rest, b""
        return b"%b %b P %b\n" % (stamp.encode(), self._stream, rest) if rest else b""


class LogFile:
    """The log of one run of a container. A full file becomes `PATH.1`, the one before it `PATH.2`, and so on."""

    def __init__(self, path: str, *, limit: int = LIMIT) -> None:
        self._path = path
        self._limit = limit
        self.descriptor = os.open(path, _APPEND, 0o600)
        self._size = os.fstat(self.descriptor).st_size

    def write(self, lines: bytes) -> int:
        """How many bytes of these lines are in the log: all, or as many whole lines as the disk had room for."""
        written = 0
        try:
            while written < len(lines):
                if self._size >= self._limit:
                    self._rotate()
                full = lines.find(b"\n", written + self._limit - self._size - 1) + 1
                part = lines[written : full or len(lines)]
                write_all(self.descriptor, part)
                self._size += len(part)
                written += len(part)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
        return written

    def close(self) -> None:
        os.close(self.descriptor)

    def _rotate(self) -> None:
        # First what may fail for want of room: then nothing has moved, and the next write tries again.
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
        for age in range(ROTATED, 0, -1):
            try:
                os.rename(names[age - 1], names[age])
            except FileNotFoundError:
                pass  # there are not that many yet


def rotated_names(path: str) -> list[str]:
    """Where the full files of a log are, the newest first."""
    return [f"{path}.{age}" for age in range(1, ROTATED + 1)]


def remove_log(path: str) -> None:
    for name in (path, f"{path}.new", *rotated_names(path)):
        try:
            os.unlink(name)
        except FileNotFoundError:
            pass


class Pipe:
    """One of a container's two streams: the end that the supervisor reads, and the log that it goes to."""

    def __init__(self, reader: int, log: LogFile, stream: str) -> None:
        os.set_blocking(reader, False)
        self.reader = reader
        self._log = log
        self._stream = stream
        self._lines = Lines(stream)
        self._lost = 0

    def pump(self, stamp: str) -> bool:
        """Moves what has come; False when the stream has ended."""
        try:
            data = os.read(self.reader, _CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        self._write(self._lines.feed(data, stamp), stamp)
        return True

    def close(self, stamp: str) -> None:
        """Takes what is still in the pipe, then closes it."""
        while True:
            try:
                data = os.read(self.reader, _CHUNK)
            except BlockingIOError:
                break
            if not data:
                break
            self._write(self._lines.feed(data, stamp), stamp)
        self._write(self._lines.finish(stamp), stamp)
        os.close(self.reader)

    def _write(self, data: bytes, stamp: str) -> None:
        """A full disk costs the log some lines, which it says as soon as it can; the program goes on."""
        if not data:
            return
        note = f"[{self._lost} bytes of the log are missing here: the disk was full]"
        told = f"{stamp} {self._stream} F {note}\n".encode() if self._lost else b""
        missing = len(told + data) - self._log.write(told + data)
        self._lost = missing if missing <= len(data) else self._lost + len(data)


def write_all(descriptor: int, data: bytes) -> None:
    """All of it, or nothing of it and an OSError: half a line would spoil the next."""
    view, written = memoryview(data), 0
    try:
        while view[written:]:
            written += os.write(descriptor, view[written:])
    except OSError:
        if written:
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise


def _pieces(line: bytes) -> list[bytes]:
    return [line[start : start + LONGEST_PIECE] for start in range(0, max(len(line), 1), LONGEST_PIECE)]
