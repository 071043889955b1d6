"""The bytes of a layer: gzip, zstd or neither, recognized by content. Streams, in bounded memory."""

import ctypes
import ctypes.util
import functools
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

CHUNK = 256 * 1024
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_MAX_WINDOW_LOG = 26
"""64 MiB: what zstd uses up to level 22 without --long=27 or more."""
_WINDOW_LOG_MAX = 100


class DecompressionError(Exception):
    """The compressed data is broken, or needs what this machine does not have."""


def decompress(stream: BinaryIO) -> Iterator[bytes]:
    """Chunks of at most a few hundred kilobytes."""
    head = stream.read(4)
    rest = _chunks(stream, head)
    if head.startswith(_GZIP):
        return _gunzip(rest)
    if head == _ZSTD or (len(head) == 4 and int.from_bytes(head, "little") in _ZSTD_SKIPPABLE):
        return _unzstd(rest)
    return rest


def _chunks(stream: BinaryIO, head: bytes) -> Iterator[bytes]:
    if head:
        yield head
    while chunk := stream.read(CHUNK):
        yield chunk


def _gunzip(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """All members, as gzip does; zeros after the last one are padding."""
    member = None
    for chunk in chunks:
        data = chunk
        while data:
            if member is None:
                data = data.lstrip(b"\0")
                if not data:
                    break
                member = zlib.decompressobj(wbits=31)
            try:
                yield member.decompress(data, CHUNK)
            except zlib.error as error:
                raise DecompressionError(f"broken gzip data: {error}") from error
            if member.eof:
                data, member = member.unused_data, None
            else:
                data = member.unconsumed_tail
    while member is not None and not member.eof:
        if not (data := member.decompress(b"", CHUNK)):
            break
        yield data
    if member is not None and not member.eof:
        raise DecompressionError("the gzip data is truncated")


class _Buffer(ctypes.Structure):
    """ZSTD_inBuffer and ZSTD_outBuffer."""

    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("position", ctypes.c_size_t))


@functools.cache
def _zstd() -> Any:
    name = ctypes.util.find_library("zstd") or "libzstd.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError:
        raise DecompressionError("the layer is compressed with zstd: install the library libzstd (libzstd1)") from None
    library.ZSTD_createDStream.restype = ctypes.c_void_p
    library.ZSTD_freeDStream.argtypes = [ctypes.c_void_p]
    library.ZSTD_DCtx_setParameter.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    library.ZSTD_DCtx_setParameter.restype = ctypes.c_size_t
    library.ZSTD_decompressStream.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Buffer), ctypes.POINTER(_Buffer)]
    library.ZSTD_decompressStream.restype = ctypes.c_size_t
    library.ZSTD_isError.argtypes = [ctypes.c_size_t]
    library.ZSTD_getErrorName.argtypes = [ctypes.c_size_t]
    library.ZSTD_getErrorName.restype = ctypes.c_char_p
    return library


def _unzstd(chunks: Iterator[bytes]) -> Iterator[bytes]:
    library = _zstd()
    stream = library.ZSTD_createDStream()
    target = ctypes.create_string_buffer(CHUNK)
    left = 0
    try:
        library.ZSTD_DCtx_setParameter(stream, _WINDOW_LOG_MAX, _MAX_WINDOW_LOG)
        for chunk in chunks:
            source = ctypes.create_string_buffer(chunk, len(chunk))
            reader = _Buffer(ctypes.cast(source, ctypes.c_void_p), len(chunk), 0)
            full = False
            while reader.position < reader.size or full:
                writer = _Buffer(ctypes.cast(target, ctypes.c_void_p), CHUNK, 0)
                left = library.ZSTD_decompressStream(stream, ctypes.byref(writer), ctypes.byref(reader))
                if library.ZSTD_isError(left):
                    name = library.ZSTD_getErrorName(left).decode(errors="replace")
                    raise DecompressionError(f"broken zstd data: {name}")
                full = writer.position == CHUNK
                yield target.raw[: writer.position]
    finally:
        library.ZSTD_freeDStream(stream)
    if left:
        raise DecompressionError("the zstd data is truncated")
