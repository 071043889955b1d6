"""Answers the calls of a pod's programs that name the address of a socket, so that the pod has ports of its own.

The filter of every program (`cluster.linux.seccomp`) sends bind, connect and sendto here. The broker takes a copy of
the socket and does with it what the program asked for, at the address of the pod; all other calls proceed as they are.
This is addressing, not isolation: a program that is not stopped here uses the ports of the machine. Standard library
only.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import stat
from functools import partial

from trainwright.cluster.linux.call_listener import CallListener, copy_descriptor, process_field, read_memory
from trainwright.cluster.linux.mounts import libc
from trainwright.cluster.linux.seccomp import BIND, CONNECT, SENDTO
from trainwright.cluster.node.supervisor.network import pod_addresses
from trainwright.cluster.node.supervisor.network.advertised_ports import is_advertised
from trainwright.cluster.node.supervisor.network.pod_addresses import AF_INET6, PodAddresses, SocketAddress

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwright.cluster.linux.call_listener import SocketCall

_IPPROTO_MPTCP = 262
_PROTOCOLS = {
    (socket.SOCK_STREAM, socket.IPPROTO_TCP),
    (socket.SOCK_STREAM, _IPPROTO_MPTCP),
    (socket.SOCK_DGRAM, socket.IPPROTO_UDP),
}
_INT = 0xFFFFFFFF
"""The bits of an argument that is an int."""
_MAX_DATAGRAM = 65_507
_CAP_NET_BIND_SERVICE = 10
_UNPRIVILEGED_PORTS = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
_MAX_UNDELIVERED = 64
_MAX_TEXT = 2**20
_MAX_HOSTS = 256


class SocketBroker:
    """`proc` is the /proc of the pod's processes, if there is one; `watch` and `unwatch` are those of the supervisor's
    loop. `on_bound` gets the port of each TCP socket that was bound to the pod's address, `on_taken` one that another
    socket has."""

    def __init__(
        self,
        addresses: PodAddresses,
        *,
        proc: str | None,
        watch: Callable[[int, Callable[[], None]], None],
        unwatch: Callable[[int], None],
        on_bound: Callable[[int], None] = lambda _: None,
        on_taken: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._addresses = addresses
        self._proc = proc
        self._watch = watch
        self._unwatch = unwatch
        self._on_bound = on_bound
        self._on_taken = on_taken
        self._undelivered: dict[tuple[int, tuple[int, ...]], int] = {}
        """Results of calls that a signal interrupted: the kernel makes the same call again. Before Linux 5.19."""
        self._machine: dict[bytes, bool] = {}
        """Whether an address is one of the machine's interfaces."""
        self._received, self._sent = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        watch(self._received.fileno(), self._receive_listener)

    def send_listener(self, descriptor: int) -> None:
        """In a child, before it executes a program: hands the listener of its filter to this process."""
        socket.send_fds(self._sent, [b"listener"], [descriptor])
        os.close(descriptor)

    def _receive_listener(self) -> None:
        _, descriptors, _, _ = socket.recv_fds(self._received, 16, 1)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
            self._watch(descriptor, partial(self._on_call, CallListener(descriptor)))

    def _on_call(self, listener: CallListener) -> None:
        if not listener.has_processes:
            self._unwatch(listener.descriptor)
            listener.close()
        elif (call := listener.receive()) is not None:
            self._answer(listener, call)

    def _answer(self, listener: CallListener, call: SocketCall) -> None:
        result = self._undelivered.pop((call.thread, call.arguments), None)
        if result is None:
            try:
                result = self._handle(listener, call)
            except (OSError, ValueError):  # the process has ended, or this one may not look into it
                result = None
        if result is None:
            listener.proceed(call)
        elif not listener.answer(call, result):
            self._remember(call, result)

    def _remember(self, call: SocketCall, result: int) -> None:
        if len(self._undelivered) >= _MAX_UNDELIVERED:
            self._undelivered.clear()
        self._undelivered[call.thread, call.arguments] = result

    def _handle(self, listener: CallListener, call: SocketCall) -> int | None:
        """The result of the call; None if it shall proceed. Raises OSError if the process cannot be inspected."""
        pointer, size = call.arguments[4:6] if call.name == SENDTO else call.arguments[1:3]
        size &= _INT
        data = read_memory(call.thread, pointer, size) if 2 <= size <= pod_addresses.MAX_SIZE else None
        if data is None:
            return None
        wanted = pod_addresses.parse(data, any_without_family=call.name == BIND)
        if wanted is None or wanted.port == 0:
            return None
        if call.name == BIND and wanted.is_ipv4 and wanted.host[-4:] == self._addresses.first:
            self._on_bound(wanted.port)
        special = {BIND: self._is_of_other, CONNECT: self._is_of_machine}.get(call.name)
        if not (wanted.is_shared or (special is not None and special(wanted))):
            return None
        copy = copy_descriptor(call.thread, call.arguments[0] & _INT, self._proc)
        # If the thread does not wait any more, the copy may be that of another process.
        if not (listener.is_waiting(call) and stat.S_ISSOCK(os.fstat(copy).st_mode)):
            os.close(copy)
            return None
        with socket.socket(fileno=copy) as own:
            if own.family != wanted.family or (own.type, own.proto) not in _PROTOCOLS:
                return None
            if call.name == BIND:
                return self._bind(own, wanted, call.thread)
            if call.name == CONNECT:
                return self._connect(own, wanted)
            return self._send(own, wanted, call) if own.type == socket.SOCK_DGRAM else None

    def _bind(self, own: socket.socket, wanted: SocketAddress, thread: int) -> int | None:
        if self._is_of_other(wanted):
            return -errno.EADDRNOTAVAIL
        ipv6_only = own.family == AF_INET6 and bool(own.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY))
        target = self._addresses.of_bind(wanted, ipv6_only=ipv6_only)
        if target is None or (wanted.is_ipv4 and ipv6_only):  # the kernel refuses the latter
            return None
        if not self._may_bind(wanted.port, thread):
            return -errno.EACCES
        if self._is_advertised(wanted.port, thread):
            return None
        if not self._make_dual(own, wanted):
            return None
        result = _result(libc.bind(own.fileno(), target, len(target)))
        if result == 0 and own.type == socket.SOCK_STREAM:
            self._on_bound(wanted.port)
        elif result == -errno.EADDRINUSE:
            self._on_taken(wanted.port)
        return result

    def _connect(self, own: socket.socket, wanted: SocketAddress) -> int | None:
        if own.proto == _IPPROTO_MPTCP:
            return None
        target = self._listener(own, wanted)
        if target is None or not self._make_dual(own, wanted):
            return None
        if own.type != socket.SOCK_STREAM:
            return _result(libc.connect(own.fileno(), target, len(target)))
        flags = fcntl.fcntl(own, fcntl.F_GETFL)
        if flags & os.O_NONBLOCK:
            return _result(libc.connect(own.fileno(), target, len(target)))
        # This process must not wait. It begins to connect; the call of the program, which proceeds, then waits for it.
        fcntl.fcntl(own, fcntl.F_SETFL, flags | os.O_NONBLOCK)
        try:
            result = _result(libc.connect(own.fileno(), target, len(target)))
        finally:
            fcntl.fcntl(own, fcntl.F_SETFL, flags)
        return None if result == -errno.EINPROGRESS else result

    def _send(self, own: socket.socket, wanted: SocketAddress, call: SocketCall) -> int | None:
        size, flags = call.arguments[2], call.arguments[3]
        target = self._listener(own, wanted)
        if size > _MAX_DATAGRAM or target is None or not self._make_dual(own, wanted):
            return None
        data = read_memory(call.thread, call.arguments[1], size) if size else b""
        if data is None:
            return -errno.EFAULT
        flags = flags & _INT | socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
        return _result(libc.sendto(own.fileno(), data, ctypes.c_size_t(size), flags, target, len(target)))

    def _listener(self, own: socket.socket, wanted: SocketAddress) -> bytes | None:
        """The address of the pod's own listener for this socket, if there is one. It may be the socket itself."""
        bound = own.getsockname()
        hosts = self._addresses.of_connect(wanted) if wanted.is_shared else [self._addresses.first]
        for host in hosts:
            is_itself = wanted.port == bound[1] and bound[0].endswith(socket.inet_ntoa(host))
            if is_itself or is_taken(host, wanted.port, own.type):
                return pod_addresses.render(own.family, host, wanted.port)
        return None

    def _is_of_other(self, wanted: SocketAddress) -> bool:
        """True for an address of another pod or a Service of the cluster, which no program of this pod can have."""
        host, own = wanted.host[-4:], (self._addresses.first, self._addresses.second)
        return wanted.is_ipv4 and host[:2] == own[0][:2] and host not in own

    def _is_of_machine(self, wanted: SocketAddress) -> bool:
        """True for an address of the machine's interfaces. Programs take it for their own, which on other clusters is
        that of their pod."""
        host = wanted.host[-4:]
        if not wanted.is_ipv4 or host[0] == 127:
            return False
        if host not in self._machine:
            if len(self._machine) >= _MAX_HOSTS:
                self._machine.clear()
            self._machine[host] = _is_local(host)
        return self._machine[host]

    def _make_dual(self, own: socket.socket, wanted: SocketAddress) -> bool:
        """Lets a socket of IPv6 have an address of IPv4; False if it is bound already."""
        if wanted.family != AF_INET6:
            return True
        try:
            if own.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY):
                own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        except OSError:
            return False
        return True

    def _may_bind(self, port: int, thread: int) -> bool:
        """This process may be allowed to have ports that the program may not have."""
        if port >= _first_unprivileged_port() or self._proc is None:  # only root may have such ports, and has a /proc
            return True
        return bool(process_field(thread, self._proc, "CapEff", base=16) >> _CAP_NET_BIND_SERVICE & 1)

    def _is_advertised(self, port: int, thread: int) -> bool:
        if self._proc is None:
            return False
        arguments, variables = (self._read(thread, name) for name in ("cmdline", "environ"))
        return is_advertised(port, arguments, variables)

    def _read(self, thread: int, name: str) -> list[bytes]:
        with open(f"{self._proc}/{thread}/{name}", "rb") as file:
            return file.read(_MAX_TEXT).split(b"\0")


def is_taken(host: bytes, port: int, kind: int = socket.SOCK_STREAM) -> bool:
    """True if a socket of this type listens at the address. Tried by binding, which needs no permission to look."""
    with socket.socket(socket.AF_INET, kind) as trial:
        if kind == socket.SOCK_STREAM:  # connections that have ended do not count
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((socket.inet_ntoa(host), port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _is_local(host: bytes) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
        try:
            trial.bind((socket.inet_ntoa(host), 0))
        except OSError:
            return False
    return True


def _first_unprivileged_port() -> int:
    with open(_UNPRIVILEGED_PORTS, encoding="ascii") as file:
        return int(file.read())


def _result(returned: int) -> int:
    """The errno of a failed call as a negative number."""
    return int(returned) if returned >= 0 else -ctypes.get_errno()
