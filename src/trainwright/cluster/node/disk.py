"""The disk of the node: whether it is almost full, and what users can do about it."""

import os
from dataclasses import dataclass
from pathlib import Path

_MIN_AVAILABLE_BYTES = 256 * 1024 * 1024
_MIN_AVAILABLE_INODES = 1000
_MIN_SHARE = 10
"""On a small disk a tenth of it is enough."""


@dataclass(frozen=True, slots=True)
class Disk:
    directory: Path
    """The node's."""
    available: int
    """Bytes."""
    size: int
    available_inodes: int
    inodes: int
    """0 on file systems that do not count them."""

    @property
    def is_almost_full(self) -> bool:
        return self._has_few_inodes or self.available < min(_MIN_AVAILABLE_BYTES, self.size // _MIN_SHARE)

    @property
    def summary(self) -> str:
        left = f"{self.available_inodes} inodes" if self._has_few_inodes else _mebibytes(self.available)
        size = f"{self.inodes}" if self._has_few_inodes else _mebibytes(self.size)
        return f"{left} of {size} are available in {self.directory}"

    @property
    def _has_few_inodes(self) -> bool:
        return self.available_inodes < min(_MIN_AVAILABLE_INODES, self.inodes // _MIN_SHARE)


def read_disk(directory: Path) -> Disk:
    """`directory` is the node's."""
    found = os.statvfs(directory)
    return Disk(
        directory, found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, found.f_favail, found.f_files
    )


def how_to_free(directory: Path) -> str:
    """`directory` is the node's."""
    volumes = directory.parent / "volumes"
    jobs = "finished jobs with their logs and files (`trainwright delete`)"
    return f"free space on the disk of {directory}: delete {jobs}, volumes in {volumes} or other files"


def _mebibytes(size: int) -> str:
    return f"{size / 1024 / 1024:.0f} MiB"
