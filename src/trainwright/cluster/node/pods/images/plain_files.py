"""The layers of an image over this machine's files at sandbox plain, where nothing can be mounted: a copy in the
directory of the pod, whose paths replace those of the image in command, args and env."""

import os
import shutil
import stat
from pathlib import Path


def copy_layers(layers: list[Path], target: Path) -> dict[str, str]:
    """Copies what the layers have, the topmost first, to the directory `target`, anew.

    Returns path in the image -> path of the copy, for every file and directory that this machine does not have itself.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for layer in reversed(layers):
        for parent, directories, names in os.walk(layer):
            copied = target / os.path.relpath(parent, layer)
            copied.mkdir(exist_ok=True)
            for name in names + [name for name in directories if Path(parent, name).is_symlink()]:
                _copy(Path(parent, name), copied / name)
    return _replaced_paths(target)


def _copy(source: Path, target: Path) -> None:
    mode = source.lstat().st_mode
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    if stat.S_ISREG(mode) or stat.S_ISLNK(mode):  # a device is a whiteout
        shutil.copy2(source, target, follow_symlinks=False)


def _replaced_paths(target: Path) -> dict[str, str]:
    found = {}
    for parent, directories, names in os.walk(target):
        inside = "/" + os.path.relpath(parent, target).lstrip(".").lstrip("/")
        for name in [*names, *directories]:
            path = os.path.join(inside, name)  # noqa: PTH118 - text
            if not os.path.exists(path):  # noqa: PTH110
                found[path] = os.path.join(parent, name)  # noqa: PTH118
        directories[:] = [name for name in directories if os.path.join(inside, name) not in found]  # noqa: PTH118
    return found
