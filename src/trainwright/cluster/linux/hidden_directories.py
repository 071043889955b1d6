"""Directories of this machine that containers must not see: those of the clusters.

They are known by device and inode, not by name: every mount of a file system gives a directory another name, and
containers can rename directories. Whether a path of the machine may be mounted is decided here alone. Standard library
only.
"""

from __future__ import annotations

import errno
import os
import stat

from trainwright.cluster.linux.devices import bind_device
from trainwright.cluster.linux.mounts import NODEV, NOSUID, Mount, bind, is_below, mount, read_mounts

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Iterable

Identity = tuple[int, int]
"""Device and inode."""

_PATH = os.O_PATH | os.O_CLOEXEC
_STEP = _PATH | os.O_NOFOLLOW
_COVER = "mode=755,size=64k,nr_inodes=64"
"""Options of the empty directories in place of hidden ones; mount points may be created in them."""


class HiddenDirectories:
    """What is at these paths now, at all places where it can be reached. Paths that do not exist are left out."""

    def __init__(self, paths: Iterable[str], mounts: list[Mount] | None = None) -> None:
        """`mounts` are those of this process."""
        mounts = read_mounts() if mounts is None else mounts
        found: dict[str, Identity] = {}
        for real, identity in dict.fromkeys(filter(None, map(_found_at, paths))):
            place = _place_in_file_system(real, mounts)
            aliases = [path for path in possible_aliases(place, mounts) if identity_at(path) == identity]
            found |= dict.fromkeys((real, *aliases), identity)
            inside = [path for path in mounts_inside(place, mounts) if not is_below(path, [real])]
            found |= {path: inner for path in inside if (inner := identity_at(path))}
        self.identities = {path: found[path] for path in found if not is_below(path, list(found))}

    @property
    def paths(self) -> list[str]:
        return list(self.identities)

    def contain(self, descriptor: int) -> bool:
        """Whether this file or directory is a hidden one, or lies in one, by whatever path it was opened."""
        known = set(self.identities.values())
        step = _directory_of(descriptor)
        try:
            while True:
                here = _identity(os.fstat(step))
                if here in known:
                    return True
                above = _parent(step)
                os.close(step)
                step = above
                if _identity(os.fstat(step)) == here:  # the root directory
                    return False
        finally:
            os.close(step)

    def check(self, descriptor: int, what: str) -> None:
        """Raises the error of a mount that containers must not have."""
        if self.contain(descriptor):
            raise OSError(errno.EACCES, f"{what} is in a directory of the cluster, which pods do not see")


PlaceInFileSystem = tuple[str, str]
"""A device, and a path in its file system."""


def possible_aliases(place: PlaceInFileSystem, mounts: list[Mount]) -> list[str]:
    """Where it would be seen because it, or a directory above it, is mounted there. Pure."""
    device, inside = place
    return [
        point.rstrip("/") + inside[len(root.rstrip("/")) :]
        for other, root, point, _ in mounts
        if other == device and (inside == root or is_below(inside, [root]))
    ]


def mounts_inside(place: PlaceInFileSystem, mounts: list[Mount]) -> list[str]:
    """The mount points of directories that lie inside. Pure."""
    device, inside = place
    return [point for other, root, point, _ in mounts if other == device and is_below(root, [inside])]


def _place_in_file_system(path: str, mounts: list[Mount]) -> PlaceInFileSystem:
    """By the innermost mount in which the path lies, the last of several. Pure."""
    device, root, innermost = "", "", path
    longest = -1
    for other, other_root, point, _ in mounts:
        if len(point) >= longest and (path == point or is_below(path, [point])):
            device, root, innermost, longest = other, other_root, point, len(point)
    return device, root.rstrip("/") + path[len(innermost.rstrip("/")) :]


