"""The tar stream of a layer without the contents of its files.

With the unpacked files it gives the same stream again, byte for byte, whatever this machine could not keep of owners
and times, and whichever version of Python made it. containers/storage, which podman uses, calls this tar-split.

The format, compressed with gzip: `b`, a length (32 bits) and that many bytes of the stream; `f`, a length, the name of
a file and the size of its content (64 bits); `e` at the end.
"""

import gzip
import os
import struct
import zlib
from collections.abc import Iterator
from typing import IO, Protocol

_LENGTH = struct.Struct("<L")
_SIZE = struct.Struct("<Q")
_CHUNK = 1 << 20
_LONGEST = 2 * _CHUNK
"""A larger length is not believed."""
_BYTES, _FILE, _END = b"b", b"f", b"e"


class Output(Protocol):
    def write(self, data: bytes, /) -> object: ...


class TarSplitError(Exception):
    """The files are not those of which the record was made, or the record is damaged."""


class TarSplitWriter:
    def __init__(self, output: Output) -> None:
        self._output = output
        self._compressor = zlib.compressobj(1, zlib.DEFLATED, 31)
        self._bytes = bytearray()

    def add_bytes(self, data: bytes) -> None:
        """Bytes of the stream that are in no file."""
        self._bytes += data
        if len(self._bytes) >= _CHUNK:
            self._end_bytes()

    def add_file(self, name: str, size: int) -> None:
        """The content of a file, by its path in the layer."""
        self._end_bytes()
        encoded = os.fsencode(name)
        self._write(_FILE + _LENGTH.pack(len(encoded)) + encoded + _SIZE.pack(size))

    def close(self) -> None:
        self._end_bytes()
        self._write(_END)
        self._output.write(self._compressor.flush())

    def _end_bytes(self) -> None:
        for start in range(0, len(self._bytes), _CHUNK):
            piece = self._bytes[start : start + _CHUNK]
            self._write(_BYTES + _LENGTH.pack(len(piece)) + piece)
        self._bytes.clear()

    def _write(self, data: bytes | bytearray) -> None:
        if compressed := self._compressor.compress(data):
            self._output.write(compressed)


def read_tar(record: IO[bytes], directory: str) -> Iterator[bytes]:
    """The stream, with the files in the directory. The reader compares its digest. Raises TarSplitError."""
    try:
        with gzip.open(record) as source:
            while (kind := _read(source, 1)) != _END:
                if kind == _BYTES:
                    yield _read(source, _length(source))
                elif kind == _FILE:
                    name = os.fsdecode(_read(source, _length(source)))
                    (size,) = _SIZE.unpack(_read(source, _SIZE.size))
                    yield from _content(directory, name, size)
                else:
                    raise EOFError(f"{kind!r} is no kind of entry")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TarSplitError(f"the record of the layer is damaged: {error}") from error


def _length(source: gzip.GzipFile) -> int:
    (length,) = _LENGTH.unpack(_read(source, _LENGTH.size))
    if length > _LONGEST:
        raise EOFError(f"a length of {length} bytes")
    return int(length)


def _read(source: gzip.GzipFile, count: int) -> bytes:
    data = source.read(count)
    if len(data) < count:
        raise EOFError("it ends too early")
    return data


def _content(directory: str, name: str, size: int) -> Iterator[bytes]:
    try:
        descriptor = os.open(f"{directory}/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise TarSplitError(f"/{name}: {error.strerror}") from error
    try:
        if os.fstat(descriptor).st_size != size:
            raise TarSplitError(f"/{name} was changed")
        left = size
        while left:
            data = os.read(descriptor, min(left, _CHUNK))
            if not data:
                raise TarSplitError(f"/{name} was changed")
            left -= len(data)
            yield data
    finally:
        os.close(descriptor)
