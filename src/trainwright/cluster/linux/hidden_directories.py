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
        for path in dict.fromkeys(os.path.realpath(path) for path in paths):
            if (identity := identity_at(path)) is not None:
                found |= {alias: identity for alias in possible_aliases(path, mounts) if identity_at(alias) == identity}
                found |= {point: inner for point in mounts_inside(path, mounts) if (inner := identity_at(point))}
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


def possible_aliases(path: str, mounts: list[Mount]) -> list[str]:
    """Where the directory would be seen because another directory of its file system is mounted too, and its own path.
    Pure."""
    device, inside = _place_in_file_system(path, mounts)
    found = [path]
    for other, root, point, _ in mounts:
        if other == device and (inside == root or is_below(inside, [root])):
            found.append(point.rstrip("/") + inside[len(root.rstrip("/")) :])
    return list(dict.fromkeys(found))


def mounts_inside(path: str, mounts: list[Mount]) -> list[str]:
    """The mount points of directories that lie inside this one, elsewhere. Pure."""
    device, inside = _place_in_file_system(path, mounts)
    return [
        point
        for other, root, point, _ in mounts
        if other == device and is_below(root, [inside]) and not is_below(point, [path])
    ]


def _place_in_file_system(path: str, mounts: list[Mount]) -> tuple[str, str]:
    """The directory as device and path in its file system: that of the innermost mount, the last of several."""
    above = [mount for mount in mounts if path == mount[2] or is_below(path, [mount[2]])]
    device, root, point, _ = max(reversed(above), key=lambda mount: len(mount[2]), default=("", "", path, ""))
    return device, root.rstrip("/") + path[len(point.rstrip("/")) :]


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


def identity_at(path: str) -> Identity | None:
    """None if nothing is there, or it cannot be reached."""
    try:
        return _identity(os.stat(path, follow_symlinks=False))
    except OSError:
        return None


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino
