"""TCP ports in use on this machine: the agent reports them on the Node, the supervisor reserves them before a start.

A program may take half a minute before it listens. Until then a reservation keeps the pods of other clusters on this
machine away from its port: a Unix socket with an abstract name, which ends with its process.
Standard library only, because supervisors import it.
"""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False  # importing socket takes milliseconds, and most pods need no port
if TYPE_CHECKING:
    import socket

_LISTEN = "0A"
_RESERVATION = "trainwright-port-"


def parse_listening_ports(tables: str) -> dict[int, str]:
    """Port -> inode of each listening socket, from the text of /proc/net/tcp and /proc/net/tcp6."""
    found = {}
    for line in tables.splitlines():
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTEN:
            found[int(fields[1].rpartition(":")[2], 16)] = fields[9]
    return found


def read_listening_ports() -> dict[int, str]:
    return parse_listening_ports("".join(_read(f"/proc/net/{name}") for name in ("tcp", "tcp6")))


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
    inode = read_listening_ports().get(port)
    if inode is None:
        return " by a process that has bound it"
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if f"socket:[{inode}]" in _open_files(pid):
            command = _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
            return f" by process {pid} ({command[:200]})"
    return " by a process that this user cannot inspect"  # of another user, or outside the user namespace


def _open_files(pid: str) -> list[str]:
    """The open files of a process; none if it is another user's."""
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return []
    return [_link(f"/proc/{pid}/fd/{number}") for number in numbers]


def _link(path: str) -> str:
    """Empty if the file was closed meanwhile. For our own process that is always so for the descriptor of the
    listing."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


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
