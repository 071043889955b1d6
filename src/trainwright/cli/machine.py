"""What this machine has, and has left: disk, memory, open files, GPUs."""

import resource
import shutil
from pathlib import Path

_LOW_BYTES = 2 * 2**30


def existing(path: Path) -> Path:
    """The path, or its nearest parent that exists."""
    return next((parent for parent in (path, *path.parents) if parent.exists()), Path("/"))


def free_disk(path: Path) -> str:
    """`12.3 GiB free of 100.0 GiB`"""
    usage = shutil.disk_usage(existing(path))
    return f"{_gib(usage.free)} free of {_gib(usage.total)}"


def is_disk_low(path: Path) -> bool:
    return shutil.disk_usage(existing(path)).free < _LOW_BYTES


def memory() -> tuple[int, int]:
    """Total and available bytes."""
    values = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        values[name] = int(rest.split()[0]) * 1024
    return values.get("MemTotal", 0), values.get("MemAvailable", 0)


def free_memory() -> str:
    """`3.1 GiB available`"""
    return f"{_gib(memory()[1])} available"


def has_gpu() -> bool:
    return Path("/dev/nvidiactl").exists()


def open_file_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
