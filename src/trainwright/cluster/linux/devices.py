"""The /dev of a container: the devices that every container has, terminals of its own, and the devices that it was
given. Standard library only."""

import os

from trainwright.cluster.linux import mounts

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}
_MASKED = (
    "/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
    "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap",
    "/sys/firmware",
)  # fmt: skip


def make_dev(dev: str, *, devices: list[str], shared_memory: str) -> None:
    """Fills the directory `dev`; `devices` are those besides the usual ones, as paths below /dev.

    All are those of the host, because only root may make others.
    """
    mounts.mount("tmpfs", dev, "tmpfs", mounts.NOSUID | mounts.NOEXEC, "mode=755,size=64k")
    for path in (*_DEVICES, *devices):
        _add_device(path, dev + path.removeprefix("/dev"))
    for name, target in _LINKS.items():
        os.symlink(target, f"{dev}/{name}")
    _make_terminals(dev)
    _share_memory(dev, shared_memory)


def share_host_dev(dev: str, *, shared_memory: str) -> None:
    """For a privileged container: all devices of the host."""
    mounts.bind("/dev", dev)
    _share_memory(dev, shared_memory)


def protect_kernel_files(root: str) -> None:
    """Hides or write-protects what root could use to change the machine. In the scratch directory.

    Container runtimes protect some directories of /proc. Here everything is but the directories of processes, which
    programs write to (CUDA names its threads there): modes and owners of the other files are those of the machine.
    """
    for path in _MASKED:
        place = root + path
        if os.path.isdir(place):
            mounts.hide(place)
        elif os.path.exists(place):
            bind_device("/dev/null", place)
    # What is mounted from a read-only mount is read-only: half as many system calls. That mount goes with the old root.
    source = os.path.abspath("memory/proc")
    os.mkdir(source)
    mounts.bind(f"{root}/proc", source)
    mounts.restrict(source, mounts.RDONLY, recursive=False)
    for entry in os.scandir(source):
        if not entry.name.isdigit() and f"/proc/{entry.name}" not in _MASKED and not entry.is_symlink():
            mounts.bind(entry.path, f"{root}/proc/{entry.name}")


def bind_device(source: str, target: str) -> None:
    """Programs read and write the device, but cannot change its mode and owner, which are those of the machine."""
    mounts.bind(source, target)
    mounts.restrict(target, mounts.RDONLY, recursive=False)


def _add_device(source: str, target: str) -> None:
    if os.path.exists(source):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "xb"):
            pass
        bind_device(source, target)


def _make_terminals(dev: str) -> None:
    os.mkdir(f"{dev}/pts")
    flags = mounts.NOSUID | mounts.NOEXEC
    try:
        mounts.mount("devpts", f"{dev}/pts", "devpts", flags, "newinstance,ptmxmode=0666,mode=0620")
    except OSError:  # in a container that forbids it
        if not os.path.isdir("/dev/pts"):
            return
        mounts.bind("/dev/pts", f"{dev}/pts")
    os.symlink("pts/ptmx", f"{dev}/ptmx")


def _share_memory(dev: str, shared_memory: str) -> None:
    if not os.path.isdir(f"{dev}/shm"):
        try:
            os.mkdir(f"{dev}/shm")
        except OSError:
            return  # the /dev of a host without shared memory
    mounts.bind(shared_memory, f"{dev}/shm")
