"""Mounts of the calling process: the system calls, and the table of mounts. Standard library only."""

import ctypes
import errno
import os

RDONLY = 0x1
NOSUID = 0x2
NODEV = 0x4
NOEXEC = 0x8
_REMOUNT = 0x20
BIND = 0x1000
REC = 0x4000
PRIVATE = 0x40000
SLAVE = 0x80000
RELATIME = 0x200000
_ST_RELATIME = 0x1000
# nosuid, nodev, noexec, noatime and nodiratime: an unprivileged user may not drop them.
_ST_KEPT = 0x2 | 0x4 | 0x8 | 0x400 | 0x800
_DETACH = 0x2
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}
_SYS_MOUNT_SETATTR = 442
_AT_RECURSIVE = 0x8000

libc = ctypes.CDLL(None, use_errno=True)

Mount = tuple[str, str, str, str]
"""Device, root in its file system, mount point and type."""


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace", ctypes.c_uint64),
    )


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    encoded = [os.fsencode(text) if text is not None else None for text in (source, target, kind, options)]
    result = libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    check(result, f"mount {kind or source or 'flags'} on {target}")


def bind(source: str, target: str) -> None:
    mount(source, target, None, BIND | REC)


def make_read_only(target: str) -> None:
    """The mount at this path and all below it."""
    restrict(target, RDONLY)


def restrict(target: str, flags: int, *, recursive: bool = True) -> None:
    """Adds flags (RDONLY, NODEV, NOSUID) to the mount at this path and, if `recursive`, to all below it."""
    attributes = _MountAttributes(set=flags)
    size = ctypes.sizeof(attributes)
    here = _AT_RECURSIVE if recursive else 0
    arguments = (ctypes.c_long(_SYS_MOUNT_SETATTR), -100, os.fsencode(target), here)
    if libc.syscall(*arguments, ctypes.byref(attributes), ctypes.c_size_t(size)) == 0:
        return
    real = os.path.realpath(target)
    below = [point for _, _, point, _ in read_mounts() if is_below(point, [real])] if recursive else []
    for point in (real, *below):  # kernels before 5.12
        present = os.statvfs(point).f_flag
        kept = (present & (_ST_KEPT | RDONLY)) | (RELATIME if present & _ST_RELATIME else 0)
        mount(None, point, None, BIND | _REMOUNT | flags | kept)


def hide(directory: str) -> None:
    """Covers it with an empty one that cannot be written to."""
    mount("tmpfs", directory, "tmpfs", RDONLY | NOSUID | NODEV, "size=4k,nr_inodes=2")


def unmount(target: str) -> None:
    """Now, or when it is no longer in use."""
    check(libc.umount2(os.fsencode(target), _DETACH), f"unmount {target}")


def pivot_root(new: str, old: str) -> None:
    number = _SYS_PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"change the root directory: unknown processor {os.uname().machine}")
    check(libc.syscall(ctypes.c_long(number), os.fsencode(new), os.fsencode(old)), "change the root directory")


def check(result: int, step: str) -> int:
    """The result of a system call; raises OSError if it has failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot {step}: {os.strerror(number)}")
    return result


def read_mounts() -> list[Mount]:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        return [_parse_mount(line) for line in lines]


def _parse_mount(line: str) -> Mount:
    fields, _, rest = line.partition(" - ")
    device, root, point = fields.split()[2:5]
    return device, _unescape(root), _unescape(point), rest.split()[0]


def _unescape(path: str) -> str:
    if "\\" not in path:
        return path
    for octal in ("040", "011", "012", "134"):
        path = path.replace(f"\\{octal}", chr(int(octal, 8)))
    return path


def is_below(path: str, directories: list[str]) -> bool:
    return any(path.startswith(directory.rstrip("/") + "/") for directory in directories)
