"""What the node reads of a stored image: its configuration, a few of its files, and at sandbox plain its layers.

Nothing can be mounted at `plain`: an image over this machine's files is copied to the directory of the pod, and the
paths of the copy replace those of the image in command, args and env.
"""

import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path

from trainwright.cluster.images.formats import HOST_FILES_LABEL
from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.store import Image
from trainwright.cluster.linux.safe_paths import open_beneath
from trainwright.cluster.node.pods.config.container_image import (
    Accounts,
    ContainerImage,
    parse_environment,
    parse_stop_signal,
)

_LARGEST_FILE = 1 << 20
_LIBRARY_DIRECTORIES = (
    "/usr/lib/x86_64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/lib64",
)


def read_image(image: Image, reference: ImageReference) -> ContainerImage:
    """Without its files."""
    config = image.config.config
    return ContainerImage(
        image_id=f"{reference.name}@{image.registry_digest}",
        host_files=config.labels.get(HOST_FILES_LABEL) == "true",
        entrypoint=tuple(config.entrypoint or ()),
        command=tuple(config.cmd or ()),
        environment=parse_environment(config.env),
        working_directory=config.working_dir,
        user=config.user,
        volumes=tuple(config.volumes),
        stop_signal=parse_stop_signal(config.stop_signal),
    )


def read_accounts(image: ContainerImage, layers: list[Path], home: str) -> ContainerImage:
    """The image with the directories of its layers, the topmost first, and what its files say."""
    accounts = Accounts.parse(_read(layers, "etc/passwd"), _read(layers, "etc/group"))
    libraries = [path for path in _LIBRARY_DIRECTORIES if any(Path(f"{layer}{path}").is_dir() for layer in layers)]
    return replace(
        image,
        layers=tuple(map(str, layers)),
        accounts=accounts,
        library_directory=libraries[0] if libraries else "/usr/lib",
        covers_home=image.host_files and home != "/" and any(Path(f"{layer}{home}").is_dir() for layer in layers),
    )


def _read(layers: list[Path], path: str) -> str:
    """The content in the topmost layer that has the file; empty if none has."""
    for layer in layers:
        if not os.path.lexists(layer / path):
            continue
        try:
            found = open_beneath(str(layer), path)
            try:
                if not stat.S_ISREG(os.fstat(found).st_mode):
                    return ""  # removed by this layer
                with open(f"/proc/self/fd/{found}", "rb") as file:  # noqa: PTH123 - a descriptor
                    return file.read(_LARGEST_FILE).decode("utf-8", "replace")
            finally:
                os.close(found)
        except OSError:
            return ""  # not readable
    return ""


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
