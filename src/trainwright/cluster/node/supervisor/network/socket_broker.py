"""Answers the calls of a pod's programs that name the address of a socket, so that the pod has ports of its own.

The filter of every program (`cluster.linux.seccomp`) sends bind, connect and sendto here. The broker takes a copy of
the socket and does with it what the program asked for, at the address of the pod; all other calls proceed as they are,
and so do those of a process that cannot be inspected. This is addressing, not isolation: a program that is not stopped
here uses the ports of the machine. But this process has more rights than the programs, and they are hostile: it does
nothing for them that they could not do themselves, reads only from the thread that waits, and never waits for them.
Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import socket
import stat
import time
from functools import partial

from trainwright.cluster.linux.call_listener import CallListener, copy_descriptor, process_field, read_memory
from trainwright.cluster.linux.mounts import libc
from trainwright.cluster.linux.seccomp import BIND, CONNECT, SENDTO
from trainwright.cluster.node.supervisor.files import receive
from trainwright.cluster.node.supervisor.network import pod_addresses
from trainwright.cluster.node.supervisor.network.pod_addresses import AF_INET6, PodAddresses, SocketAddress

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwright.cluster.linux.call_listener import SocketCall
    from trainwright.cluster.node.supervisor.poller import Poller

_IPPROTO_MPTCP = 262
_PROTOCOLS = {
    (socket.SOCK_STREAM, socket.IPPROTO_TCP),
    (socket.SOCK_STREAM, _IPPROTO_MPTCP),
    (socket.SOCK_DGRAM, socket.IPPROTO_UDP),
}
_INT = 0xFFFFFFFF
"""The bits of an argument that is an int."""
_MAX_DATAGRAM = 65_507
_DATAGRAM_FLAGS = socket.MSG_CONFIRM | socket.MSG_DONTROUTE | socket.MSG_MORE | socket.MSG_EOR
"""No others: with MSG_ZEROCOPY the kernel would send what is in the memory of this process later."""
_HARMLESS_FLAGS = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
_CAP_NET_BIND_SERVICE = 10
_UNPRIVILEGED_PORTS = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
_MAX_TEXT = 2**17
_MAX_UNDELIVERED = 64
_UNDELIVERED_SECONDS = 1.0
_PATIENCE, _AGAIN = 0.1, 0.05
"""Seconds after which a call of this process is interrupted, and between two interruptions."""


class SocketBroker:
    """`proc` is the /proc of the pod's processes, if there is one. `on_bound` gets the port of each TCP socket that was
    bound to the pod's address, `on_taken` one that another socket has."""

    def __init__(
        self,
        addresses: PodAddresses,
        *,
        proc: str | None,
        poller: Poller,
        on_bound: Callable[[int], None] = lambda _: None,
        on_taken: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._addresses = addresses
        self._proc = proc
        self._poller = poller
        self._on_bound = on_bound
        self._on_taken = on_taken
        self._undelivered: dict[tuple[int, tuple[int, ...]], tuple[float, int]] = {}
        """Results of calls that a signal interrupted, with their times: the kernel makes the same call again. Only
        before Linux 5.19."""
        self._received, self._sent = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        signal.signal(signal.SIGALRM, lambda *_: None)
        poller.watch(self._received.fileno(), self._receive_listener, urgent=True)

    def send_listener(self, descriptor: int) -> None:
        """In a child, before it executes a program: hands the listener of its filter to this process."""
        socket.send_fds(self._sent, [b"listener"], [descriptor])
        os.close(descriptor)

    def _receive_listener(self) -> None:
        for descriptor in receive(self._received, 16, 1)[1]:
            self._poller.watch(descriptor, partial(self._on_call, CallListener(descriptor)), urgent=True)

    def _on_call(self, listener: CallListener) -> None:
        if not listener.has_processes:
            self._poller.unwatch(listener.descriptor)
            listener.close()
        elif (call := listener.receive()) is not None:
            result = self._recall(call)
            if result is None:
                result = self._result_of(listener, call)
            if result is None:
                listener.proceed(call)
            elif not listener.answer(call, result):
                self._remember(call, result)

    def _result_of(self, listener: CallListener, call: SocketCall) -> int | None:
        """None if the call shall proceed. Nothing that a program does to its sockets or memory may end or stop this
        process: an error of any kind lets the call proceed, and a timer interrupts what takes long."""
        signal.setitimer(signal.ITIMER_REAL, _PATIENCE, _AGAIN)
        try:
            return self._handle(listener, call)
        except Exception:
            return None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _recall(self, call: SocketCall) -> int | None:
        at, result = self._undelivered.pop((call.thread, call.arguments), (0.0, None))
        return result if time.monotonic() < at + _UNDELIVERED_SECONDS else None

    def _remember(self, call: SocketCall, result: int) -> None:
        if len(self._undelivered) >= _MAX_UNDELIVERED:
            self._undelivered.clear()
        self._undelivered[call.thread, call.arguments] = (time.monotonic(), result)

    def _handle(self, listener: CallListener, call: SocketCall) -> int | None:
        wanted = self._wanted(call)
        if wanted is None or not self._concerns(call.name, wanted):
            return None
        copy = copy_descriptor(call.thread, call.arguments[0] & _INT, self._proc)
        try:
            if not stat.S_ISSOCK(os.fstat(copy).st_mode):
                return None
            own = socket.socket(fileno=copy)
        except OSError:
            os.close(copy)
            raise
        with own:
            if own.family != wanted.family or (own.type, own.proto) not in _PROTOCOLS:
                return None
            if call.name == BIND:
                return self._bind(own, wanted, listener, call)
            if call.name == CONNECT:
                return self._connect(own, wanted, listener, call)
            return self._send(own, wanted, listener, call) if own.type == socket.SOCK_DGRAM else None

    def _wanted(self, call: SocketCall) -> SocketAddress | None:
        """The Internet address that the call names, if it is one."""
        pointer, size = call.arguments[4:6] if call.name == SENDTO else call.arguments[1:3]
        size &= _INT
        data = read_memory(call.thread, pointer, size) if 2 <= size <= pod_addresses.MAX_SIZE else None
        return pod_addresses.parse(data, any_without_family=call.name == BIND) if data is not None else None

    def _concerns(self, name: str, wanted: SocketAddress) -> bool:
        if name == BIND:
            return self._addresses.of_bind(wanted) is not None or self._addresses.is_of_other(wanted)
        if self._addresses.of_connect(wanted):
            return True
        # Programs take an address of the machine's interfaces for their own, which elsewhere is that of their pod.
        first = self._addresses.first
        return name == CONNECT and wanted.is_ipv4 and is_taken(first, wanted.port) and _is_local(wanted.host[-4:])

    def _bind(self, own: socket.socket, wanted: SocketAddress, listener: CallListener, call: SocketCall) -> int | None:
        if self._addresses.is_of_other(wanted):
            return -errno.EADDRNOTAVAIL
        ipv6_only = own.family == AF_INET6 and bool(own.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY))
        target = self._addresses.of_bind(wanted, ipv6_only=ipv6_only)
        if target is None or (wanted.is_ipv4 and ipv6_only):  # the kernel refuses the latter
            return None
        if not self._may_bind(wanted.port, call.thread):
            return -errno.EACCES
        if wanted.is_shared and self._is_advertised(wanted.port, call.thread):
            return None
        if not (_make_dual(own) and listener.is_waiting(call)):
            return None
        result = _result(libc.bind(own.fileno(), target, len(target)))
        if result == 0 and own.type == socket.SOCK_STREAM:
            self._on_bound(wanted.port)
        elif result == -errno.EADDRINUSE:
            self._on_taken(wanted.port)
        return result

    def _connect(
        self, own: socket.socket, wanted: SocketAddress, listener: CallListener, call: SocketCall
    ) -> int | None:
        if own.proto == _IPPROTO_MPTCP:
            return None
        target = self._own_target(own, wanted)
        if target is None or not (_make_dual(own) and listener.is_waiting(call)):
            return None
        flags = fcntl.fcntl(own, fcntl.F_GETFL)
        if own.type != socket.SOCK_STREAM or flags & os.O_NONBLOCK:
            return _result(libc.connect(own.fileno(), target, len(target)))
        # This process must not wait. It begins to connect; the call of the program, which proceeds, then waits for it.
        # A thread of the program may change the flags meanwhile: then the timer interrupts.
        fcntl.fcntl(own, fcntl.F_SETFL, flags | os.O_NONBLOCK)
        try:
            result = _result(libc.connect(own.fileno(), target, len(target)))
        finally:
            fcntl.fcntl(own, fcntl.F_SETFL, flags)
        return None if result in {-errno.EINPROGRESS, -errno.EINTR} else result

    def _send(self, own: socket.socket, wanted: SocketAddress, listener: CallListener, call: SocketCall) -> int | None:
        _, pointer, size, flags, *_ = call.arguments
        target = self._own_target(own, wanted)
        if size > _MAX_DATAGRAM or target is None or flags & _INT & ~(_DATAGRAM_FLAGS | _HARMLESS_FLAGS):
            return None
        data = read_memory(call.thread, pointer, size) if size else b""
        if data is None:
            return -errno.EFAULT
        if not (_make_dual(own) and listener.is_waiting(call)):
            return None
        flags = flags & _DATAGRAM_FLAGS | _HARMLESS_FLAGS
        return _result(libc.sendto(own.fileno(), data, ctypes.c_size_t(size), flags, target, len(target)))

    def _own_target(self, own: socket.socket, wanted: SocketAddress) -> bytes | None:
        """The address of the pod's own socket at this port, if there is one. It may be the socket itself."""
        bound = own.getsockname()
        for host in self._addresses.of_connect(wanted) or [self._addresses.first]:
            is_itself = wanted.port == bound[1] and bound[0].endswith(socket.inet_ntoa(host))
            if is_itself or is_taken(host, wanted.port, own.type):
                return pod_addresses.render(own.family, host, wanted.port)
        return None

    def _may_bind(self, port: int, thread: int) -> bool:
        """This process may be allowed to have ports that the program may not have. The capability counts in the user
        namespace of this process alone."""
        if port >= _first_unprivileged_port() or self._proc is None:  # only root may have such ports, and has a /proc
            return True
        theirs, ours = (os.readlink(f"{self._proc}/{process}/ns/user") for process in (thread, "self"))
        capabilities = process_field(thread, self._proc, "CapEff", base=16)
        return theirs == ours and bool(capabilities >> _CAP_NET_BIND_SERVICE & 1)

    def _is_advertised(self, port: int, thread: int) -> bool:
        if self._proc is None:
            return False
        arguments, variables = (self._read(thread, name) for name in ("cmdline", "environ"))
        return pod_addresses.is_advertised(port, arguments, variables)

    def _read(self, thread: int, name: str) -> bytes:
        with open(f"{self._proc}/{thread}/{name}", "rb", buffering=0) as file:
            return file.read(_MAX_TEXT) or b""


