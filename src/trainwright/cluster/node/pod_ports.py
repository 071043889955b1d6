"""The addresses on which processes listen. All pods share the machine's network: a port alone does not name a pod."""

import contextlib
import ipaddress
import sys
from collections.abc import Iterable
from pathlib import Path

_LISTEN = "0A"


def listening_addresses(pids: Iterable[int], port: int) -> set[str]:
    """The addresses on which these processes listen on a TCP port. Reads /proc."""
    sockets = {
        inode: address
        for table in ("tcp", "tcp6")
        for address, its_port, inode in parse_listeners(_read(f"/proc/net/{table}"))
        if its_port == port
    }
    if not sockets:
        return set()
    return {sockets[inode] for pid in pids for inode in _open_sockets(pid) if inode in sockets}


def parse_listeners(table: str) -> list[tuple[str, int, str]]:
    """Address, port and inode of each listening socket in the text of /proc/net/tcp or /proc/net/tcp6."""
    found = []
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTEN:
            address, _, port = fields[1].partition(":")
            found.append((_address(address), int(port, 16), fields[9]))
    return found


def _address(text: str) -> str:
    """The kernel writes each group of 32 bits in the machine's byte order."""
    groups = (int(text[at : at + 8], 16) for at in range(0, len(text), 8))
    packed = b"".join(group.to_bytes(4, sys.byteorder) for group in groups)
    address = ipaddress.ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _open_sockets(pid: int) -> list[str]:
    found = []
    with contextlib.suppress(OSError):  # the process may have ended
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(descriptor.readlink())
                if target.startswith("socket:["):
                    found.append(target[len("socket:[") : -1])
    return found


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
