"""This Python, executed from a copy in memory that cannot be changed.

A process that becomes the program of a container has the machine's Python at /proc/self/exe until the last moment. If
that program is /proc/self/exe itself, or a link or script that leads there, it runs with the machine's file open to it:
root could change its mode and content. The copy has neither a name nor a use elsewhere. Standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys

from trainwright.cluster.linux.mounts import libc

_MFD_EXEC = 0x10
_F_ADD_SEALS, _F_GET_SEALS = 1033, 1034
_SEALS = 0x1 | 0x2 | 0x4 | 0x8  # seal, shrink, grow, write
_F_SEAL_EXEC = 0x20  # its mode: one container must not make it unusable for others
_PR_SET_NAME = 15
_LIBRARIES, _SAVED_LIBRARIES = "LD_LIBRARY_PATH", "TRAINWRIGHT_LD_LIBRARY_PATH"


def ensure_sealed() -> None:
    """Returns in a process that runs from the copy: starts this program again if it does not.

    To be called first, because what has happened before happens twice. Raises OSError where the machine forbids to
    execute memory (vm.memfd_noexec=2).
    """
    if is_sealed():
        _restore_environment()
        name = os.path.basename(sys.executable).encode()
        libc.prctl(_PR_SET_NAME, name, 0, 0, 0)  # the kernel's own choice is the number of a descriptor
        return
    if _SAVED_LIBRARIES in os.environ:  # started again, and still the file of the machine
        raise OSError(errno.ENOSYS, "/proc/self/exe does not show the program")
    program = os.path.realpath("/proc/self/exe")
    os.execve(_sealed_copy(), [sys.executable, *sys.orig_argv[1:]], _environment(program))  # noqa: S606


def is_sealed() -> bool:
    descriptor = os.open("/proc/self/exe", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return fcntl.fcntl(descriptor, _F_GET_SEALS) & _SEALS == _SEALS
    except OSError:
        return False  # a file of this machine
    finally:
        os.close(descriptor)


def _sealed_copy() -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        copy = os.memfd_create("python", flags | _MFD_EXEC)
    except OSError:  # kernels before 6.3
        copy = os.memfd_create("python", flags)
    original = os.open("/proc/self/exe", os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(original).st_size
        offset = 0
        while offset < size:
            offset += os.sendfile(copy, original, offset, size - offset)
    finally:
        os.close(original)
    try:
        fcntl.fcntl(copy, _F_ADD_SEALS, _SEALS | _F_SEAL_EXEC)
    except OSError:  # kernels before 6.3
        fcntl.fcntl(copy, _F_ADD_SEALS, _SEALS)
    return copy


def _environment(program: str) -> dict[str, str]:
    """An installation may name its libraries relative to the program ($ORIGIN/../lib), which the copy is not beside."""
    libraries = os.path.join(os.path.dirname(os.path.dirname(program)), "lib")
    before = os.environ.get(_LIBRARIES, "")
    return {
        **os.environ,
        _SAVED_LIBRARIES: before,
        _LIBRARIES: f"{before}:{libraries}" if before else libraries,
    }


def _restore_environment() -> None:
    saved = os.environ.pop(_SAVED_LIBRARIES, None)
    if saved:
        os.environ[_LIBRARIES] = saved
    elif saved is not None:
        os.environ.pop(_LIBRARIES, None)
