"""COPY, ADD and WORKDIR, inside the root directory of the image that is being built, and the archives that ADD unpacks.

The process sees the image's files alone: paths lead nowhere else, whatever links the image has. What is copied is read
through open directories of the context or of another image.
"""

import bz2
import errno
import lzma
import os
import posixpath
import stat
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from trainwright.cluster.images.build.files.tree import Tree, TreeFile
from trainwright.cluster.images.build.messages import BuildError
from trainwright.cluster.images.layers.decompression import DecompressionError, decompress
from trainwright.cluster.images.layers.unpack import LayerError, unpack_layer
from trainwright.objects.decimals import parse_decimal

_GZIP, _ZSTD, _BZIP2, _XZ = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\x00"
_COMPRESSED = ((_BZIP2, bz2.open), (_XZ, lzma.open))
"""What layers are never compressed with."""


@dataclass(frozen=True, slots=True)
class Account:
    user: int
    group: int
    groups: tuple[int, ...] = ()
    home: str = "/"


def find_account(spec: str) -> Account:
    """`USER` and `--chown`: USER[:GROUP], each a name or a number. A user without a group has that of /etc/passwd."""
    user, _, group = spec.partition(":")
    passwd = _read("/etc/passwd")
    by_name = next((row for row in passwd if len(row) > 5 and user in {row[0], row[2]}), None)
    number = parse_decimal(by_name[2] if by_name else user)
    if number is None:
        raise BuildError(f"unable to find user {user[:100]}: no matching entries in the image's /etc/passwd")
    home = by_name[5] if by_name else "/"
    if group:
        return Account(number, _find_group(group), home=home)
    name = by_name[0] if by_name else ""
    others = tuple(int(row[2]) for row in _read("/etc/group") if len(row) > 3 and name and name in row[3].split(","))
    return Account(number, (parse_decimal(by_name[3]) or 0) if by_name else 0, others, home)


def _find_group(group: str) -> int:
    for row in _read("/etc/group"):
        if len(row) > 2 and group in {row[0], row[2]}:
            return int(row[2])
    if (number := parse_decimal(group)) is not None:
        return number
    raise BuildError(f"unable to find group {group[:100]}: no matching entries in the image's /etc/group")


def _read(path: str) -> list[list[str]]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            rows = [line.rstrip("\n").split(":") for line in file]
    except OSError:
        return []
    return [row for row in rows if len(row) > 2 and parse_decimal(row[2]) is not None]


_CHUNK = 1 << 24


