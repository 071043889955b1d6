"""The private files of a container at `overlay`: what its program wrote neither to a volume nor to the host.

They are in the layers of its scratch directory, see `sandbox`, and stay there when the container has ended. Standard
library only.
"""

from __future__ import annotations

import os
import stat

from trainwright.cluster.linux.trees import remove_tree, try_to_remove, walk

TYPE_CHECKING = False  # importing typing takes four milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_ENTRIES = 20_000
"""How many files and directories of a layer are examined."""

_NOISE_IN_TMP = ("matplotlib-", "ompi.", "prte.", "pymp-", "torch-shm-dir-", "torchelastic_", "torchinductor_")
_NOISE = ("/run/", "/var/", *(f"/tmp/{name}" for name in _NOISE_IN_TMP))  # noqa: S108 - compared, not used
"""Beginnings of paths to which libraries and the system write by themselves."""

_LAYERS = "layers"
_COPIED = f"{_LAYERS}/memory"


def find_private_files(scratch: str) -> Iterator[tuple[str, int, str]]:
    """Path as the program saw it, size and present location of every file that the program created or changed.

    Empty files are not among them, nor bytecode and other files that programs leave without their users' knowledge.
    """
    for upper, path in _layers(f"{scratch}/{_LAYERS}"):
        yield from files_below(upper, path, _originals(upper))


def _originals(upper: str) -> list[str] | None:
    """The directories below the layer, the topmost first; None if that is the host's of the same path."""
    lower = f"{os.path.dirname(upper)}/lower"
    try:
        return [os.path.realpath(f"{lower}/{name}") for name in sorted(os.listdir(lower), key=int)]
    except (OSError, ValueError):
        return None


def files_below(upper: str, path: str, originals: list[str] | None = None) -> Iterator[tuple[str, int, str]]:
    """The same for one directory, which the program saw at `path`. `originals` are what it saw there before, if that
    was not the host's directory."""
    examined = 0
    for parent, directories, names in walk(upper):
        directories.sort()
        seen = os.path.normpath(os.path.join(path, os.path.relpath(parent, upper)))
        examined += 1 + len(names)
        if examined > MAX_ENTRIES:
            return
        for name in sorted(names):
            inside = os.path.relpath(f"{parent}/{name}", upper)
            before = (
                [os.path.join(seen, name)]
                if originals is None
                else [f"{directory}/{inside}" for directory in originals]
            )
            size = _size_if_private(f"{parent}/{name}", os.path.join(seen, name), before)
            if size:
                yield os.path.join(seen, name), size, f"{parent}/{name}"


def keep_private_files(scratch: str) -> None:
    """When the container has ended: keeps its private files and removes the rest of its scratch directory.

    Files in memory are copied to the disk.
    """
    from trainwright.cluster.node.supervisor.sandbox.sandbox import unmount_memory  # readers do not need it

    try:
        _copy_memory(f"{scratch}/memory", f"{scratch}/{_COPIED}")
    except OSError:
        pass  # the disk is full: what has been copied is kept
    unmount_memory(scratch)
    for name in os.listdir(f"{scratch}/{_LAYERS}"):
        layer = f"{scratch}/{_LAYERS}/{name}"
        if _remove_unused(layer):
            continue
        remove_tree(f"{layer}/work")
        if os.path.islink(f"{layer}/path"):
            _prune(f"{layer}/upper", os.readlink(f"{layer}/path"), _originals(f"{layer}/upper"))
        if not os.path.isdir(f"{layer}/upper"):
            remove_tree(layer)
    for directory in (f"{scratch}/memory", f"{scratch}/{_LAYERS}", scratch):
        try_to_remove(directory)


def _remove_unused(layer: str) -> bool:
    """Removes a layer to which nothing was written, as most are, without looking into it. False if it was used."""
    try:
        os.rmdir(f"{layer}/upper")
    except OSError:
        return False
    for path in ("work/work", "work", "path"):
        try_to_remove(f"{layer}/{path}")
    remove_tree(layer)  # with the links to lower layers
    return True


def _layers(directory: str) -> Iterator[tuple[str, str]]:
    """The upper directory of each layer, and the directory that it covers."""
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return  # the container has no layers (any more)
    for name in names:
        try:
            yield f"{directory}/{name}/upper", os.readlink(f"{directory}/{name}/path")
        except OSError:
            continue  # incomplete or removed meanwhile


def _size_if_private(source: str, path: str, originals: list[str]) -> int:
    """0 if the file is none that a user would miss."""
    try:
        status = os.lstat(source)
    except OSError:
        return 0  # removed meanwhile
    if not stat.S_ISREG(status.st_mode) or _is_noise(path):
        return 0
    for original in originals:
        try:
            before = os.lstat(original)
        except OSError:
            continue
        # A program that opens a file for writing gets a copy, even if it then changes nothing.
        unchanged = (before.st_size, before.st_mtime_ns) == (status.st_size, status.st_mtime_ns)
        return 0 if unchanged else status.st_size
    return status.st_size


def _is_noise(path: str) -> bool:
    if path.startswith(_NOISE) and not path.startswith("/var/tmp/"):  # noqa: S108
        return True
    return path.endswith(".pyc")


def _prune(upper: str, path: str, originals: list[str] | None) -> None:
    """Removes other files, and directories without files. A layer that is too big to be examined stays as it is."""
    if sum(1 + len(names) for _, _, names in walk(upper)) > MAX_ENTRIES:
        return
    kept = {source for _, _, source in files_below(upper, path, originals)}
    for parent, directories, names in reversed(list(walk(upper))):
        for name in names:
            if f"{parent}/{name}" not in kept:
                try_to_remove(f"{parent}/{name}")
        for name in directories:
            try_to_remove(f"{parent}/{name}")
    try_to_remove(upper)


def _copy_memory(memory: str, layer: str) -> None:
    """The root directory itself is in memory, and so are layers that could not be made on the disk."""
    for upper, path in [(f"{memory}/root", "/"), *_layers(f"{memory}/layers")]:
        for seen, _, source in files_below(upper, path):
            target = f"{layer}/upper{seen}"
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if not os.path.islink(f"{layer}/path"):
                os.symlink("/", f"{layer}/path")
            with open(source, "rb") as reader, open(target, "xb") as writer:
                while os.sendfile(writer.fileno(), reader.fileno(), None, 1 << 30):
                    pass
