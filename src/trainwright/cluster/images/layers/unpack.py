"""Unpacks a layer into a directory in the form that overlayfs reads.

Whiteouts (`.wh.NAME`) become character devices 0/0, opaque directories get the extended attribute. No entry can lead
out of the directory: every path is opened below it by the kernel (openat2), links included. Memory is bounded.
"""

import ctypes
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO

from trainwright.cluster.images.layers.decompression import DecompressionError, decompress
from trainwright.cluster.images.layers.tar_stream import TarEntry, TarError, TarStream
from trainwright.cluster.linux.mounts import libc

MAX_ENTRIES = 4_000_000
_WHITEOUT = b".wh."
_OPAQUE = b".wh..wh..opq"
_AUFS = b".wh..wh."
_SYS_OPENAT2 = 437
_RESOLVE_IN_ROOT = 0x10
_RESOLVE_NO_MAGICLINKS = 0x02
_FREE_SHARE = 0.95
_MAX_TIMES = 200_000
"""The most directories whose times are kept: they are in memory until the end."""
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


_MAX_DEPTH = 255


class LayerError(Exception):
    """The layer cannot be unpacked; one sentence that names the entry and the cause."""


@dataclass(frozen=True, slots=True)
class UnpackedLayer:
    diff_id: str
    size: int
    """Bytes of the archive, uncompressed."""
    entries: int
    skipped_devices: tuple[str, ...] = ()
    """Devices that an ordinary user cannot make, the first few."""


def unpack_layer(
    stream: BinaryIO,
    directory: str,
    *,
    diff_id: str | None = None,
    max_bytes: int | None = None,
    max_entries: int = MAX_ENTRIES,
) -> UnpackedLayer:
    """Unpacks into an existing, empty directory. `diff_id` is what the uncompressed archive must be.

    At most `max_bytes` are written, by default what is free on the disk: a small archive may unpack to terabytes.
    """
    limit = int(shutil.disk_usage(directory).free * _FREE_SHARE) if max_bytes is None else max_bytes
    chunks = _Digested(decompress(stream), limit)
    root = os.open(directory, _DIRECTORY)
    unpacker = _Unpacker(root, max_entries)
    try:
        for entry in (tar := TarStream(iter(chunks))):
            unpacker.add(entry, tar)
        unpacker.finish()
    except (TarError, DecompressionError) as error:
        raise LayerError(str(error)) from error
    finally:
        unpacker.close()
        os.close(root)
    found = f"sha256:{chunks.digest.hexdigest()}"
    if diff_id is not None and found != diff_id:
        raise LayerError(f"the layer's content is {found}, not {diff_id} as the image says")
    return UnpackedLayer(found, chunks.size, unpacker.entries, tuple(unpacker.skipped))


class _Digested:
    def __init__(self, chunks: Iterator[bytes], limit: int) -> None:
        self.digest = hashlib.sha256()
        self.size = 0
        self._chunks = chunks
        self._limit = limit

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.digest.update(chunk)
            self.size += len(chunk)
            if self.size > self._limit:
                raise LayerError(f"the layer unpacks to more than the {self._limit} bytes that are allowed or free")
            yield chunk


