"""An address and port of this machine from which connections are forwarded to endpoints. Pure."""

import errno
from collections.abc import Container, Iterable
from dataclasses import dataclass

from trainwright.objects.kinds.nodes import NODE_ADDRESS, Node


@dataclass(frozen=True, slots=True)
class Endpoint:
    address: str
    port: int
    has_machine_ports: bool = False

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardedPort:
    address: str
    port: int
    endpoints: tuple[Endpoint, ...]
    affinity_seconds: int | None = None

    @property
    def listener(self) -> tuple[str, int]:
        return self.address, self.port

    @property
    def rivals(self) -> frozenset[str]:
        """The addresses of pods that may listen on all addresses at this port: they then answer here themselves, and
        if another process listens here first, they cannot."""
        same_port = (endpoint for endpoint in self.endpoints if endpoint.port == self.port)
        return frozenset(endpoint.address for endpoint in same_port if endpoint.has_machine_ports)


@dataclass(frozen=True, slots=True)
class Note:
    """An event about a Service or a pod."""

    type: str
    reason: str
    message: str


def nodes_with_own_ports(nodes: Iterable[Node]) -> set[str]:
    """The names of the nodes whose pods have ports of their own."""
    return {node.metadata.name for node in nodes if node.has_own_ports}


def has_machine_ports(address: str, node: str, own_ports: Container[str]) -> bool:
    """Whether the pod at this address has the ports of the machine: it has its network, or its node cannot give pods
    their own. `own_ports` are the nodes that can; an endpoint that is no pod has no node."""
    return address == NODE_ADDRESS or bool(node and node not in own_ports)


def not_forwarded(port: ForwardedPort, error: OSError, holder: str, field: str, ways: str) -> Note:
    """`holder` is the process that listens there, if known; `field` is what to change, `ways` how else the pods are
    reached."""
    fix = ""
    reason = error.strerror or str(error)
    if error.errno == errno.EADDRINUSE:
        reason = f"{holder or 'another process'} listens on this port"
        fix = f"stop it, or choose another {field}; "
    elif error.errno in {errno.EACCES, errno.EPERM}:
        allowed = f"`sysctl net.ipv4.ip_unprivileged_port_start={port.port}`"
        fix = f"choose a {field} from 1024 on, or allow it with {allowed}; "
    text = f"cannot listen on {port.address}:{port.port}: {reason}; {fix}{ways}"
    return Note("Warning", "PortNotForwarded", text)