def _make_dual(own: socket.socket) -> bool:
    """Lets a socket of IPv6 have an address of IPv4; False if it is bound already."""
    if own.family != AF_INET6:
        return True
    try:
        if own.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY):
            own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    except OSError:
        return False
    return True


def is_taken(host: bytes, port: int, kind: int = socket.SOCK_STREAM) -> bool:
    """True if a socket of this type has the address: a listener, or one that shares it with no other. Tried by binding,
    which no program of the pod does at the same time, because their calls come here one after the other."""
    with socket.socket(socket.AF_INET, kind) as trial:
        if kind == socket.SOCK_STREAM:  # connections that have ended do not count
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((socket.inet_ntoa(host), port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _is_local(host: bytes) -> bool:
    """True for an address of this machine: the kernel then uses it as that of the sender, too."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
        try:
            trial.connect((socket.inet_ntoa(host), 1))
        except OSError:
            return False
        return bool(trial.getsockname()[0] == socket.inet_ntoa(host))


def _first_unprivileged_port() -> int:
    with open(_UNPRIVILEGED_PORTS, encoding="ascii") as file:
        return int(file.read())


def _result(returned: int) -> int:
    """The errno of a failed call as a negative number."""
    return int(returned) if returned >= 0 else -ctypes.get_errno()
