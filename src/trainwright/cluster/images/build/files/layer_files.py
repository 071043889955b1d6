"""The files that a step of a build has written, as one directory: the layer."""

import os
import shutil
import stat
from collections.abc import Iterable

from trainwright.cluster.images.layers.image_root import written

_KERNEL_DIRECTORIES = ("proc", "sys", "dev")


def gather_layer(scratch: str, *, mount_points: Iterable[str] = (), dropped: Iterable[str] = ()) -> str | None:
    """The directory with what was written below `scratch`; None if nothing was.

    `mount_points` are files that exist in the layer only because something was mounted there; `dropped` are paths that
    are no part of it.
    """
    uppers = written(scratch)
    if [path for _, path in uppers] == ["/"]:
        layer = uppers[0][0]
    else:
        layer = f"{scratch}/layer"
        os.mkdir(layer, 0o755)
        for upper, path in uppers:
            if os.listdir(upper):
                _move(upper, layer + path)
    for name in _KERNEL_DIRECTORIES:
        _remove_empty(f"{layer}/{name}")
    for point in mount_points:
        _remove_mount_point(layer, point)
    for path in dropped:
        if os.path.isdir(layer + path) and not os.path.islink(layer + path):
            shutil.rmtree(layer + path)
            _remove_empty_parents(layer, path)
    return layer if os.listdir(layer) else None


def _move(source: str, target: str) -> None:
    if not os.path.isdir(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(source, target)
        return
    for name in os.listdir(source):  # a directory below one that was written too
        _move_entry(f"{source}/{name}", f"{target}/{name}")


def _move_entry(source: str, target: str) -> None:
    if os.path.isdir(source) and not os.path.islink(source) and os.path.isdir(target):
        for name in os.listdir(source):
            _move_entry(f"{source}/{name}", f"{target}/{name}")
    else:
        os.rename(source, target)


def _remove_mount_point(layer: str, point: str) -> None:
    path = layer + point
    try:
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode) and status.st_size == 0:
            os.unlink(path)
        elif stat.S_ISDIR(status.st_mode):
            os.rmdir(path)
        else:
            return
    except OSError:
        return
    _remove_empty_parents(layer, point)


def _remove_empty_parents(layer: str, path: str) -> None:
    parent = os.path.dirname(path)
    while parent != "/" and _remove_empty(layer + parent):
        parent = os.path.dirname(parent)


def _remove_empty(path: str) -> bool:
    try:
        os.rmdir(path)
    except OSError:
        return False
    return True
