"""Reads a tar archive once, from its beginning to its end: ustar, GNU's long names, pax headers with extended
attributes.

tarfile keeps every member in memory and follows what headers say about other members; an archive from a registry may
be hostile.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

_BLOCK = 512
_MAX_HEADER_BYTES = 1 << 20
"""The most bytes of a long name or of pax records."""
_XATTR = "SCHILY.xattr."


class TarError(Exception):
    """Not an archive that can be read; the message names the cause."""


@dataclass(slots=True)
class TarEntry:
    name: bytes
    type: bytes
    """In the header: `0` file, `1` hard link, `2` symbolic link, `3` and `4` devices, `5` directory, `6` pipe."""
    mode: int = 0o644
    user: int = 0
    group: int = 0
    size: int = 0
    mtime_ns: int = 0
    link: bytes = b""
    device: tuple[int, int] = (0, 0)
    xattrs: dict[str, bytes] = field(default_factory=dict)


class TarStream:
    """Iterates over the entries; `data` is to be read, or left out, before the next one."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._buffer = memoryview(b"")
        self._left = 0
        """Bytes of the present entry, with padding, that have not been read."""
        self._data = 0
        self._pax_of_all: dict[str, bytes] = {}

    def __iter__(self) -> Iterator[TarEntry]:
        while (entry := self._next()) is not None:
            yield entry
        self._skip_rest()

    def data(self) -> Iterator[memoryview]:
        """The content of the present entry."""
        while self._data:
            piece = self._take(min(self._data, 1 << 20))
            if not piece:
                raise TarError("the archive is truncated")
            self._data -= len(piece)
            self._left -= len(piece)
            yield piece

    def _next(self) -> TarEntry | None:
        pax: dict[str, bytes] = {}
        name = link = None
        while True:
            self._skip(self._left)
            header = self._header()
            if header is None:
                if pax or name is not None or link is not None:
                    raise TarError("the archive ends after a header that belongs to the next entry")
                return None
            entry = _parse(header)
            if entry.type in {b"L", b"K", b"x", b"g"}:
                content = self._exactly(entry.size)
                self._skip(-entry.size % _BLOCK)
                if entry.type == b"L":
                    name = content.rstrip(b"\0")
                elif entry.type == b"K":
                    link = content.rstrip(b"\0")
                elif entry.type == b"x":
                    pax = _parse_pax(content)
                else:
                    self._pax_of_all |= _parse_pax(content)
                continue
            if name is not None:
                entry.name = name
            if link is not None:
                entry.link = link
            _apply_pax(entry, {**self._pax_of_all, **pax})
            if entry.type in {b"1", b"2", b"3", b"4", b"5", b"6"}:
                entry.size = 0  # tar writers put sizes there that no data follows
            self._data, self._left = entry.size, entry.size + -entry.size % _BLOCK
            return entry

    def _header(self) -> bytes | None:
        """None at the end of the archive: two blocks of zeros, or no more data."""
        block = self._up_to(_BLOCK)
        if not block:
            return None
        if len(block) < _BLOCK:
            raise TarError("the archive is truncated")
        return block if any(block) else None

    def _skip_rest(self) -> None:
        """What follows belongs to the digest of the layer."""
        self._buffer = memoryview(b"")
        for _ in self._chunks:
            pass

    def _skip(self, count: int) -> None:
        while count:
            piece = self._take(min(count, 1 << 20))
            if not piece:
                raise TarError("the archive is truncated")
            count -= len(piece)
        self._left = self._data = 0

    def _exactly(self, count: int) -> bytes:
        if count > _MAX_HEADER_BYTES:
            raise TarError(f"a header of {count} bytes: more than {_MAX_HEADER_BYTES}")
        found = self._up_to(count)
        if len(found) < count:
            raise TarError("the archive is truncated")
        return found

    def _up_to(self, count: int) -> bytes:
        if len(self._buffer) >= count:
            return bytes(self._take(count))
        parts = []
        while count and (piece := self._take(count)):
            parts.append(bytes(piece))
            count -= len(piece)
        return b"".join(parts)

    def _take(self, count: int) -> memoryview:
        """At most so many bytes, empty at the end."""
        while not self._buffer:
            chunk = next(self._chunks, None)
            if chunk is None:
                return self._buffer
            self._buffer = memoryview(chunk)
        piece, self._buffer = self._buffer[:count], self._buffer[count:]
        return piece


