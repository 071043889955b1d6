"""Directories of this machine that containers must not see: those of the clusters.

They are known by device and inode, not by name: a directory has as many names as it has mounts, and those that a
container may rename. Whether a path of the machine may be mounted is decided here alone. Standard library only.
"""

from __future__ import annotations

import errno
import os
import stat

from trainwright.cluster.linux.mounts import NODEV, NOSUID, Mount, bind, is_below, mount, read_mounts

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Iterable

Identity = tuple[int, int]
"""Device and inode."""

_PATH = os.O_PATH | os.O_CLOEXEC
_STEP = _PATH | os.O_NOFOLLOW
_COVER = "mode=755,size=64k,nr_inodes=64"
"""Of the empty directories in place of hidden ones; mount points may be created in them."""


class HiddenDirectories:
    """What is at these paths now, at all places where it can be reached. Paths that do not exist are left out."""

    def __init__(
        self,
        paths: Iterable[str],
        mounts: list[Mount] | None = None,
        *,
        known: dict[str, list[int]] | None = None,
    ) -> None:
        """`mounts` are those of this process. `known` are devices and inodes of some of the paths: what was moved away
        could not be hidden, and is an error."""
        mounts = read_mounts() if mounts is None else mounts
        found: dict[str, Identity] = {}
        for path in dict.fromkeys([*(known or ()), *(os.path.realpath(path) for path in paths)]):
            present = _identity_at(path)
            identity = (known[path][0], known[path][1]) if known and path in known else present
            if identity is None:
                continue
            if present != identity:
                raise OSError(errno.ESTALE, f"{path} of the cluster was moved: restore it, or restart the cluster")
            found |= {alias: identity for alias in possible_aliases(path, mounts) if _identity_at(alias) == identity}
            found |= {point: inner for point in mounts_inside(path, mounts) if (inner := _identity_at(point))}
            found[path] = identity
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
                above = os.open("..", _PATH | os.O_DIRECTORY, dir_fd=step)
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
    found = [path]
    for device, inside in _places_in_file_systems(path, mounts):
        for other, root, point, _ in mounts:
            if other == device and (inside == root or is_below(inside, [root])):
                found.append(point.rstrip("/") + inside[len(root.rstrip("/")) :])
    return list(dict.fromkeys(found))


def mounts_inside(path: str, mounts: list[Mount]) -> list[str]:
    """The mount points of directories that lie inside this one. Pure."""
    places = _places_in_file_systems(path, mounts)
    return [
        point
        for other, root, point, _ in mounts
        for device, inside in places
        if (other == device and is_below(root, [inside]) and not is_below(point, [path]))
    ]


def _places_in_file_systems(path: str, mounts: list[Mount]) -> list[tuple[str, str]]:
    """The directory as device and path in its file system, for each mount in which it may lie."""
    return [
        (device, root.rstrip("/") + path[len(point.rstrip("/")) :])
        for device, root, point, _ in mounts
        if path == point or is_below(path, [point])
    ]


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
            return
        names = place[len(shared.rstrip("/")) :].strip("/").split("/")
        step, path = os.open(shared, _PATH | os.O_DIRECTORY), shared.rstrip("/")
        try:
            for name in names[:-1]:
                path = f"{path}/{name}"
                step = self._pin(step, name, path)
            self._cover(step, names[-1], place, identity)
        finally:
            os.close(step)

    def _pin(self, above: int, name: str, path: str) -> int:
        """Mounts the directory on itself and returns its descriptor in place of that of the directory above."""
        step = os.open(name, _STEP | os.O_DIRECTORY, dir_fd=above)
        try:
            if path not in self.pinned:
                bind(f"/proc/self/fd/{step}", f"/proc/self/fd/{step}")
                self.pinned.append(path)
                os.close(step)
                step = os.open(name, _STEP | os.O_DIRECTORY, dir_fd=above)  # the mount
        finally:
            os.close(above)
        return step

    def _cover(self, above: int, name: str, place: str, identity: Identity) -> None:
        step = os.open(name, _STEP, dir_fd=above)
        try:
            if _identity(os.fstat(step)) != identity:
                raise OSError(errno.ESTALE, f"{place} was moved while it was hidden from the container; try again")
            _mount_empty(f"/proc/self/fd/{step}")
        finally:
            os.close(step)
        if _identity(os.stat(name, dir_fd=above, follow_symlinks=False)) == identity:
            raise OSError(errno.ESTALE, f"{place} was moved while it was hidden from the container; try again")
        self.places.append(place)


def _mount_empty(target: str) -> None:
    mount("tmpfs", target, "tmpfs", NOSUID | NODEV, _COVER)


def _directory_of(descriptor: int) -> int:
    """A new descriptor of the directory itself, or of the one in which the file lies."""
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
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


def identity_at(path: str) -> list[int]:
    """For a file that other processes read; raises OSError."""
    return list(_identity(os.stat(path, follow_symlinks=False)))


def _identity_at(path: str) -> Identity | None:
    try:
        return _identity(os.stat(path, follow_symlinks=False))
    except OSError:
        return None


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino
