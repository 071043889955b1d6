"""System calls that wait for the answer of another process (seccomp user notification).

The kernel stops a thread whose call the filter sends to the listener, until the listener answers it. Standard library
only.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import struct

from trainwright.cluster.linux.mounts import libc
from trainwright.cluster.linux.seccomp import SOCKETCALLS, architectures

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Iterator

_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_RESPONSE = struct.Struct("=QqiI")
_CONTINUE = 1
_64_BITS = 0x80000000
"""The bit of architectures whose arguments have so many."""
_SYS_PIDFD_OPEN, _SYS_PIDFD_GETFD = 434, 438  # the same numbers everywhere
_PIDFD_THREAD = os.O_EXCL  # from Linux 6.9 on
_GONE = {errno.ENOENT, errno.EINTR}


class SocketCall:
    """A call of a thread that waits: its name, and its arguments as the kernel got them."""

    def __init__(self, identity: int, thread: int, name: str, arguments: tuple[int, ...]) -> None:
        self.identity = identity
        self.thread = thread
        self.name = name
        self.arguments = arguments


class CallListener:
    """The listener of one filter, whose descriptor it owns."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._calls = {calls.architecture: calls for calls in architectures()}
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def close(self) -> None:
        """Calls that wait, and all later ones, fail with ENOSYS."""
        os.close(self.descriptor)

    @property
    def has_processes(self) -> bool:
        """False when the last process that has the filter has ended; to receive would then wait for ever."""
        return all(events & select.POLLIN for _, events in self._poll.poll(0))

    def receive(self) -> SocketCall | None:
        """The next call, if the descriptor is readable; None if its thread has ended meanwhile."""
        buffer = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self.descriptor, _RECEIVE, buffer)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise
        identity, thread, _, number, architecture, _, *arguments = _NOTIFICATION.unpack(buffer)
        calls = self._calls[architecture]
        if not architecture & _64_BITS:  # a program of 64 bits may make such calls, with anything in the upper half
            arguments = [argument & 0xFFFFFFFF for argument in arguments]
        name = calls.sockets.get(number)
        if name is None:  # socketcall: its arguments are in memory, as words of 32 bits
            name = SOCKETCALLS[arguments[0]]
            words = read_memory(thread, arguments[1], 6 * 4)
            arguments = list(struct.unpack("=6I", words)) if words is not None else [0] * 6
        return SocketCall(identity, thread, name, tuple(arguments))

    def is_waiting(self, call: SocketCall) -> bool:
        """False if the thread has ended or was interrupted; another one may have its id now."""
        try:
            fcntl.ioctl(self.descriptor, _IS_VALID, struct.pack("=Q", call.identity))
        except OSError:
            return False
        return True

    def proceed(self, call: SocketCall) -> None:
        """Lets the kernel do what the thread asked for."""
        self._send(_RESPONSE.pack(call.identity, 0, 0, _CONTINUE))

    def answer(self, call: SocketCall, result: int) -> bool:
        """`result` is a value, or an errno as a negative number. False if the call was interrupted before."""
        value, error = (result, 0) if result >= 0 else (0, result)
        return self._send(_RESPONSE.pack(call.identity, value, error, 0))

    def _send(self, response: bytes) -> bool:
        try:
            fcntl.ioctl(self.descriptor, _SEND, response)
        except OSError as error:
            if error.errno in _GONE:
                return False
            raise
        return True


def read_memory(thread: int, address: int, size: int) -> bytes | None:
    """What another process has at an address; None if it cannot be read."""
    buffer = ctypes.create_string_buffer(size)
    here, there = (ctypes.byref(_Span(start, size)) for start in (ctypes.addressof(buffer), address))
    one, no_flags = ctypes.c_ulong(1), ctypes.c_ulong(0)
    count = libc.process_vm_readv(thread, here, one, there, one, no_flags)
    return buffer.raw if count == size else None


class _Span(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def copy_descriptor(thread: int, number: int, proc: str | None) -> int:
    """A descriptor of this process for the open file of another one. `proc` is its /proc. Raises OSError."""
    for process, flags in _pidfd_candidates(thread, proc):
        pidfd = libc.syscall(ctypes.c_long(_SYS_PIDFD_OPEN), process, flags)
        if pidfd >= 0:
            break
    else:
        raise OSError(ctypes.get_errno(), "the thread has ended")
    try:
        copy = libc.syscall(ctypes.c_long(_SYS_PIDFD_GETFD), pidfd, number, 0)
        if copy < 0:
            raise OSError(ctypes.get_errno(), "the descriptor cannot be copied")
        return int(copy)
    finally:
        os.close(pidfd)


def _pidfd_candidates(thread: int, proc: str | None) -> Iterator[tuple[int, int]]:
    """The thread itself, where the kernel can open it, else its process."""
    yield thread, _PIDFD_THREAD
    yield thread, 0
    if proc is not None:
        yield process_field(thread, proc, "Tgid"), 0


def process_field(thread: int, proc: str, name: str, *, base: int = 10) -> int:
    """A number of /proc/THREAD/status. Raises OSError."""
    with open(f"{proc}/{thread}/status", encoding="ascii", errors="replace") as lines:
        for line in lines:
            key, _, value = line.partition(":")
            if key == name:
                return int(value.split()[0], base)
    raise OSError(errno.ESRCH, f"no {name}")
