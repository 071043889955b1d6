"""The ports of this machine from which connections are forwarded: ports of Services, with the ready endpoints behind
each, and host ports of pods. And what users should know about them. Pure."""

import errno
import ipaddress
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from trainwright.objects import Object
from trainwright.objects.kinds.nodes import NODE_ADDRESS, Node
from trainwright.objects.kinds.pods import ContainerPort, PodAddressStatus, PodPortsSpec
from trainwright.objects.kinds.services import HEADLESS, is_resolvable
from trainwright.objects.metadata import ObjectMeta, View


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


def service_ports(service: Object, slices: Iterable[Object], own_ports: Container[str]) -> list[ForwardedPort]:
    """The TCP ports of a Service that has an address. `own_ports` are the nodes whose pods have ports of their own."""
    spec = service["spec"]
    address = spec.get("clusterIP")
    if spec.get("type") == "ExternalName" or not address or address == HEADLESS:
        return []
    found = []
    slices = list(slices)
    for port in spec.get("ports") or ():
        if port.get("protocol", "TCP") != "TCP":
            continue
        endpoints = tuple(dict.fromkeys(_endpoints(port.get("name", ""), slices, own_ports)))
        numbers = [(address, port["port"])]
        if port.get("nodePort"):
            numbers.append((NODE_ADDRESS, port["nodePort"]))
        found += [
            ForwardedPort(address=at, port=number, endpoints=endpoints, affinity_seconds=_affinity_seconds(spec))
            for at, number in numbers
        ]
    return found


def _affinity_seconds(spec: Object) -> int | None:
    if spec.get("sessionAffinity") != "ClientIP":
        return None
    client = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
    return int(client.get("timeoutSeconds") or 10800)


def _endpoints(name: str, slices: list[Object], own_ports: Container[str]) -> Iterator[Endpoint]:
    """The ready endpoints; if there are none, those that still serve while they terminate, as kube-proxy does."""
    ready = list(_matching(name, slices, own_ports, terminating=False))
    yield from ready or _matching(name, slices, own_ports, terminating=True)


def _matching(name: str, slices: list[Object], own_ports: Container[str], *, terminating: bool) -> Iterator[Endpoint]:
    for endpoint_slice in slices:
        numbers = [
            port["port"]
            for port in endpoint_slice.get("ports") or ()
            if port.get("name", "") == name and port.get("protocol", "TCP") == "TCP" and port.get("port")
        ]
        for endpoint in endpoint_slice.get("endpoints") or ():
            conditions = endpoint.get("conditions") or {}
            ready = conditions.get("ready", True)
            serving = conditions.get("serving", ready) and conditions.get("terminating", False)
            if (serving and not ready) if terminating else ready:
                address = endpoint["addresses"][0]
                shared = has_machine_ports(address, endpoint.get("nodeName") or "", own_ports)
                yield from (Endpoint(address, number, shared) for number in numbers)


def service_notes(service: Object) -> list[Note]:
    """What this cluster does not honour about a Service, and how to reach it instead."""
    spec, name = service["spec"], service["metadata"]["name"]
    found = []
    ports = spec.get("ports") or []
    has_address = spec.get("clusterIP") not in {None, "", HEADLESS}
    others = sorted({port["protocol"] for port in ports if port.get("protocol", "TCP") != "TCP"})
    if others and has_address:
        text = f"{', '.join(others)} is not forwarded on this cluster: send to the addresses of the pods"
        found.append(Note("Warning", "ProtocolNotForwarded", f"{text} (kubectl get endpointslices)"))
    if addresses := spec.get("externalIPs"):
        text = f"externalIPs {', '.join(addresses)} have no effect on this cluster: {_how_to_reach(service)}"
        found.append(Note("Warning", "ExternalIPsNotHonoured", text))
    if spec.get("type") == "LoadBalancer":
        text = f"this cluster has no load balancer, so the external address stays pending: {_how_to_reach(service)}"
        found.append(Note("Normal", "NoLoadBalancer", text))
    if spec.get("type") == "ExternalName" and not is_resolvable(str(spec.get("externalName") or "")):
        text = f"pods cannot resolve {name} to {spec.get('externalName')}: use that name itself"
        found.append(Note("Warning", "ExternalNameNotResolved", text))
    return found


def _how_to_reach(service: Object) -> str:
    spec, name = service["spec"], service["metadata"]["name"]
    port = next((candidate for candidate in spec.get("ports") or () if candidate.get("protocol", "TCP") == "TCP"), None)
    if port is None:
        return "reach the addresses of its pods"
    if port.get("nodePort"):
        return f"reach it at {NODE_ADDRESS}:{port['nodePort']}"
    if spec.get("clusterIP") == HEADLESS:
        return f"reach it from pods by its name, {name}:{port['port']}"
    return f"reach it on this machine at {spec.get('clusterIP')}:{port['port']}"


def service_unreachable(service: Object, port: ForwardedPort, error: OSError, holder: str) -> Note:
    """The port cannot be listened on."""
    pods = ", ".join(map(str, port.endpoints[:3]))
    ways = f"its pods answer at {pods} (kubectl port-forward svc/{service['metadata']['name']} works too)"
    return not_forwarded(port, error, holder, "port", ways)


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


def host_port_notes(pod: HostPortPod) -> Iterator[Note]:
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


def host_port_unreachable(pod: HostPortPod, port: ForwardedPort, error: OSError, holder: str) -> Note:
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