def _parse(header: bytes) -> TarEntry:
    try:
        expected = _number(header[148:156])
        unsigned = sum(header[:148]) + 256 + sum(header[156:])
        if expected != unsigned and expected != _signed_sum(header):
            raise TarError("not a tar archive, or damaged: the checksum of a header is wrong")
        name = _text(header[:100])
        if header[257:263] == b"ustar\0" and (prefix := _text(header[345:500])):
            name = prefix + b"/" + name
        kind = header[156:157]
        entry = TarEntry(
            name=name,
            type=b"0" if kind in {b"\0", b"7"} else kind,
            mode=_number(header[100:108]) & 0o7777,
            user=_number(header[108:116]),
            group=_number(header[116:124]),
            size=_number(header[124:136]),
            mtime_ns=_number(header[136:148]) * 1_000_000_000,
            link=_text(header[157:257]),
        )
        if entry.type in {b"3", b"4"}:
            entry.device = (_number(header[329:337]), _number(header[337:345]))
    except ValueError as error:
        raise TarError(f"not a tar archive, or damaged: {error}") from error
    if entry.size < 0:
        raise TarError("an entry has a negative size")
    if entry.type == b"0" and name.endswith(b"/"):
        entry.type = b"5"  # of archives before POSIX
    return entry


def _text(value: bytes) -> bytes:
    return value.partition(b"\0")[0]


def _number(value: bytes) -> int:
    """Octal digits, or GNU's binary form."""
    if value[0] & 0x80:
        number = int.from_bytes(value[1:], "big") | (value[0] & 0x3F) << 8 * (len(value) - 1)
        return number - (1 << 8 * len(value) - 2) if value[0] & 0x40 else number
    digits = value.partition(b"\0")[0].strip(b" \0")
    return int(digits, 8) if digits else 0


def _signed_sum(header: bytes) -> int:
    """As some old programs computed it."""
    return sum(byte - 256 if byte > 127 else byte for byte in header[:148] + b" " * 8 + header[156:])


def _parse_pax(content: bytes) -> dict[str, bytes]:
    """Records such as `30 mtime=1350244992.023960108\\n`."""
    found: dict[str, bytes] = {}
    position = 0
    while position < len(content):
        space = content.find(b" ", position, position + 20)
        length = content[position:space] if space > 0 else b""
        if not length.isdigit():
            raise TarError("a pax header is damaged")
        end = position + int(length)
        key, equals, value = content[space + 1 : end - 1].partition(b"=")
        if end <= space or end > len(content) or content[end - 1 : end] != b"\n" or not equals:
            raise TarError("a pax header is damaged")
        found[key.decode("utf-8", "surrogateescape")] = value
        position = end
    return found


def _apply_pax(entry: TarEntry, records: dict[str, bytes]) -> None:
    for key, value in records.items():
        try:
            if key == "path":
                entry.name = value
            elif key == "linkpath":
                entry.link = value
            elif key == "size":
                entry.size = int(value)
            elif key == "uid":
                entry.user = int(value)
            elif key == "gid":
                entry.group = int(value)
            elif key == "mtime":
                entry.mtime_ns = _nanoseconds(value)
            elif key.startswith(_XATTR):
                entry.xattrs[key[len(_XATTR) :]] = value
            elif key.startswith("GNU.sparse."):
                raise TarError(f"{_shown(entry.name)} is a sparse file in GNU's form, which layers do not have")
        except ValueError as error:
            raise TarError(f"a pax header is damaged: {key}") from error
    if entry.size < 0:
        raise TarError("an entry has a negative size")


def _nanoseconds(value: bytes) -> int:
    seconds, _, fraction = value.decode("ascii").partition(".")
    if fraction and not fraction.isdigit():
        raise ValueError(value)
    part = int(fraction[:9].ljust(9, "0")) if fraction else 0
    return int(seconds) * 1_000_000_000 + (-part if seconds.startswith("-") else part)


def _shown(name: bytes) -> str:
    return repr(name.decode("utf-8", "replace"))
