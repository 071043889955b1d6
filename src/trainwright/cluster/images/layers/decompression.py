"""The bytes of a layer: gzip, zstd or neither, recognized by content. Streams, in bounded memory."""

import zlib
from collections.abc import Iterator
from typing import BinaryIO

CHUNK = 256 * 1024
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_MAX_WINDOW = 64 << 20
"""What zstd uses up to level 22 without --long=27 or more."""
_ZSTD_PIECE = 1024
"""Decompressed at a time: four bytes of a frame can become 128 KiB, so a piece has at most 32 MiB."""


class DecompressionError(Exception):
    """The compressed data is broken."""


def decompress(stream: BinaryIO) -> Iterator[bytes]:
    """Chunks of a few kilobytes; those of hostile data have at most 32 MiB."""
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


def _unzstd(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """All frames, as zstd does."""
    import zstandard  # few layers need it

    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
    frame = None
    for chunk in chunks:
        for at in range(0, len(chunk), _ZSTD_PIECE):
            data = chunk[at : at + _ZSTD_PIECE]
            while data:
                frame = frame or decompressor.decompressobj()
                try:
                    yield frame.decompress(data)
                except zstandard.ZstdError as error:
                    raise DecompressionError(f"broken zstd data: {error}") from error
                data = frame.unused_data
                if frame.eof:
                    frame = None
    if frame is not None:
        raise DecompressionError("the zstd data is truncated")
