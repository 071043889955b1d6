"""The files that a run left on this machine: in the volumes of its pods, its working directory and the user's home.

Pods share these places with other programs, and Linux does not record who wrote a file. So files are found by their
times, and those that another program has open for writing are left out.
"""

import os
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwright.cli.follow.texts.private_file_lines import format_size

_MAX_ENTRIES = 20_000
_MAX_SECONDS, _MAX_HOME_SECONDS = 0.5, 0.2
_SHOWN = 8
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "env"})
_MODELS = (
    ".bin", ".ckpt", ".distcp", ".gguf", ".h5", ".hdf5", ".joblib", ".keras", ".mar", ".model", ".msgpack", ".npy",
    ".npz", ".onnx", ".pb", ".pdmodel", ".pdopt", ".pdparams", ".pickle", ".pkl", ".pt", ".pth", ".safetensors",
    ".tflite", ".ubj",
)  # fmt: skip
_LATE_SECONDS = 1.0
"""Times of files and of the end of a program come from different clocks."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    path: Path
    size: int


def written_files(
    directory: Path,
    since: float,
    until: float | None = None,
    *,
    skip: Collection[Path] = (),
    own: Collection[int] = (),
    models: bool = False,
) -> list[WrittenFile]:
    """The files below a directory that were written in that time; the biggest first. With `models` only those whose
    names end as models and checkpoints do.

    Hidden files, caches, environments and the directories of `skip` are skipped, and files that a process has open for
    writing that is not one of `own`. The search ends after some time: a directory may be huge.
    """
    found: dict[tuple[int, int], WrittenFile] = {}
    deadline = time.monotonic() + (_MAX_HOME_SECONDS if models else _MAX_SECONDS)
    for number, entry in enumerate(_walk(directory, {str(path) for path in skip})):
        if number >= _MAX_ENTRIES or time.monotonic() > deadline:
            break
        try:
            info = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # deleted meanwhile
        in_time = since <= info.st_mtime and (until is None or info.st_mtime <= until + _LATE_SECONDS)
        if in_time and (not models or entry.name.endswith(_MODELS)):
            found[info.st_dev, info.st_ino] = WrittenFile(Path(entry.path), info.st_size)
    for key in _open_for_writing(found, own):
        del found[key]
    return sorted(found.values(), key=lambda file: (-file.size, file.path))


def written_file_lines(files: Sequence[WrittenFile], directory: Path) -> list[str]:
    """`  model.pt  1.7 MiB`, relative to the directory; many files are summed up."""
    if not files:
        return []
    shown = files[:_SHOWN]
    names = [str(file.path.relative_to(directory)) for file in shown]
    width = min(max(map(len, names)), 60)
    lines = [f"  {name:<{width}}  {format_size(file.size)}" for name, file in zip(names, shown, strict=True)]
    if rest := len(files) - len(shown):
        lines.append(f"  and {rest} more, {format_size(sum(file.size for file in files))} in all")
    return lines


def _open_for_writing(files: Collection[tuple[int, int]], own: Collection[int]) -> set[tuple[int, int]]:
    """Those of the files, by device and inode, that other processes have open for writing, as far as we may see it."""
    found: set[tuple[int, int]] = set()
    for process in Path("/proc").iterdir() if files else ():
        if not process.name.isdecimal() or int(process.name) in own:
            continue
        try:
            for descriptor in (process / "fd").iterdir():
                info = descriptor.stat()
                key = info.st_dev, info.st_ino
                if key in files and _is_writable(process / "fdinfo" / descriptor.name):
                    found.add(key)
        except OSError:
            continue  # of another user, or ended meanwhile
    return found


def _is_writable(descriptor: Path) -> bool:
    lines = descriptor.read_text().splitlines()
    flags = next((line.split()[1] for line in lines if line.startswith("flags:")), "0")
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def _walk(directory: Path, skip: Collection[str]) -> Iterator["os.DirEntry[str]"]:
    """All files, those of upper directories first."""
    pending = [str(directory)]
    while pending:
        try:
            entries = sorted(os.scandir(pending.pop(0)), key=lambda entry: entry.name)
        except OSError:
            continue  # not allowed to list, or deleted meanwhile
        for entry in entries:
            if entry.name.startswith(".") or entry.name in _SKIPPED:
                continue
            if entry.is_dir(follow_symlinks=False):
                if entry.path not in skip and not Path(entry.path, "pyvenv.cfg").exists():
                    pending.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                yield entry
