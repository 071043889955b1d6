"""What this machine has: processors, memory, GPUs, the disk of the node, and open files.

Each pod needs some open files of the cluster process, and so does each connection. The usual soft limit of 1,024 is for
programs that use `select`; this one raises its own to the hard limit. Pods get the limit with which the cluster was
started.
"""

import os
import platform
import resource
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

from trainwright.cluster.node.devices.allocation import GPU_RESOURCE
from trainwright.cluster.node.devices.nvidia import Gpu, read_gpus

_MIN_AVAILABLE_BYTES = 256 * 1024 * 1024
_MIN_AVAILABLE_INODES = 1000
_MIN_SHARE = 10
"""On a small disk a tenth of it is enough."""
_MOST = 1 << 20
_MAX_PODS = 1000
_PER_POD = 3
"""A descriptor of its supervisor, and those of a followed log or a session."""
_RESERVED = 512
"""For the store, the connections of controllers and clients, and forwarded Services."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    hostname: str
    cpus: int
    memory: int
    disk: int
    pods: int
    boot_id: str
    machine_id: str
    kernel: str
    os_image: str
    architecture: str
    gpus: tuple[Gpu, ...] = ()

    @property
    def allocatable(self) -> dict[str, Fraction]:
        amounts = {"cpu": self.cpus, "memory": self.memory, "ephemeral-storage": self.disk}
        if self.gpus:
            amounts[GPU_RESOURCE] = len(self.gpus)
        return {name: Fraction(amount) for name, amount in amounts.items()}


def read_machine(directory: Path) -> Machine:
    """`directory` is the node's: the disk of its pods is the ephemeral storage."""
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return Machine(
        hostname=platform.node(),
        cpus=len(os.sched_getaffinity(0)),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        disk=read_disk(directory).size,
        pods=most_pods(),
        boot_id=read_text("/proc/sys/kernel/random/boot_id").strip(),
        machine_id=read_text("/etc/machine-id").strip(),
        kernel=platform.release(),
        os_image=_os_name(),
        architecture=architecture,
        gpus=read_gpus(),
    )


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return "Linux"


def read_text(path: str) -> str:
    """Empty if the file cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


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


@cache
def raise_limit() -> int:
    """Raises the limit of this process once; returns the one before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return soft


def most_pods() -> int:
    """How many pods this process can serve."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MAX_PODS
    return max(1, min(_MAX_PODS, (soft - _RESERVED) // _PER_POD))
