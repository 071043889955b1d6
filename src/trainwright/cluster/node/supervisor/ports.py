"""TCP ports in use on this machine: the agent reports them on the Node, the supervisor reserves them before a start.

A program may take half a minute before it listens. Until then a reservation keeps the pods of other clusters on this
machine away from its port: a Unix socket with an abstract name, which ends with its process.
Standard library only, because supervisors import it.
"""

from __future__ import annotations

import errno

from trainwright.cluster.linux.listening_sockets import find_holder, read_listeners

TYPE_CHECKING = False  # importing socket takes milliseconds, and most pods need no port
if TYPE_CHECKING:
    import socket

_RESERVATION = "trainwright-port-"


def reserve_port(port: int) -> socket.socket | None:
    """The reservation, which lasts until it is closed; None if another pod of this machine has the port."""
    import socket

    reservation = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        reservation.bind(f"\0{_RESERVATION}{port}")
    except OSError:
        reservation.close()
        return None
    return reservation


def read_reserved_ports() -> set[int]:
    names = (line.rpartition(f"@{_RESERVATION}")[2] for line in _read("/proc/net/unix").splitlines())
    return {int(name) for name in names if name.isdecimal()}


def first_ephemeral_port() -> int:
    """The lowest port that the kernel assigns to sockets that bind to port 0."""
    text = _read("/proc/sys/net/ipv4/ip_local_port_range")
    return int(text.split()[0]) if text else 32768


def port_conflict(port: int) -> str | None:
    """Binds the port once, on all addresses; if that fails, names the process that uses it."""
    import socket

    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):  # noqa: S104 - as programs do
        try:
            with socket.socket(family, socket.SOCK_STREAM) as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                trial.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return f"port {port} is taken{_used_by(port)}"
    return None


def _used_by(port: int) -> str:
    inode = next((listener.inode for listener in read_listeners() if listener.port == port), None)
    if inode is None:
        return " by a process that has bound it"
    if (holder := find_holder(inode)) is not None:
        return f" by process {holder.pid} ({holder.command[:200]})"
    return " by a process that this user cannot inspect"  # of another user, or outside the user namespace


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


class PodPorts:
    """The ports on which the programs of one pod will listen."""

    def __init__(self, numbers: list[int]) -> None:
        self._numbers = numbers
        self._reserved: dict[int, object] = {}

    def conflicts(self) -> list[str]:
        """Reserves the ports for the rest of the pod's life; returns why that is impossible."""
        return [conflict for number in self._numbers if (conflict := self._reserve(number))]

    def _reserve(self, number: int) -> str | None:
        if number not in self._reserved:
            reservation = reserve_port(number)
            if reservation is None:
                return f"port {number} is taken by another pod on this machine"
            self._reserved[number] = reservation
        return port_conflict(number)
