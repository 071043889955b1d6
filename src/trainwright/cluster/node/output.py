"""Container output in the line format of the Container Runtime Interface, written by supervisors and read by `logs`.

`2026-11-15T04:05:06.123456789Z stdout F text`: F ends a line, P is a piece of one. Standard library only.
"""

import os

LONGEST_PIECE = 16 * 1024
"""A line is cut into pieces of this size, as container runtimes do."""

_CHUNK = 64 * 1024


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


class Pipe:
    """One of a container's two streams: the end that the supervisor reads, and the log that it goes to."""

    def __init__(self, reader: int, log: int, stream: str) -> None:
        os.set_blocking(reader, False)
        self.reader = reader
        self._log = log
        self._lines = Lines(stream)

    def pump(self, stamp: str) -> bool:
        """Moves what has come; False when the stream has ended."""
        try:
            data = os.read(self.reader, _CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        write_all(self._log, self._lines.feed(data, stamp))
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
            write_all(self._log, self._lines.feed(data, stamp))
        write_all(self._log, self._lines.finish(stamp))
        os.close(self.reader)


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _pieces(line: bytes) -> list[bytes]:
    return [line[start : start + LONGEST_PIECE] for start in range(0, max(len(line), 1), LONGEST_PIECE)]
