"""Trees of files that programs of pods and images have made: of any depth, with any modes, below links and mounts.

`os.walk` and `shutil.rmtree` call themselves for every level, and fail at a thousand. Standard library only.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Iterator

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def walk(top: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """As os.walk from the top: the caller may sort and shorten the directories. Links are not followed; what cannot be
    read, or has too long a path, is left out."""
    pending = [top]
    while pending:
        parent = pending.pop()
        directories: list[str] = []
        names: list[str] = []
        try:
            with os.scandir(parent) as entries:
                for entry in entries:
                    (directories if entry.is_dir(follow_symlinks=False) else names).append(entry.name)
        except OSError:
            continue
        yield parent, directories, names
        pending += [f"{parent}/{name}" for name in reversed(directories)]


def remove_tree(path: str) -> None:
    """Removes a directory, except files that cannot be removed. It may be that of the current user with any mode.

    Directories are moved to the top before they are emptied, so that depth does not matter.
    """
    try:
        _open_up(path, None)
        top = os.open(path, _DIRECTORY)
    except OSError:
        try_to_remove(path)
        return
    try:
        moved, left = 0, {""}
        while names := [name for name in os.listdir(top) if name not in left]:
            for name in names:
                if _is_directory(name, top):
                    moved = _empty(name, top, moved)
                if not _removed(name, top):
                    left.add(name)
    finally:
        os.close(top)
    try_to_remove(path)


def _empty(name: str, top: int, moved: int) -> int:
    """Removes the files of a directory and moves its directories to the top. Returns how many were ever moved."""
    try:
        _open_up(name, top)
        directory = os.open(name, _DIRECTORY, dir_fd=top)
    except OSError:
        return moved
    try:
        for inner in os.listdir(directory):
            if not _is_directory(inner, directory):
                _removed(inner, directory)
                continue
            moved += 1
            try:
                _open_up(inner, directory)  # a directory that moves must be writable itself
                os.rename(inner, f".removed-{os.getpid()}-{moved}", src_dir_fd=directory, dst_dir_fd=top)
            except OSError:
                continue
    finally:
        os.close(directory)
    return moved


def _open_up(name: str, parent: int | None) -> None:
    """Work directories of overlays have mode 000."""
    found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        status = os.fstat(found)
        if stat.S_ISDIR(status.st_mode) and status.st_mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{found}", 0o700)
    except OSError:
        pass  # a directory of another user
    finally:
        os.close(found)


def _is_directory(name: str, parent: int) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _removed(name: str, parent: int) -> bool:
    try:
        if _is_directory(name, parent):
            os.rmdir(name, dir_fd=parent)
        else:
            os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # another user's, a mount point, or with files that could not be removed
    return True


def try_to_remove(path: str) -> None:
    """Removes a file, a link or an empty directory, if that is possible."""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        else:
            os.unlink(path)
    except OSError:
        pass
