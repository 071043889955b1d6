"""The TCP sockets on which processes of this machine listen, and which processes hold them. Reads /proc.

Standard library only, because supervisors import it.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

ANY = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, never bound
"""The addresses of sockets that listen on all addresses."""

_LISTEN = "0A"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


class Listener(NamedTuple):
    address: str
    """An IPv4 address that is mapped into IPv6 is written as IPv4."""
    port: int
    inode: str
    uid: int


class Holder(NamedTuple):
    """A process that has a socket open."""

    pid: int
    name: str
    command: str
    """With its arguments, which may be private."""

    @property
    def title(self) -> str:
        """For everybody who may read events."""
        return f"process {self.pid} ({self.name})"


def read_listeners() -> list[Listener]:
    return [listener for table in _TABLES for listener in parse_listeners(_read(table))]


def parse_listeners(table: str) -> list[Listener]:
    """From the text of /proc/net/tcp or /proc/net/tcp6."""
    found = []
    for line in table.splitlines():
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTEN:
            address, _, port = fields[1].partition(":")
            found.append(Listener(_address(address), int(port, 16), fields[9], int(fields[7])))
    return found


def find_listener(port: int, *addresses: str) -> Listener | None:
    """The socket that listens at one of the addresses, or on all addresses."""
    wanted = ANY.union(addresses)
    return next((found for found in read_listeners() if found.port == port and found.address in wanted), None)


def find_holder(inode: str) -> Holder | None:
    """None if the process belongs to another user, or lies outside this user namespace."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if inode in open_sockets(int(pid)):
            command = _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
            name = "".join(filter(str.isprintable, _read(f"/proc/{pid}/comm")))  # a program can choose it
            return Holder(int(pid), name, command)
    return None


def open_sockets(pid: int) -> Iterator[str]:
    """The inodes of the sockets that a process has open; none if it has ended or is another user's."""
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for number in numbers:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{number}")
        except OSError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            yield target[len("socket:[") : -1]


def _address(text: str) -> str:
    """The kernel writes each group of 32 bits in the machine's byte order."""
    groups = (int(text[at : at + 8], 16) for at in range(0, len(text), 8))
    packed = b"".join(group.to_bytes(4, sys.byteorder) for group in groups)
    if len(packed) == 4 or packed[:12] == bytes(10) + b"\xff\xff":
        return ".".join(map(str, packed[-4:]))
    import socket  # takes milliseconds, and most supervisors do not need it

    return socket.inet_ntop(socket.AF_INET6, packed)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
