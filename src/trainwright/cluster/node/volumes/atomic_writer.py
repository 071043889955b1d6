"""Writes the files of a volume so that a program never sees a mixture of old and new ones, as the kubelet does.

The files are in a directory of their own, `..data` is a link to it, and every visible name is a link through `..data`.
An update makes another directory and replaces that one link.
"""

import contextlib
import os
import stat
import time
from dataclasses import replace
from pathlib import Path

from trainwright.cluster.linux.trees import remove_tree
from trainwright.cluster.node.volumes.files import Files

_DATA = "..data"
_NEW_DATA = "..data_tmp"


def write_files(volume: Path, files: Files, *, group: int | None = None) -> bool:
    """Replaces the files of the volume; False if they are as they should be. Can be repeated after an interruption.

    A group may read all files, as with the kubelet's fsGroup.
    """
    volume.mkdir(parents=True, exist_ok=True)
    if group is not None:
        files = {name: replace(file, mode=file.mode | 0o440) for name, file in files.items()}
    current = _current(volume)
    if current is not None and _holds(volume / current, files) and _links_are_right(volume, files):
        return False
    new = _new_directory(volume)
    for name, file in files.items():
        target = volume / new / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        if file.owner is not None or group is not None:
            os.chown(target, -1 if file.owner is None else file.owner, -1 if group is None else group)
        target.chmod(file.mode)
    _replace_link(volume, _NEW_DATA, _DATA, to=new)
    wanted = _visible_names(files)
    for name in wanted:
        if _link_target(volume / name) != f"{_DATA}/{name}":
            _replace_link(volume, f"..{name}_tmp", name, to=f"{_DATA}/{name}")
    for entry in volume.iterdir():
        if entry.name.startswith(".."):
            if entry.name not in {_DATA, new}:
                _remove(entry)
        elif entry.name not in wanted:
            _remove(entry)
    return True


def read_file(volume: Path, name: str, *, limit: int) -> bytes | None:
    """The present content of a file of the volume; None if there is none, or if it is bigger than `limit`."""
    found = _read(volume / _DATA / name, limit)
    return None if found is None else found[0]


def _read(path: Path, limit: int) -> tuple[bytes, int] | None:
    """Content and mode of a regular file of limited size. At `plain` a program can put anything in its place: a link, a
    pipe without a writer, a file of any size."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            return None
        return os.read(descriptor, limit + 1), stat.S_IMODE(status.st_mode)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _current(volume: Path) -> str | None:
    """The directory that `..data` links to, if it is one that `write_files` has made."""
    target = _link_target(volume / _DATA)
    return target if target is not None and target.startswith("..") and "/" not in target[2:] and target[2:] else None


def _holds(directory: Path, files: Files) -> bool:
    found = {str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()}
    if found != set(files):
        return False
    return all(_read(directory / name, len(file.content)) == (file.content, file.mode) for name, file in files.items())


def _links_are_right(volume: Path, files: Files) -> bool:
    return all(_link_target(volume / name) == f"{_DATA}/{name}" for name in _visible_names(files))


def _visible_names(files: Files) -> set[str]:
    return {name.partition("/")[0] for name in files}


def _new_directory(volume: Path) -> str:
    """Named after the time, to the nanosecond: two updates never share a directory."""
    while True:
        now = time.time_ns()
        name = time.strftime(f"..%Y_%m_%d_%H_%M_%S.{now % 10**9:09d}", time.gmtime(now // 10**9))
        with contextlib.suppress(FileExistsError):
            (volume / name).mkdir(mode=0o755)
            return name


def _replace_link(volume: Path, temporary: str, name: str, *, to: str) -> None:
    _remove(volume / temporary)
    (volume / temporary).symlink_to(to)
    if (volume / name).is_dir() and not (volume / name).is_symlink():
        remove_tree(str(volume / name))  # of an earlier version of the node
    (volume / temporary).replace(volume / name)


def _link_target(path: Path) -> str | None:
    try:
        return str(path.readlink())
    except OSError:
        return None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        remove_tree(str(path))
    else:
        path.unlink(missing_ok=True)
