"""The host ports of a pod, and what users should know about them. Pure."""

import ipaddress
from collections.abc import Container, Iterator

from trainwright.cluster.proxy.forwarded_ports import (
    Endpoint,
    ForwardedPort,
    Note,
    has_machine_ports,
    not_forwarded,
)
from trainwright.objects.kinds.nodes import NODE_ADDRESS
from trainwright.objects.kinds.pods import ContainerPort, PodAddressStatus, PodPortsSpec
from trainwright.objects.metadata import ObjectMeta, View

_ANY = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared with, never bound
_LOOPBACK = ipaddress.ip_network("127.0.0.0/16")
"""The other loopback addresses belong to pods and Services of the clusters on this machine."""


class HostPortPod(View, frozen=True):
    metadata: ObjectMeta
    spec: PodPortsSpec = PodPortsSpec()
    status: PodAddressStatus = PodAddressStatus()

    @property
    def host_ports(self) -> list[ContainerPort]:
        """None with the network of the machine: what the programs listen on is there already."""
        return [] if self.spec.host_network else [port for port in self.spec.ports if port.host_port]


def host_ports(pod: HostPortPod, own_ports: Container[str]) -> list[ForwardedPort]:
    """`own_ports` are the nodes whose pods have ports of their own."""
    if not pod.status.is_reachable:
        return []
    address = pod.status.pod_ip
    shared = has_machine_ports(address, pod.spec.node_name, own_ports)
    return [
        ForwardedPort(
            address=listening, port=port.host_port, endpoints=(Endpoint(address, port.container_port, shared),)
        )
        for port in pod.host_ports
        if port.protocol == "TCP" and (listening := _listening_address(port.host_ip))
    ]


def notes(pod: HostPortPod) -> Iterator[Note]:
    """What this cluster does not honour about host ports, and how to reach the pod instead."""
    for port in pod.host_ports:
        if port.protocol != "TCP":
            text = f"hostPort {port.host_port}/{port.protocol} is not forwarded on this cluster"
            fix = "send to the pod's address, or give the pod the machine's ports with hostNetwork: true"
            yield Note("Warning", "ProtocolNotForwarded", f"{text}: {fix}")
        elif not _listening_address(port.host_ip):
            text = f"hostPort {port.host_port} is not forwarded from hostIP {port.host_ip}: other machines cannot reach"
            fix = f"remove hostIP, or write an address of {_LOOPBACK}"
            yield Note("Warning", "PortNotForwarded", f"{text} pods of this cluster; {fix}")


def unreachable(pod: HostPortPod, port: ForwardedPort, error: OSError, holder: str) -> Note:
    """The port cannot be listened on."""
    ways = f"the pod answers at {port.endpoints[0]} (kubectl port-forward pod/{pod.metadata.name} works too)"
    return not_forwarded(port, error, holder, "hostPort", ways)


def _listening_address(host_ip: str) -> str:
    """Empty if it is no address that may be listened on."""
    if host_ip in _ANY:
        return NODE_ADDRESS
    try:
        return host_ip if ipaddress.ip_address(host_ip) in _LOOPBACK else ""
    except ValueError:
        return ""
