"""Small disks that tests can fill."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(path: Path, *, size: str = "4m") -> Iterator[Path]:
    """Mounts a file system of this size; skips the test where that is not allowed."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(file: Path) -> None:
    """Writes to the file until not a byte is left on its disk."""
    with file.open("wb", buffering=0) as filler:
        for size in (64 * 1024, 4096, 1):
            try:
                while True:
                    filler.write(b"x" * size)
            except OSError:
                continue