class _Unpacker:
    def __init__(self, root: int, max_entries: int) -> None:
        self.entries = 0
        self.skipped: list[str] = []
        self._root = root
        self._max_entries = max_entries
        self._parent: tuple[bytes, int] | None = None
        """The directory of the last entry: most entries are beside the one before them."""
        self._times: dict[bytes, int] = {}
        """The times of directories, set at the end: what is made in them changes them."""
        self._modes: dict[bytes, tuple[int, int]] = {}
        """The modes of directories that their owner may not write to, with their inodes. They are set at the end: an
        ordinary user could add nothing later."""

    def add(self, entry: TarEntry, tar: TarStream) -> None:
        self.entries += 1
        if self.entries > self._max_entries:
            raise LayerError(f"the layer has more than {self._max_entries} entries")
        try:
            self._add(entry, tar)
        except OSError as error:
            raise LayerError(f"{_shown(entry.name)}: {error.strerror or error}") from error
        except (ValueError, OverflowError) as error:  # a zero byte in a name, a number beyond those of the kernel
            raise LayerError(f"{_shown(entry.name)}: {error}") from error

    def finish(self) -> None:
        for path, time in self._times.items():
            with self._directory(path) as directory, suppress(OSError, OverflowError):  # the file system lacks the time
                os.utime(directory, ns=(time, time))
        for path in sorted(self._modes, reverse=True):  # what is inside first
            inode, mode = self._modes[path]
            with self._directory(path) as directory, suppress(FileNotFoundError):
                if os.stat(directory).st_ino == inode:
                    os.chmod(directory, mode)

    @contextmanager
    def _directory(self, path: bytes) -> Iterator[str]:
        """A path by which a directory of the layer is changed; one that does not exist if it was replaced."""
        try:
            found = _open_in(self._root, path, _DIRECTORY)
        except OSError:
            yield ""
            return
        try:
            yield f"/proc/self/fd/{found}"
        finally:
            os.close(found)

    def close(self) -> None:
        if self._parent is not None:
            os.close(self._parent[1])
            self._parent = None

    def _add(self, entry: TarEntry, tar: TarStream) -> None:
        path = _clean(entry.name)
        if not path:
            if entry.type != b"5":
                raise LayerError(f"{_shown(entry.name)} would replace the root directory")
            self._set_attributes_of_root(entry)
            return
        parent_path, _, name = path.rpartition(b"/")
        parent = self._open_parent(parent_path)
        if name.startswith(_WHITEOUT):
            self._add_whiteout(parent_path, parent, name)
            return
        if entry.type == b"5":
            self._add_directory(path, parent, name, entry)
        elif entry.type == b"1":
            self._add_hard_link(parent, name, entry)
        elif entry.type in {b"0", b"2", b"3", b"4", b"6"}:
            self._make_room(parent, name)
            if not self._create(parent, name, entry, tar):
                return
            if entry.type != b"0":
                _set_attributes(parent, name, entry)
        else:
            letter = entry.type.decode("ascii", "backslashreplace")
            raise LayerError(f"{_shown(entry.name)} is of type {letter!r}, which layers do not have")

    def _create(self, parent: int, name: bytes, entry: TarEntry, tar: TarStream) -> bool:
        """False if it was left out."""
        if entry.type == b"0":
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(name, flags, 0o600, dir_fd=parent)
            try:
                for piece in tar.data():
                    view = piece
                    while view:
                        view = view[os.write(file, view) :]
                _set_file_attributes(file, entry)
            finally:
                os.close(file)
        elif entry.type == b"2":
            if not entry.link:
                raise LayerError(f"{_shown(entry.name)} is a symbolic link to nothing")
            os.symlink(entry.link, name, dir_fd=parent)
        elif entry.type == b"6":
            os.mkfifo(name, 0o600, dir_fd=parent)
        else:
            kind = stat.S_IFCHR if entry.type == b"3" else stat.S_IFBLK
            try:
                os.mknod(name, kind | 0o600, os.makedev(*entry.device), dir_fd=parent)
            except PermissionError:
                if len(self.skipped) < 10:
                    self.skipped.append("/" + _clean(entry.name).decode("utf-8", "replace"))
                return False
        return True

    def _add_directory(self, path: bytes, parent: int, name: bytes, entry: TarEntry) -> None:
        present = _mode(parent, name)
        if present is None or not stat.S_ISDIR(present):
            removed = present is not None and _is_whiteout(parent, name)
            self._make_room(parent, name)
            os.mkdir(name, 0o700, dir_fd=parent)
            if removed:  # the files of lower layers do not come back with it
                _make_opaque(parent, name)
        self._keep_writable(path, os.stat(name, dir_fd=parent, follow_symlinks=False).st_ino, entry)
        _set_attributes(parent, name, entry)
        if len(self._times) < _MAX_TIMES:
            self._times[path] = entry.mtime_ns

    def _keep_writable(self, path: bytes, inode: int, entry: TarEntry) -> None:
        """Until the end."""
        self._modes.pop(path, None)
        if ~entry.mode & stat.S_IRWXU and len(self._modes) < _MAX_TIMES:
            self._modes[path] = (inode, entry.mode)
            entry.mode |= stat.S_IRWXU

    def _add_hard_link(self, parent: int, name: bytes, entry: TarEntry) -> None:
        target = _clean(entry.link)
        if not target:
            raise LayerError(f"{_shown(entry.name)} is a hard link to the root directory")
        target_parent, _, target_name = target.rpartition(b"/")
        try:
            source = _open_in(self._root, target_parent, _DIRECTORY)
        except OSError as error:
            raise LayerError(_missing_target(entry)) from error
        try:
            there = _mode(source, target_name)
            if there is None:
                raise LayerError(_missing_target(entry))
            if stat.S_ISDIR(there):
                raise LayerError(f"{_shown(entry.name)} is a hard link to a directory, {_shown(entry.link)}")
            found = os.stat(target_name, dir_fd=source, follow_symlinks=False)
            try:
                here = os.stat(name, dir_fd=parent, follow_symlinks=False)
                if os.path.samestat(found, here):
                    return
            except FileNotFoundError:
                pass
            self._make_room(parent, name)
            os.link(target_name, name, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(source)

    def _add_whiteout(self, parent_path: bytes, parent: int, name: bytes) -> None:
        if name == _OPAQUE:
            if not parent_path:
                raise LayerError("a layer cannot remove the whole root directory")
            _mark_opaque(parent)
        elif not name.startswith(_AUFS):
            removed = name[len(_WHITEOUT) :]
            if removed in {b"", b".", b".."}:
                raise LayerError(f"{_shown(name)} removes nothing")
            present = _mode(parent, removed)
            if present is None:
                os.mknod(removed, stat.S_IFCHR, os.makedev(0, 0), dir_fd=parent)
            elif stat.S_ISDIR(present):  # of this layer: it replaces what lower layers have
                _make_opaque(parent, removed)

    def _make_room(self, parent: int, name: bytes) -> None:
        """A later entry of the same name replaces an earlier one."""
        present = _mode(parent, name)
        if present is None:
            return
        if stat.S_ISDIR(present):
            shutil.rmtree(name, dir_fd=parent)
        else:
            os.unlink(name, dir_fd=parent)

    def _open_parent(self, path: bytes) -> int:
        if self._parent is not None and self._parent[0] == path:
            return self._parent[1]
        try:
            found = _open_in(self._root, path, _DIRECTORY)
        except FileNotFoundError:
            found = self._make_directories(path)
        self.close()
        self._parent = (path, found)
        return found

    def _make_directories(self, path: bytes) -> int:
        """Directories that the archive does not mention."""
        made = b""
        for name in path.split(b"/"):
            parent = _open_in(self._root, made, _DIRECTORY)
            try:
                if _mode(parent, name) is None:
                    os.mkdir(name, 0o755, dir_fd=parent)
                    os.chmod(name, 0o755, dir_fd=parent)  # noqa: S103 - whatever the umask
                elif _is_whiteout(parent, name):
                    os.unlink(name, dir_fd=parent)
                    os.mkdir(name, 0o755, dir_fd=parent)
                    _make_opaque(parent, name)
            finally:
                os.close(parent)
            made = made + b"/" + name if made else name
        return _open_in(self._root, path, _DIRECTORY)

    def _set_attributes_of_root(self, entry: TarEntry) -> None:
        self._keep_writable(b"", os.fstat(self._root).st_ino, entry)
        os.chmod(f"/proc/self/fd/{self._root}", entry.mode)
        _change_owner(f"/proc/self/fd/{self._root}", None, entry, follow=True)
        self._times[b""] = entry.mtime_ns


def _clean(name: bytes) -> bytes:
    """Relative to the root of the layer."""
    parts = [part for part in name.split(b"/") if part not in {b"", b"."}]
    if b".." in parts:
        raise LayerError(f"{_shown(name)} leads out of the layer")
    if len(parts) > _MAX_DEPTH:
        raise LayerError(f"{_shown(name)} lies in more than {_MAX_DEPTH} directories")
    return b"/".join(parts)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _open_in(root: int, path: bytes, flags: int) -> int:
    """Opens a path as if `root` were the root directory: links, absolute ones too, lead to what is below it."""
    how = _How(flags=flags, resolve=_RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
    arguments = (ctypes.c_long(_SYS_OPENAT2), ctypes.c_int(root), ctypes.c_char_p(path or b"."))
    found = int(libc.syscall(*arguments, ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how))))
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return found


