"""Which addresses processes of this machine listen on."""

from collections.abc import Iterator
from pathlib import Path

_LISTEN = "0A"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
ANY = "0.0.0.0"  # noqa: S104 - compared with, never bound


def listening_addresses(port: int) -> set[str]:
    """The IPv4 addresses with a listener on the port; ANY for one that listens on all."""
    return set(_listening(port))


def _listening(port: int) -> Iterator[str]:
    suffix = f":{port:04X}"
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state, *_ = line.split()
            if state == _LISTEN and local.endswith(suffix):
                yield _ipv4(local[:-5])


def _ipv4(text: str) -> str:
    """From the kernel's notation: words in the byte order of the machine. An IPv6 listener counts as ANY."""
    if len(text) > 8:
        return ANY
    return ".".join(str(byte) for byte in int(text, 16).to_bytes(4, "little"))