def covered_paths(hidden: list[str], mounts: list[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """Where a container would see the hidden directories: at their own paths, and in mounts of directories above them.
    Each is the path, the hidden directory, and the target of the mount in which it is seen, or none. Pure.

    `mounts` are pairs of target and source, by their real paths. A mount of a hidden directory itself was asked for by
    name and stays visible.
    """
    found: dict[str, tuple[str, str, str]] = {}
    for path in hidden:
        above = [(target, source.rstrip("/")) for target, source in mounts if is_below(path, [source])]
        inside = [target.rstrip("/") + path[len(source) :] for target, source in above]
        for candidate in (path, *inside):
            seen, target = _seen_at(candidate, mounts)
            if seen == path:
                found[candidate] = (candidate, path, target)
    return list(found.values())


def _seen_at(path: str, mounts: list[tuple[str, str]]) -> tuple[str | None, str]:
    """The host's directory that a container sees at a path, None where a mount is exactly there; and the target of its
    mount."""
    above = [(target, source) for target, source in mounts if is_below(path, [target])]
    if any(path == target for target, _ in mounts):
        return None, ""
    target, source = max(above, key=lambda mount: len(mount[0]), default=("", ""))
    return source.rstrip("/") + path[len(target.rstrip("/")) :], target


class Covers:
    """Empty directories, mounted over hidden ones in the root directory of a container."""

    def __init__(self) -> None:
        self.places: list[str] = []
        self.pinned: list[str] = []
        """Directories above them in shared mounts, each a mount of itself. A mount point cannot be renamed: a program
        that moves one of them away would take the hidden directory out of the sight of later containers' covers."""

    def add(self, place: str, identity: Identity, *, shared: str = "") -> None:
        """`shared` is the target of a mount in which the place lies, and which other containers may change meanwhile:
        there every step is opened by itself, and the last one must be the hidden directory."""
        if not shared:
            if os.path.isdir(place):
                _mount_empty(place)
                self.places.append(place)
            elif os.path.exists(place):
                bind_device("/dev/null", place)
            return
        names = place[len(shared.rstrip("/")) :].strip("/").split("/")
        steps, path = [os.open(shared, _PATH | os.O_DIRECTORY)], shared.rstrip("/")
        try:
            for name in names[:-1]:
                path = f"{path}/{name}"
                if path not in self.pinned:
                    steps.append(os.open(name, _STEP | os.O_DIRECTORY, dir_fd=steps[-1]))
                    bind(f"/proc/self/fd/{steps[-1]}", f"/proc/self/fd/{steps[-1]}")
                    self.pinned.append(path)
                    os.close(steps.pop())
                steps.append(os.open(name, _STEP | os.O_DIRECTORY, dir_fd=steps[-1]))  # the mount
            self._cover(steps[-1], names[-1], place, identity)
        finally:
            for step in steps:
                os.close(step)

    def _cover(self, above: int, name: str, place: str, identity: Identity) -> None:
        step = os.open(name, _STEP, dir_fd=above)
        try:
            if _identity(os.fstat(step)) != identity:
                raise OSError(errno.ESTALE, f"{place} was moved while it was hidden from the container; try again")
            is_directory = stat.S_ISDIR(os.fstat(step).st_mode)
            if is_directory:
                _mount_empty(f"/proc/self/fd/{step}")
            else:
                bind_device("/dev/null", f"/proc/self/fd/{step}")
        finally:
            os.close(step)
        if _identity(os.stat(name, dir_fd=above, follow_symlinks=False)) == identity:
            raise OSError(errno.ESTALE, f"{place} was moved while it was hidden from the container; try again")
        if is_directory:
            self.places.append(place)


def _mount_empty(target: str) -> None:
    mount("tmpfs", target, "tmpfs", NOSUID | NODEV, _COVER)


def _parent(directory: int) -> int:
    try:
        return os.open("..", _PATH | os.O_DIRECTORY, dir_fd=directory)
    except PermissionError:  # of a directory that this user may not search
        return _directory_of(directory, above=True)


def _directory_of(descriptor: int, *, above: bool = False) -> int:
    """A new descriptor of the directory itself, or of the one in which the file (with `above` the directory) lies."""
    if stat.S_ISDIR(os.fstat(descriptor).st_mode) and not above:
        return os.open(f"/proc/self/fd/{descriptor}", _PATH | os.O_DIRECTORY)
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    directory = os.open(os.path.dirname(path), _PATH | os.O_DIRECTORY)
    try:
        there = os.stat(os.path.basename(path), dir_fd=directory, follow_symlinks=False)
        if _identity(there) != _identity(os.fstat(descriptor)):
            raise OSError(errno.ESTALE, f"{path} was replaced while it was mounted; try again")
    except BaseException:
        os.close(directory)
        raise
    return directory


def _found_at(path: str) -> tuple[str, Identity] | None:
    """What the path leads to: its real path and identity."""
    try:
        descriptor = os.open(path, _PATH)
    except OSError:
        return None
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}"), _identity(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def identity_at(path: str) -> Identity | None:
    """None if nothing is there, or it cannot be reached."""
    try:
        return _identity(os.stat(path, follow_symlinks=False))
    except OSError:
        return None


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino
