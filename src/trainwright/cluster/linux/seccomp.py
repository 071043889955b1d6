"""The filter of a container's system calls (seccomp), which every later child inherits.

Some calls are refused, because they reach what no namespace separates. A new user namespace gives its creator all
capabilities in it, with which root mounts the control groups of the machine and lifts its limits; keyrings are those of
the user, not of the container; a file handle names a file of a file system, whatever is mounted where. Calls that name
the address of a socket are answered by the pod's supervisor, which gives each pod ports of its own. Standard library
only.
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
_NEW_LISTENER = 8
_WAIT_KILLABLE = 32  # from Linux 5.19 on: a signal does not interrupt a call that the listener has received
_PR_SET_NO_NEW_PRIVS = 38
_ALLOW, _ERRNO, _NOTIFY = 0x7FFF0000, 0x00050000, 0x7FC00000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_SENDTO_ADDRESS = 16 + 4 * 8
_X32_BIT = 0x40000000

BIND, CONNECT, SENDTO = "bind", "connect", "sendto"


class Calls:
    """The numbers of the filtered system calls of one architecture, and its own number."""

    def __init__(
        self,
        architecture: int,
        *,
        clone: int,
        unshare: int,
        refused: tuple[int, ...],
        sockets: dict[int, str],
        socketcall: int | None = None,
        x32: bool = False,
    ):
        self.architecture = architecture
        self.with_flags = (clone, unshare)
        """Refused if their first argument asks for a user namespace."""
        self.refused = refused
        """add_key, request_key, keyctl and open_by_handle_at."""
        self.sockets = sockets
        """BIND, CONNECT and SENDTO by number."""
        self.socketcall = socketcall
        """The older call for all calls of sockets: its first argument is one of `SOCKETCALLS`, its second a pointer to
        the arguments."""
        self.x32 = x32
        """A second set of numbers for the same calls, which no program here needs, is refused."""


_CLONE3 = 435
"""The same number everywhere. Its flags are in memory, which a filter cannot read: libraries use clone without it."""

SOCKETCALLS = {2: BIND, 3: CONNECT, 11: SENDTO}

_MACHINES = {
    "x86_64": (
        317,
        Calls(
            0xC000003E,
            clone=56,
            unshare=272,
            refused=(248, 249, 250, 304),
            sockets={49: BIND, 42: CONNECT, 44: SENDTO},
            x32=True,
        ),
        Calls(
            0x40000003,
            clone=120,
            unshare=310,
            refused=(286, 287, 288, 342),
            sockets={361: BIND, 362: CONNECT, 369: SENDTO},
            socketcall=102,
        ),
    ),
    "aarch64": (
        277,
        Calls(
            0xC00000B7,
            clone=220,
            unshare=97,
            refused=(217, 218, 219, 265),
            sockets={200: BIND, 203: CONNECT, 206: SENDTO},
        ),
        Calls(
            0x40000028,
            clone=120,
            unshare=337,
            refused=(309, 310, 311, 371),
            sockets={282: BIND, 283: CONNECT, 290: SENDTO},
        ),
    ),
}
"""By processor: the number of seccomp itself, and the architectures whose programs it runs, its own first."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def architectures() -> tuple[Calls, ...]:
    """Those of this machine's programs, its own first; none on other processors than x86_64 and aarch64."""
    machine = _MACHINES.get(os.uname().machine)
    return machine[1:] if machine is not None else ()


def filter_system_calls(*, refuse: bool = True, notify: bool = False) -> int | None:
    """For this process and its later children, for good. Without CAP_SYS_ADMIN it sets no_new_privs.

    `refuse` the calls that reach out of a container; `notify` a listener of the calls that name the address of a
    socket: its descriptor is returned. On other processors than x86_64 and aarch64 it does nothing.
    """
    machine = _MACHINES.get(os.uname().machine)
    if machine is None or not (refuse or notify):
        return None
    number, *known = machine
    code = assemble(known, refuse=refuse, notify=notify)
    program = ctypes.byref(_Program(len(code) // 8, code))
    if notify:
        return _install_with_listener(number, program)
    if _seccomp(number, _SPEC_ALLOW, program) < 0:
        # Kernels without the flag, or that know filters by the older call alone.
        check(libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, program, 0, 0), "filter the system calls")
    return None


def _install_with_listener(number: int, program: object) -> int:
    result = _seccomp(number, _SPEC_ALLOW | _NEW_LISTENER | _WAIT_KILLABLE, program)
    if result < 0 and ctypes.get_errno() == errno.EACCES:
        check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "forbid new privileges")
        result = _seccomp(number, _SPEC_ALLOW | _NEW_LISTENER | _WAIT_KILLABLE, program)
    if result < 0 and ctypes.get_errno() == errno.EINVAL:
        result = _seccomp(number, _SPEC_ALLOW | _NEW_LISTENER, program)
    return check(result, "listen to system calls")


def _seccomp(number: int, flags: int, program: object) -> int:
    return int(libc.syscall(ctypes.c_long(number), _SET_MODE_FILTER, ctypes.c_long(flags), program))


def assemble(architectures: list[Calls], *, refuse: bool = True, notify: bool = False) -> bytes:
    """The filter as a program for the kernel. Pure."""
    code = _load(_ARCHITECTURE)
    for calls in architectures:
        block = b"".join(_checks(calls, refuse=refuse, notify=notify))
        code += _jump(_EQUAL, calls.architecture, unless=len(block) // 8) + block
    return code + _fail(errno.ENOSYS)


def _checks(calls: Calls, *, refuse: bool, notify: bool) -> Iterator[bytes]:
    yield _load(_NUMBER)
    if calls.x32:
        yield _jump(_AT_LEAST, _X32_BIT, unless=1) + _fail(errno.ENOSYS)
    if notify:
        yield from _notifications(calls)
    if refuse:
        yield from _refusals(calls)
    yield _allow()


def _notifications(calls: Calls) -> Iterator[bytes]:
    for number, name in calls.sockets.items():
        if name == SENDTO:  # `send` is the same call without an address, which is all that a filter can tell
            block = _load(_SENDTO_ADDRESS) + _jump(_EQUAL, 0, unless=2)
            block += _load(_SENDTO_ADDRESS + 4) + _instruction(_EQUAL, 0, then=1) + _notify() + _allow()
        else:
            block = _notify()
        yield _jump(_EQUAL, number, unless=len(block) // 8) + block
    if calls.socketcall is not None:
        block = _load(_FIRST_ARGUMENT)
        block += b"".join(_jump(_EQUAL, number, unless=1) + _notify() for number in SOCKETCALLS) + _allow()
        yield _jump(_EQUAL, calls.socketcall, unless=len(block) // 8) + block


def _refusals(calls: Calls) -> Iterator[bytes]:
    for number in calls.refused:
        yield _jump(_EQUAL, number, unless=1) + _fail(errno.EPERM)
    yield _jump(_EQUAL, _CLONE3, unless=1) + _fail(errno.ENOSYS)
    for number in calls.with_flags:
        flags = _load(_FIRST_ARGUMENT) + _jump(_ANY_BIT, CLONE_NEWUSER, unless=1) + _fail(errno.EPERM) + _allow()
        yield _jump(_EQUAL, number, unless=len(flags) // 8) + flags


def _load(offset: int) -> bytes:
    return _instruction(_LOAD, offset)


def _jump(condition: int, value: int, *, unless: int) -> bytes:
    """Goes on with the next instruction if the condition holds, else skips some."""
    return _instruction(condition, value, otherwise=unless)


def _notify() -> bytes:
    return _instruction(_RETURN, _NOTIFY)


def _fail(number: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | number)


def _allow() -> bytes:
    return _instruction(_RETURN, _ALLOW)


def _instruction(code: int, value: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)
