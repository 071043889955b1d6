"""The frames of SPDY/3.1 that `kubectl port-forward` uses, for a server. Sans-IO: bytes in, events and bytes out.

Neither kubectl nor kubelet uses windows: the transport alone limits how much is in flight.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_VERSION = 0x8003
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _HEADERS, _WINDOW_UPDATE = 1, 2, 3, 4, 6, 7, 8, 9
_FIN = 0x01
_PROTOCOL_ERROR = 1

MAX_FRAME_BYTES = 1 << 20
_MAX_HEADER_BYTES = 64 * 1024
_MAX_HEADERS = 100
_PIECE = 32 * 1024

_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age "
    "allow authorization cache-control connection content-base content-encoding content-language content-length "
    "content-location content-md5 content-range content-type date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status"
)
_MORE_WORDS = ["200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin"]
_TEXT = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized"
    "403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
    "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _with_length(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


HEADER_DICTIONARY = b"".join(_with_length(word.encode()) for word in (*_WORDS.split(), *_MORE_WORDS)) + _TEXT.encode()
"""The preset dictionary of all header blocks (SPDY/3, section 2.6.10.1)."""


class SpdyError(Exception):
    """The peer violates the protocol; the connection has to be closed."""


@dataclass(frozen=True, slots=True)
class StreamOpened:
    stream: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DataReceived:
    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class StreamFinished:
    """The peer sends no more data on this stream."""

    stream: int


@dataclass(frozen=True, slots=True)
class StreamReset:
    stream: int


@dataclass(frozen=True, slots=True)
class GoingAway:
    """The peer opens no more streams."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Bytes that the caller has to send."""

    data: bytes


Event = StreamOpened | DataReceived | StreamFinished | StreamReset | GoingAway | Reply


class SpdyConnection:
    """The server's side of one connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=HEADER_DICTIONARY)
        self._deflate = zlib.compressobj(zdict=HEADER_DICTIONARY)

    def feed(self, data: bytes) -> Iterator[Event]:
        """The events in the bytes received so far. The caller takes them all before the next call."""
        self._buffer += data
        while len(self._buffer) >= 8:
            first, second = struct.unpack_from(">II", self._buffer)
            length = second & 0xFFFFFF
            if length > MAX_FRAME_BYTES:
                raise SpdyError(f"a frame of {length} bytes: the limit is {MAX_FRAME_BYTES}")
            if len(self._buffer) < 8 + length:
                return
            payload = bytes(self._buffer[8 : 8 + length])
            del self._buffer[: 8 + length]
            flags = second >> 24
            if first >> 31:
                yield from self._control_frame(first, flags, payload)
            else:
                if payload:
                    yield DataReceived(first, payload)
                if flags & _FIN:
                    yield StreamFinished(first)

    def reply(self, stream: int) -> bytes:
        """Accepts a stream."""
        block = self._deflate.compress(struct.pack(">I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return _control(_SYN_REPLY, struct.pack(">I", stream) + block)

    def data(self, stream: int, data: bytes, *, finish: bool = False) -> bytes:
        pieces = [data[start : start + _PIECE] for start in range(0, len(data), _PIECE)] or [b""]
        last = len(pieces) - 1
        return b"".join(
            struct.pack(">II", stream, (_FIN << 24 if finish and index == last else 0) | len(piece)) + piece
            for index, piece in enumerate(pieces)
        )

    def reset(self, stream: int) -> bytes:
        return _control(_RST_STREAM, struct.pack(">II", stream, _PROTOCOL_ERROR))

    def _control_frame(self, first: int, flags: int, payload: bytes) -> Iterator[Event]:
        if first >> 16 != _VERSION:
            raise SpdyError(f"version {(first >> 16) & 0x7FFF} of SPDY: only 3.1 is served")
        kind = first & 0xFFFF
        if kind == _PING:
            yield Reply(_control(_PING, payload))
        elif kind == _GOAWAY:
            yield GoingAway()
        elif kind in {_SYN_STREAM, _SYN_REPLY, _HEADERS, _RST_STREAM}:
            head = 10 if kind == _SYN_STREAM else 4
            if len(payload) < head:
                raise SpdyError("a truncated control frame")
            stream = struct.unpack_from(">I", payload)[0] & 0x7FFFFFFF
            if kind == _RST_STREAM:
                yield StreamReset(stream)
                return
            headers = self._headers(payload[head:])  # all blocks share the state of the decompressor
            if kind == _SYN_STREAM:
                yield StreamOpened(stream, headers)
            if flags & _FIN:
                yield StreamFinished(stream)
        elif kind not in {_SETTINGS, _WINDOW_UPDATE}:
            raise SpdyError(f"a control frame of type {kind}")

    def _headers(self, block: bytes) -> dict[str, str]:
        try:
            plain = self._inflate.decompress(block, _MAX_HEADER_BYTES)
        except zlib.error as error:
            raise SpdyError(f"malformed headers: {error}") from error
        if self._inflate.unconsumed_tail:
            raise SpdyError(f"headers of more than {_MAX_HEADER_BYTES} bytes")
        try:
            return _read_headers(plain)
        except struct.error as error:
            raise SpdyError("truncated headers") from error


def _read_headers(plain: bytes) -> dict[str, str]:
    (count,) = struct.unpack_from(">I", plain)
    if count > _MAX_HEADERS:
        raise SpdyError(f"{count} headers: the limit is {_MAX_HEADERS}")
    texts, at = [], 4
    for _ in range(2 * count):
        (length,) = struct.unpack_from(">I", plain, at)
        texts.append(plain[at + 4 : at + 4 + length].decode(errors="replace"))
        at += 4 + length
    return {name.lower(): value for name, value in zip(texts[::2], texts[1::2], strict=True)}


def _control(kind: int, payload: bytes) -> bytes:
    return struct.pack(">HHI", _VERSION, kind, len(payload)) + payload
