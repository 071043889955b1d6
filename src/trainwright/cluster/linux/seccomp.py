"""The system calls that a container's processes may not make: a filter (seccomp) that every later child inherits.

They reach what no namespace separates. A new user namespace gives its creator all capabilities in it, with which root
mounts the control groups of the machine and lifts its limits; keyrings are those of the user, not of the container; a
file handle names a file of a file system, whatever is mounted where. Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from trainwright.cluster.linux.mounts import check, libc

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Iterator

CLONE_NEWUSER = 0x10000000

_SET_MODE_FILTER = 1
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_SPEC_ALLOW = 4  # some kernels slow every filtered process down otherwise
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_X32_BIT = 0x40000000


class Calls:
    """The numbers of the filtered system calls of one architecture, and its own number."""

    def __init__(self, architecture: int, *, clone: int, unshare: int, refused: tuple[int, ...], x32: bool = False):
        self.architecture = architecture
        self.with_flags = (clone, unshare)
        """Refused if their first argument asks for a user namespace."""
        self.refused = refused
        """add_key, request_key, keyctl and open_by_handle_at."""
        self.x32 = x32
        """A second set of numbers for the same calls, which no program here needs, is refused."""


_CLONE3 = 435
"""The same number everywhere. Its flags are in memory, which a filter cannot read: libraries use clone without it."""

_MACHINES = {
    "x86_64": (
        317,
        Calls(0xC000003E, clone=56, unshare=272, refused=(248, 249, 250, 304), x32=True),
        Calls(0x40000003, clone=120, unshare=310, refused=(286, 287, 288, 342)),
    ),
    "aarch64": (
        277,
        Calls(0xC00000B7, clone=220, unshare=97, refused=(217, 218, 219, 265)),
        Calls(0x40000028, clone=120, unshare=337, refused=(309, 310, 311, 371)),
    ),
}
"""By processor: the number of seccomp itself, and the architectures whose programs it runs, its own first."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def filter_system_calls() -> None:
    """For this process and its later children, for good. It needs no_new_privs or CAP_SYS_ADMIN.

    On other processors than x86_64 and aarch64 it does nothing.
    """
    machine = _MACHINES.get(os.uname().machine)
    if machine is None:
        return
    number, *architectures = machine
    code = assemble(architectures)
    program = ctypes.byref(_Program(len(code) // 8, code))
    if libc.syscall(ctypes.c_long(number), _SET_MODE_FILTER, ctypes.c_long(_SPEC_ALLOW), program) != 0:
        # Kernels without the flag, or that know filters by the older call alone.
        check(libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, program, 0, 0), "filter the system calls")


def assemble(architectures: list[Calls]) -> bytes:
    """The filter as a program for the kernel. Pure."""
    code = _load(_ARCHITECTURE)
    for calls in architectures:
        block = b"".join(_checks(calls))
        code += _jump(_EQUAL, calls.architecture, unless=len(block) // 8) + block
    return code + _fail(errno.ENOSYS)


def _checks(calls: Calls) -> Iterator[bytes]:
    yield _load(_NUMBER)
    if calls.x32:
        yield _jump(_AT_LEAST, _X32_BIT, unless=1) + _fail(errno.ENOSYS)
    for number in calls.refused:
        yield _jump(_EQUAL, number, unless=1) + _fail(errno.EPERM)
    yield _jump(_EQUAL, _CLONE3, unless=1) + _fail(errno.ENOSYS)
    for number in calls.with_flags:
        flags = _load(_FIRST_ARGUMENT) + _jump(_ANY_BIT, CLONE_NEWUSER, unless=1) + _fail(errno.EPERM) + _allow()
        yield _jump(_EQUAL, number, unless=len(flags) // 8) + flags
    yield _allow()


def _load(offset: int) -> bytes:
    return _instruction(_LOAD, offset)


def _jump(condition: int, value: int, *, unless: int) -> bytes:
    """Goes on with the next instruction if the condition holds, else skips some."""
    return _instruction(condition, value, otherwise=unless)


def _fail(number: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | number)


def _allow() -> bytes:
    return _instruction(_RETURN, _ALLOW)


def _instruction(code: int, value: int, *, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, 0, otherwise, value)
