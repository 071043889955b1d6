"""Makes a layer of the files in a directory: a tar stream that depends on the files alone.

The stream itself is not written: its digest is, and what gives it again together with the files. The directory is the
upper one of an overlay: what it deletes from the layers below becomes a whiteout of the tar stream, as the image
specification writes them (`.wh.NAME`, `.wh..wh..opq`). One process may pack as root or inside a user namespace:
owners are those that it sees.
"""

import errno
import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.cluster.images.layers.tar_split import Output, TarSplitWriter

WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"

_BLOCK = 512
_END = bytes(2 * _BLOCK)
_CHUNK = 1 << 20
_OPAQUE_ATTRIBUTES = ("trusted.overlay.opaque", "user.overlay.opaque")
_OVERLAY_ATTRIBUTES = ("trusted.overlay.", "user.overlay.")
_UNPACKABLE = (".overlay.redirect", ".overlay.metacopy")
"""On files that are in another layer, or were renamed there; most kernels do not do that by default."""
_KEPT_ATTRIBUTES = ("user.", "security.capability")


@dataclass(frozen=True, slots=True)
class PackedLayer:
    diff_id: str
    """The digest of the uncompressed stream."""
    size: int
    """Bytes of the uncompressed stream."""
    entries: int


def pack_layer(directory: str, record: Output) -> PackedLayer:
    """Writes to `record` what `tar_split.read_tar` needs besides the files."""
    writer = _TarWriter(TarSplitWriter(record))
    for name, path, status in _walk(directory):
        writer.add(name, path, status)
    return writer.close()


def _walk(top: str) -> Iterator[tuple[str, str, os.stat_result]]:
    """Name in the layer, path and status of everything below a directory, in an order that depends on names alone."""
    pending = [("", top)]
    while pending:
        prefix, directory = pending.pop()
        with os.scandir(directory) as entries:
            found = sorted(entries, key=lambda entry: os.fsencode(entry.name))
        below = []
        for entry in found:
            name = prefix + entry.name
            status = entry.stat(follow_symlinks=False)
            yield name, entry.path, status
            if stat.S_ISDIR(status.st_mode):
                below.append((f"{name}/", entry.path))
        pending.extend(reversed(below))


class _TarWriter:
    def __init__(self, record: TarSplitWriter) -> None:
        self._record = record
        self._hash = hashlib.sha256()
        self._size = 0
        self._links: dict[tuple[int, int], str] = {}
        self._entries = 0

    def close(self) -> PackedLayer:
        self._add_bytes(_END)
        self._record.close()
        return PackedLayer(f"sha256:{self._hash.hexdigest()}", self._size, self._entries)

    def _add_bytes(self, data: bytes) -> None:
        self._record.add_bytes(data)
        self._count(data)

    def _count(self, data: bytes) -> None:
        self._hash.update(data)
        self._size += len(data)

    def add(self, name: str, path: str, status: os.stat_result) -> None:
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFCHR and status.st_rdev == 0:
            head, _, tail = name.rpartition("/")
            self._add_marker(f"{head}/{WHITEOUT}{tail}" if head else WHITEOUT + tail)
            return
        if kind == stat.S_IFSOCK:
            return  # a socket is useless without its process
        member = tarfile.TarInfo(name)
        member.mode = stat.S_IMODE(status.st_mode)
        member.uid, member.gid = status.st_uid, status.st_gid
        member.mtime = int(status.st_mtime)
        attributes = _extended_attributes(path)
        if any(key.endswith(_UNPACKABLE) for key in attributes):
            text = "overlayfs keeps its files elsewhere: load the module overlay with redirect_dir=off metacopy=off"
            raise OSError(errno.EOPNOTSUPP, f"{name}: {text}")
        member.pax_headers = {
            f"SCHILY.xattr.{key}": value.decode("utf-8", "surrogateescape")
            for key, value in sorted(attributes.items())
            if key.startswith(_KEPT_ATTRIBUTES) and not key.startswith(_OVERLAY_ATTRIBUTES)
        }
        if kind == stat.S_IFDIR:
            member.type = tarfile.DIRTYPE
        elif kind == stat.S_IFLNK:
            member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)
        elif status.st_nlink > 1 and (first := self._links.setdefault((status.st_dev, status.st_ino), name)) != name:
            member.type, member.linkname = tarfile.LNKTYPE, first
        elif kind == stat.S_IFREG:
            self._add_file(member, path, status.st_size)
            return
        elif kind == stat.S_IFIFO:
            member.type = tarfile.FIFOTYPE
        else:
            member.type = tarfile.CHRTYPE if kind == stat.S_IFCHR else tarfile.BLKTYPE
            member.devmajor, member.devminor = os.major(status.st_rdev), os.minor(status.st_rdev)
        self._add_header(member)
        if kind == stat.S_IFDIR and any(attributes.get(key) == b"y" for key in _OPAQUE_ATTRIBUTES):
            self._add_marker(f"{name}/{OPAQUE}")

    def _add_marker(self, name: str) -> None:
        member = tarfile.TarInfo(name)
        member.mode = 0
        self._add_header(member)

    def _add_header(self, member: tarfile.TarInfo) -> None:
        # The headers of extended attributes are bytes: surrogate escapes keep those that are not UTF-8.
        self._add_bytes(member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
        self._entries += 1

    def _add_file(self, member: tarfile.TarInfo, path: str, size: int) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            member.size = size
            self._add_header(member)
            self._record.add_file(member.name, size)
            left = size
            while left:
                data = os.read(descriptor, min(left, _CHUNK))
                if not data:
                    raise OSError(f"{path} became shorter while it was read")
                left -= len(data)
                self._count(data)
        finally:
            os.close(descriptor)
        if size % _BLOCK:
            self._add_bytes(bytes(_BLOCK - size % _BLOCK))


def _extended_attributes(path: str) -> dict[str, bytes]:
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError:
        return {}  # a file system without them
    return {name: os.getxattr(path, name, follow_symlinks=False) for name in names} if names else {}
