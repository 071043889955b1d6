"""Directories that no other user can change: every one from the root to it belongs to this user or to root.

What lies below a directory of another user is that user's word, and a program that believes it acts for that user.
"""

import errno
import grp
import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

_MAX_LINKS = 40
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ROOT = 0


class UntrustedPathError(Exception):
    """Another user can change the path. The message names it, its owner or mode, and the fix."""


def check_directory(path: Path) -> None:
    """Raises UntrustedPathError. What does not exist yet is not checked, so this decides nothing about its creation."""
    with suppress(FileNotFoundError):
        descriptor = _walk(path, create=False)
        try:
            _check(os.fstat(descriptor), path)
        finally:
            os.close(descriptor)


def open_private_directory(path: Path) -> int:
    """A descriptor of the directory, which is created with mode 0700 if it does not exist, and belongs to this user.

    Raises UntrustedPathError or OSError. The mode of an existing directory is not changed.
    """
    descriptor = _walk(path, create=True)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid():
            raise UntrustedPathError(_of_another(path, found))
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def check_private_files(directory: int, path: Path) -> None:
    """What the directory holds must be files and directories of this user; files are made private.

    A link to a directory is a decision of its owner, who is this user, if its target can be trusted.
    """
    with os.scandir(directory) as entries:
        found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    for name, status in found:
        place = path / name
        if status.st_uid != os.geteuid():
            raise UntrustedPathError(_of_another(place, status))
        if stat.S_ISLNK(status.st_mode):
            if not place.is_dir():
                raise UntrustedPathError(f"{place} is a link: its target may be a file of another user; remove it")
            check_directory(place)
        elif stat.S_ISREG(status.st_mode):
            _make_private(name, directory)


def is_open_to_others(found: os.stat_result) -> bool:
    """True if another user can add, remove or rename files in a directory with this mode and group."""
    if not found.st_mode & _OTHERS_WRITE or found.st_mode & stat.S_ISVTX:
        return False
    return bool(found.st_mode & stat.S_IWOTH) or not _is_own_group(found.st_gid)


def _walk(path: Path, *, create: bool) -> int:
    """A descriptor of the directory, reached from the root step by step: what was checked cannot be exchanged."""
    current = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    links = 0
    shown = Path("/")
    left = list(path.absolute().parts[:0:-1])
    try:
        _check(os.fstat(current), shown)
        while left:
            name = left.pop()
            below = _open(name, current, create=create)
            found = os.fstat(below)
            if stat.S_ISLNK(found.st_mode):
                links += 1
                try:
                    if links > _MAX_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(shown / name))
                    if not _is_trusted(found.st_uid):
                        raise UntrustedPathError(_of_another(shown / name, found))
                    target = os.readlink("", dir_fd=below)
                finally:
                    os.close(below)
                if target.startswith("/"):
                    os.close(current)
                    current, shown = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC), Path("/")
                left += [part for part in target.split("/") if part not in {"", "."}][::-1]
                continue
            os.close(current)
            current, shown = below, shown.parent if name == ".." else shown / name
            if not stat.S_ISDIR(found.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(shown))
            _check(found, shown, is_last=not left)
    except BaseException:
        os.close(current)
        raise
    return current


def _open(name: str, directory: int, *, create: bool) -> int:
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    for _ in range(2):
        with suppress(FileNotFoundError):
            return os.open(name, flags, dir_fd=directory)
        if not create:
            break
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=directory)
    return os.open(name, flags, dir_fd=directory)


def _check(found: os.stat_result, path: Path, *, is_last: bool = False) -> None:
    if not _is_trusted(found.st_uid):
        raise UntrustedPathError(_of_another(path, found))
    # The mode of the last one is decided by its caller, who may close it.
    if is_open_to_others(found) and not is_last:
        raise UntrustedPathError(
            f"{path} has mode {stat.S_IMODE(found.st_mode):04o}, so that other users can replace what is in it: "
            f"`chmod go-w {path}`, or choose a directory elsewhere"
        )


def _is_trusted(user: int) -> bool:
    """This user and root. In a user namespace root can be unmapped: then the root directory has its number."""
    return user in {os.geteuid(), _ROOT, Path("/").stat().st_uid}


def _is_own_group(group: int) -> bool:
    """True for root's group, and for a group that has this user alone: many systems give one to every user."""
    if group == _ROOT:
        return True
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return user.pw_gid == group and found.gr_name == user.pw_name and set(found.gr_mem) <= {user.pw_name}


def _of_another(path: Path, found: os.stat_result) -> str:
    owner = _user_name(found.st_uid)
    if os.geteuid() == _ROOT:
        fix = f"run the command as {owner}, or choose a directory of root"
        if os.environ.get("HOME", "").startswith("/") and Path(path).is_relative_to(os.environ["HOME"]):
            fix = f"run the command as {owner}, or with root's own home (`sudo -H`)"
    else:
        fix = f"choose a directory of {_user_name(os.geteuid())}"
    return f"{path} belongs to {owner}, who could act as this user through it: {fix}"


def _user_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def _make_private(name: str, directory: int) -> None:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & 0o077:
            os.fchmod(descriptor, mode & 0o700)
    finally:
        os.close(descriptor)
