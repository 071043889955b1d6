"""Opens a path below a directory that other programs can change, without ever leaving the directory.

Links are followed as long as they stay inside. Every step holds the directory that the last one found, so a link that
appears meanwhile leads nowhere else. Standard library only.
"""

import errno
import os
import stat

_MAX_LINKS = 40
_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def open_beneath(directory: str, path: str, *, create: bool = False) -> int:
    """A descriptor (O_PATH) of what is at `path` below `directory`; the caller closes it.

    `create` makes missing directories, with the mode of `directory`.
    """
    opened = [os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
    try:
        mode = stat.S_IMODE(os.fstat(opened[0]).st_mode)
        names = _components(path)
        links = 0
        while names:
            name = names.pop(0)
            if name == "..":
                if len(opened) == 1:
                    raise OSError(errno.EXDEV, f"{path} leads out of {directory}")
                os.close(opened.pop())
                continue
            step = _open_or_create(name, opened[-1], mode if create else None)
            if stat.S_ISLNK(os.fstat(step).st_mode):
                target = os.readlink("", dir_fd=step)
                os.close(step)
                links += 1
                if target.startswith("/"):
                    raise OSError(errno.EXDEV, f"{path} leads out of {directory}")
                if links > _MAX_LINKS:
                    raise OSError(errno.ELOOP, f"{path} has too many links")
                names[:0] = _components(target)
            else:
                opened.append(step)
        return os.dup(opened[-1])
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _components(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in {"", "."}]


def _open_or_create(name: str, directory: int, mode: int | None) -> int:
    try:
        return os.open(name, _STEP, dir_fd=directory)
    except FileNotFoundError:
        if mode is None:
            raise
    try:
        os.mkdir(name, 0o700, dir_fd=directory)
        made = os.open(name, _STEP, dir_fd=directory)
    except FileExistsError:  # another container was faster
        return os.open(name, _STEP, dir_fd=directory)
    if stat.S_ISDIR(os.fstat(made).st_mode):
        os.chmod(f"/proc/self/fd/{made}", mode)  # not of a link: the descriptor is the directory
    return made


def resolve_without_proc(path: str) -> str:
    """The path without links, as os.path.realpath; what does not exist stays as it is.

    Refuses links that lead through /proc: those of the kernel there (`/proc/1/root`, `/proc/self/fd`) leave the root
    directory of a container.
    """
    resolved, names, links = "", _components(path), 0
    while names:
        name = names.pop(0)
        if name == "..":
            resolved = resolved.rpartition("/")[0]
            continue
        try:
            target = os.readlink(f"{resolved}/{name}")
        except OSError:  # no link, or nothing
            resolved = f"{resolved}/{name}"
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, f"{path} has too many links")
        if resolved == "/proc" or resolved.startswith("/proc/"):
            raise OSError(errno.EACCES, f"{path} leads through {resolved}/{name}, which may leave the container")
        names[:0] = _components(target)
        if target.startswith("/"):
            resolved = ""
    return resolved or "/"