def _mode(parent: int, name: bytes) -> int | None:
    """None if there is nothing."""
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None


def _is_whiteout(parent: int, name: bytes) -> bool:
    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _make_opaque(parent: int, name: bytes) -> None:
    directory = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        _mark_opaque(directory)
    finally:
        os.close(directory)


def _mark_opaque(directory: int) -> None:
    """Overlays of an ordinary user read the attribute of `user`, those of root that of `trusted`."""
    path = f"/proc/self/fd/{directory}"
    os.setxattr(path, "user.overlay.opaque", b"y")
    if os.geteuid() == 0:
        try:
            os.setxattr(path, "trusted.overlay.opaque", b"y")
        except PermissionError:
            pass  # in a user namespace


def _set_file_attributes(file: int, entry: TarEntry) -> None:
    try:
        os.fchown(file, entry.user, entry.group)
    except OSError as error:
        _ignore_unmapped_owner(error)
    _set_xattrs(file, entry)
    os.fchmod(file, entry.mode)
    _set_time(file, entry)


def _set_attributes(parent: int, name: bytes, entry: TarEntry) -> None:
    _change_owner(name, parent, entry, follow=False)
    if entry.type == b"2":
        try:
            os.utime(name, ns=(entry.mtime_ns, entry.mtime_ns), dir_fd=parent, follow_symlinks=False)
        except OverflowError:
            pass
        return
    opened = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    path = f"/proc/self/fd/{opened}"
    try:
        if entry.type == b"5":
            _set_xattrs(path, entry)
        os.chmod(path, entry.mode)
        if entry.type != b"5":
            _set_time(path, entry)
    finally:
        os.close(opened)


