"""The files that a run left on this machine: in the volumes of its pods and in its working directory."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwright.cli.follow.private_files import format_size

_MAX_ENTRIES = 20_000
_MAX_SECONDS = 0.5
_SHOWN = 8
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "env"})


@dataclass(frozen=True, slots=True)
class WrittenFile:
    path: Path
    size: int


def written_files(directory: Path, since: float, *, skip: Path | None = None) -> list[WrittenFile]:
    """The files below a directory that were written since that time; the biggest first.

    Hidden files, caches, environments and the directory `skip` are skipped. The search ends after some time: a
    directory may be huge.
    """
    found = []
    deadline = time.monotonic() + _MAX_SECONDS
    for number, entry in enumerate(_walk(directory, str(skip))):
        if number >= _MAX_ENTRIES or time.monotonic() > deadline:
            break
        try:
            info = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # deleted meanwhile
        if info.st_mtime >= since:
            found.append(WrittenFile(Path(entry.path), info.st_size))
    return sorted(found, key=lambda file: (-file.size, file.path))


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


def _walk(directory: Path, skip: str) -> Iterator["os.DirEntry[str]"]:
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
                if entry.path != skip and not Path(entry.path, "pyvenv.cfg").exists():
                    pending.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                yield entry