@dataclass(frozen=True, slots=True)
class Attributes:
    """What copied files get in place of their own."""

    owner: Account | None = None
    """None keeps that of the source."""
    mode: int | None = None

    def mode_of(self, status: os.stat_result) -> int:
        return stat.S_IMODE(status.st_mode) if self.mode is None else self.mode


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that is not in a tree: from an address or a here-document."""

    name: str
    path: str
    """Where its content is now."""
    mode: int
    mtime: float | None = None


@dataclass(frozen=True, slots=True)
class CopyJob:
    destination: str
    attributes: Attributes
    sources: tuple[tuple[Tree, TreeFile], ...] = ()
    new_files: tuple[NewFile, ...] = ()
    archives: tuple[tuple[str, str], ...] = ()
    """Archives to unpack into the destination: what users call them, and their paths."""
    parents: bool = False
    """`--parents`: the directories of the sources are kept."""
    several: bool = False
    """True if the destination must be a directory."""


class Copier:
    """Copies everything but archives."""

    def __init__(self, job: CopyJob) -> None:
        self._job = job
        self._links: dict[tuple[int, int], str] = {}

    def run(self) -> None:
        job = self._job
        real = os.path.realpath(job.destination)
        is_directory = job.destination.endswith("/") or os.path.isdir(real) or job.parents
        if job.several and not is_directory and os.path.lexists(real):
            raise BuildError(f"{job.destination} is not a directory, and there are several sources")
        is_directory = is_directory or job.several
        for tree, file in job.sources:
            self._copy_source(tree, file, real, is_directory)
        for new in job.new_files:
            target = posixpath.join(real, new.name) if is_directory else real
            self._make_parents(target)
            self._write_file(new.path, target, mode=new.mode if job.attributes.mode is None else job.attributes.mode)
            self._own(target, None)
            if new.mtime is not None:
                os.utime(target, (new.mtime, new.mtime))

    def _copy_source(self, tree: Tree, file: TreeFile, real: str, is_directory: bool) -> None:
        if self._job.parents:
            real = posixpath.join(real, posixpath.dirname(file.path) if not file.is_directory else file.path)
        if not file.is_directory:
            self._copy(tree, file, posixpath.join(real, file.name) if is_directory else real)
            return
        if os.path.lexists(real) and not os.path.isdir(real):
            raise BuildError(f"cannot copy a directory to {self._job.destination}, which is a file")
        created = not os.path.isdir(real)
        make_directories(real, self._job.attributes.owner)
        directories = [(real, file.status)] if created and not self._job.parents else []
        for found in tree.walk(file.path):
            target = posixpath.join(real, found.path[len(file.path) :].lstrip("/"))
            if found.is_directory and not os.path.isdir(target):
                directories.append((target, found.status))
            self._copy(tree, found, target)
        for target, status in reversed(directories):  # what is created in them changes their times
            os.utime(target, ns=(status.st_mtime_ns, status.st_mtime_ns))

    def _copy(self, tree: Tree, file: TreeFile, target: str) -> None:
        self._make_parents(target)
        source, status = tree.absolute(file.path), file.status
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFDIR:
            if os.path.islink(target) and os.path.isdir(target):
                return  # a link of the image to a directory stays, and what is copied goes there
            if not os.path.isdir(target):
                self._remove(target)
                os.mkdir(target)
                os.chmod(target, self._job.attributes.mode_of(status))
                self._own(target, status)
            return
        if os.path.isdir(target) and not os.path.islink(target):
            raise BuildError(f"cannot copy the file {file.path} over the directory {target}")
        if status.st_nlink > 1 and (first := self._links.get((status.st_dev, status.st_ino))):
            self._remove(target)
            os.link(first, target, follow_symlinks=False)
            return
        if kind == stat.S_IFLNK:
            self._remove(target)
            os.symlink(os.readlink(source), target)
            self._own(target, status)
            os.utime(target, ns=(status.st_mtime_ns, status.st_mtime_ns), follow_symlinks=False)
            return
        if kind == stat.S_IFREG:
            self._write_file(source, target, mode=self._job.attributes.mode_of(status))
        elif kind == stat.S_IFIFO:
            self._remove(target)
            os.mkfifo(target)
        else:
            return  # sockets, and devices, which only their own image has
        self._own(target, status)
        os.chmod(target, self._job.attributes.mode_of(status))  # a new owner clears the set-user-ID bit
        _copy_attributes(source, target)
        os.utime(target, ns=(status.st_mtime_ns, status.st_mtime_ns))
        if status.st_nlink > 1:
            self._links[status.st_dev, status.st_ino] = target

    def _write_file(self, source: str, target: str, *, mode: int) -> None:
        self._remove(target)
        reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            writer = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                while os.sendfile(writer, reader, None, _CHUNK):
                    pass
                os.fchmod(writer, mode)
            finally:
                os.close(writer)
        finally:
            os.close(reader)

    @staticmethod
    def _remove(target: str) -> None:
        try:
            os.unlink(target)
        except FileNotFoundError:
            pass
        except IsADirectoryError as error:
            raise BuildError(f"cannot copy a file over the directory {target}") from error

    def _make_parents(self, target: str) -> None:
        make_directories(posixpath.dirname(target), self._job.attributes.owner)

    def _own(self, target: str, status: os.stat_result | None) -> None:
        owner = self._job.attributes.owner
        if owner is not None:
            set_owner(target, owner.user, owner.group)
        elif status is not None:
            set_owner(target, status.st_uid, status.st_gid)


def make_directories(path: str, owner: Account | None) -> None:
    """Those that do not exist, for the owner."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = posixpath.dirname(path)
    for directory in reversed(missing):
        os.mkdir(directory, 0o755)
        os.chmod(directory, 0o755)  # noqa: S103 - the mode of directories in images
        if owner is not None:
            set_owner(directory, owner.user, owner.group)


def set_owner(path: str, user: int, group: int) -> None:
    try:
        os.chown(path, user, group, follow_symlinks=False)
    except OSError as error:
        # An ordinary user without subordinate ids owns all files.
        if error.errno not in {errno.EINVAL, errno.EPERM}:
            raise


def _copy_attributes(source: str, target: str) -> None:
    try:
        names: Sequence[str] = os.listxattr(source)
    except OSError:
        return
    for name in names:
        if name == "security.capability" or (name.startswith("user.") and not name.startswith("user.overlay.")):
            try:
                os.setxattr(target, name, os.getxattr(source, name))
            except OSError:
                continue  # this file system or user has no such attributes


def unpack_archives(job: CopyJob, directory: str) -> None:
    os.makedirs(directory, 0o755, exist_ok=True)
    for name, path in job.archives:
        unpack_archive(name, path, directory)


def unpack_archive(name: str, path: str, directory: str) -> None:
    """`name` is what users call the archive."""
    try:
        with open(path, "rb") as archive:
            unpack_layer(_opened(archive), directory)
    except (LayerError, OSError, EOFError, lzma.LZMAError) as error:
        raise BuildError(f"{name}: {error}") from error


def is_archive(path: str) -> bool:
    """True for a tar archive, compressed or not. A compressed file that is no archive is copied as it is."""
    try:
        with open(path, "rb") as file:
            start = file.read(512)
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return False
            file.seek(0)
            return start[257:262] == b"ustar" or (start.startswith((_GZIP, _ZSTD, _BZIP2, _XZ)) and _has_archive(file))
    except OSError:
        return False


def _opened(file: BinaryIO) -> Any:
    """The file without the compressions that layers do not have."""
    start = file.read(8)
    file.seek(0)
    opener = next((opener for magic, opener in _COMPRESSED if start.startswith(magic)), None)
    return opener(file) if opener else file


def _has_archive(file: BinaryIO) -> bool:
    head = b""
    try:
        for chunk in decompress(_opened(file)):
            head += chunk
            if len(head) >= tarfile.BLOCKSIZE:
                break
        tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except (DecompressionError, OSError, EOFError, lzma.LZMAError, tarfile.HeaderError):
        return False
    return True