def _change_owner(name: str | bytes, parent: int | None, entry: TarEntry, *, follow: bool) -> None:
    try:
        os.chown(name, entry.user, entry.group, dir_fd=parent, follow_symlinks=follow)
    except OSError as error:
        _ignore_unmapped_owner(error)


def _ignore_unmapped_owner(error: OSError) -> None:
    """An ordinary user without subordinate ids owns all files; EINVAL is an id that the namespace does not have."""
    if error.errno not in {errno.EPERM, errno.EINVAL}:
        raise error


def _set_time(target: int | str, entry: TarEntry) -> None:
    try:
        os.utime(target, ns=(entry.mtime_ns, entry.mtime_ns))
    except (OverflowError, OSError):
        pass  # a time that the file system does not have


def _set_xattrs(target: int | str, entry: TarEntry) -> None:
    for name, value in entry.xattrs.items():
        if ".overlay." in name:
            continue  # they would change what the overlay shows
        try:
            os.setxattr(target, name, value)
        except (OSError, ValueError):
            pass  # one that this file system or user does not have


def _missing_target(entry: TarEntry) -> str:
    return f"{_shown(entry.name)} is a hard link to {_shown(entry.link)}, which is not in the layer"


def _shown(name: bytes) -> str:
    text = name.decode("utf-8", "replace")
    return repr(text if len(text) <= 200 else f"{text[:200]}…")
