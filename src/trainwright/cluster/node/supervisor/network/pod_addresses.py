"""The addresses that a pod's sockets have in place of those that all pods share: 0.0.0.0, 127.0.0.1, :: and ::1.

Some listeners must be reached at the addresses of the machine. Open MPI and Horovod tell their peers in other pods the
addresses of the machine's interfaces, torchrun the name of the host, each with a port that they found free. Such a port
is one of the machine, as one that the kernel chooses.

Pure; socket addresses are bytes, as programs pass them to the kernel. Standard library only, and little of it.
"""

from __future__ import annotations

import struct

AF_UNSPEC, AF_INET, AF_INET6 = 0, 2, 10

MAX_SIZE = 128
"""The size of the longest socket address that the kernel accepts."""

_MAPPED = bytes(10) + b"\xff\xff"
"""Before an IPv4 address in the form of IPv6."""
_SHARED_4 = {bytes(4), bytes((127, 0, 0, 1))}
_SHARED_6 = {bytes(16), bytes(15) + b"\x01"}
_SIZE_4, _SIZE_6 = 16, 24
_RANGE = 2
"""Bytes that the addresses of a cluster have in common, see `cluster.address_range`."""

_MPI_RANK = (b"\0PMIX_RANK=", b"\0OMPI_COMM_WORLD_RANK=")
_MPI_FIRST_PORT = b"\0OMPI_MCA_btl_tcp_port_min_v4="
_MPI_DEFAULT_PORT = 1024
_MPI_PORTS = 1024
"""Open MPI tries one after the other from its first port on; no more ranks than this share a machine."""

_HOROVOD_ELASTIC = b"\0HOROVOD_ELASTIC=1\0"
_HOROVOD_SERVICES = (b"horovodrun", b"horovod.runner")
"""They choose a port at random."""

_TORCHRUN = (b"torchrun", b"torch.distributed.run")
_TORCHRUN_RANK = b"\0TORCHELASTIC_RUN_ID="
_FIRST_SEARCHED_PORT = 32768
"""torchrun lets the kernel choose a port and tells it to peers with the host's name, at `plain` that of the machine."""


class SocketAddress:
    """An Internet address and port, as a program wrote it."""

    def __init__(self, family: int, host: bytes, port: int) -> None:
        self.family = family
        self.host = host
        self.port = port

    @property
    def is_ipv4(self) -> bool:
        """Also in the form of IPv6."""
        return self.family == AF_INET or self.host[:12] == _MAPPED

    @property
    def is_shared(self) -> bool:
        """True if it is one of those that a pod has for itself."""
        return self.host[-4:] in _SHARED_4 if self.is_ipv4 else self.host in _SHARED_6

    @property
    def is_any(self) -> bool:
        return not any(self.host[-4:] if self.is_ipv4 else self.host)


def parse(data: bytes, *, any_without_family: bool = False) -> SocketAddress | None:
    """None if it is not an Internet address, or too short for one. `any_without_family`: 0.0.0.0 needs no family, as
    for bind."""
    if len(data) < 2:
        return None
    (family,) = struct.unpack_from("=H", data)
    if family == AF_UNSPEC and any_without_family and data[4:8] == bytes(4) and len(data) >= _SIZE_4:
        family = AF_INET
    if family == AF_INET and len(data) >= _SIZE_4:
        return SocketAddress(AF_INET, data[4:8], int.from_bytes(data[2:4], "big"))
    if family == AF_INET6 and len(data) >= _SIZE_6:
        return SocketAddress(AF_INET6, data[8:24], int.from_bytes(data[2:4], "big"))
    return None


class PodAddresses:
    """The first is the pod's own. The second is that of its IPv6-only sockets: a program may have both 0.0.0.0 and ::
    at one port, or both 127.0.0.1 and ::1."""

    def __init__(self, first: str, second: str) -> None:
        self.first, self.second = (bytes(map(int, address.split("."))) for address in (first, second))

    def is_of_other(self, wanted: SocketAddress) -> bool:
        """True for an address of another pod or a Service of the cluster, which no program of this pod can have."""
        host, own = wanted.host[-4:], (self.first, self.second)
        return wanted.is_ipv4 and host[:_RANGE] == self.first[:_RANGE] and host not in own

    def of_bind(self, wanted: SocketAddress, *, ipv6_only: bool = False) -> bytes | None:
        """Where a socket is bound; None if this is left to the kernel.

        A port that the kernel chooses is free on the whole machine: peers may be told the machine's address with it.
        """
        if wanted.port == 0:
            return None
        if wanted.is_ipv4 and wanted.host[-4:] in (self.first, self.second):
            return render(wanted.family, wanted.host[-4:], wanted.port)
        if not wanted.is_shared:
            return None
        if wanted.is_ipv4 or (wanted.is_any and not ipv6_only):
            return render(wanted.family, self.first, wanted.port)
        return render(wanted.family, self.second, wanted.port)

    def of_connect(self, wanted: SocketAddress) -> list[bytes]:
        """The addresses at which a listener of the pod would be, in the order in which they are tried.

        That of IPv4 comes first for IPv6, too: a server that distinguishes ::1 from others (PostgreSQL, Redis) would
        see an address of IPv4 in the form of IPv6.
        """
        if not wanted.is_shared or wanted.port == 0:
            return []
        return [self.first] if wanted.is_ipv4 else [self.first, self.second]


def render(family: int, host: bytes, port: int) -> bytes:
    """The socket address of an IPv4 address, for a socket of the family."""
    if family == AF_INET:
        return struct.pack("=H", AF_INET) + port.to_bytes(2, "big") + host + bytes(8)
    return struct.pack("=H", AF_INET6) + port.to_bytes(2, "big") + bytes(4) + _MAPPED + host + bytes(4)


def is_advertised(port: int, arguments: bytes, variables: bytes) -> bool:
    """True if a process with this command line and environment, as /proc shows them, tells others that it listens on
    the port."""
    variables = b"\0" + variables
    if _HOROVOD_ELASTIC in variables or _runs(arguments, _HOROVOD_SERVICES):
        return True
    if port >= _FIRST_SEARCHED_PORT and (_TORCHRUN_RANK in variables or _runs(arguments, _TORCHRUN)):
        return True
    if not any(rank in variables for rank in _MPI_RANK):
        return False
    chosen = variables.partition(_MPI_FIRST_PORT)[2].partition(b"\0")[0][:5]
    first = int(chosen) if chosen.isdigit() else _MPI_DEFAULT_PORT
    return first <= port < first + _MPI_PORTS


def _runs(arguments: bytes, programs: tuple[bytes, ...]) -> bool:
    """`/usr/bin/horovodrun`, or the module of `python -m horovod.runner.task_fn`."""
    return any(argument.rpartition(b"/")[2].startswith(programs) for argument in arguments.split(b"\0", 4)[:4])
