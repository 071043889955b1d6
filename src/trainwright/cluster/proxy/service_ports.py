"""The ports of a Service and the ready endpoints behind each, and what users should know about it. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainwright.objects import Object
from trainwright.objects.kinds.services import HEADLESS, is_resolvable

NODE_ADDRESS = "127.0.0.1"
"""Where node ports are reached: all pods share the network of this machine, and other machines must not reach them."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    address: str
    port: int

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePort:
    """An address and port on which a Service is reached."""

    address: str
    port: int
    endpoints: tuple[Endpoint, ...]
    affinity_seconds: int | None = None

    @property
    def listener(self) -> tuple[str, int]:
        return self.address, self.port

    @property
    def may_be_taken_by_pod(self) -> bool:
        """A pod that listens on all addresses answers at this address too, and no other process can listen there."""
        return any(endpoint.port == self.port for endpoint in self.endpoints)


@dataclass(frozen=True, slots=True)
class Note:
    """An event about a Service."""

    type: str
    reason: str
    message: str


def service_ports(service: Object, slices: Iterable[Object]) -> list[ServicePort]:
    """The TCP ports of a Service that has an address."""
    spec = service["spec"]
    address = spec.get("clusterIP")
    if spec.get("type") == "ExternalName" or not address or address == HEADLESS:
        return []
    found = []
    slices = list(slices)
    for port in spec.get("ports") or ():
        if port.get("protocol", "TCP") != "TCP":
            continue
        endpoints = tuple(dict.fromkeys(_endpoints(port.get("name", ""), slices)))
        numbers = [(address, port["port"])]
        if port.get("nodePort"):
            numbers.append((NODE_ADDRESS, port["nodePort"]))
        found += [
            ServicePort(address=at, port=number, endpoints=endpoints, affinity_seconds=_affinity_seconds(spec))
            for at, number in numbers
        ]
    return found


def _affinity_seconds(spec: Object) -> int | None:
    if spec.get("sessionAffinity") != "ClientIP":
        return None
    client = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
    return int(client.get("timeoutSeconds") or 10800)


def _endpoints(name: str, slices: list[Object]) -> Iterator[Endpoint]:
    """The ready endpoints; if there are none, those that still serve while they terminate, as kube-proxy does."""
    ready = list(_matching(name, slices, terminating=False))
    yield from ready or _matching(name, slices, terminating=True)


def _matching(name: str, slices: list[Object], *, terminating: bool) -> Iterator[Endpoint]:
    for one in slices:
        numbers = [
            port["port"]
            for port in one.get("ports") or ()
            if port.get("name", "") == name and port.get("protocol", "TCP") == "TCP" and port.get("port")
        ]
        for endpoint in one.get("endpoints") or ():
            conditions = endpoint.get("conditions") or {}
            ready = conditions.get("ready", True)
            serving = conditions.get("serving", ready) and conditions.get("terminating", False)
            if (serving and not ready) if terminating else ready:
                yield from (Endpoint(endpoint["addresses"][0], number) for number in numbers)


def notes(service: Object) -> list[Note]:
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
    port = next((one for one in spec.get("ports") or () if one.get("protocol", "TCP") == "TCP"), None)
    if port is None:
        return "reach the addresses of its pods"
    if port.get("nodePort"):
        return f"reach it at {NODE_ADDRESS}:{port['nodePort']}"
    if spec.get("clusterIP") == HEADLESS:
        return f"reach it from pods by its name, {name}:{port['port']}"
    return f"reach it on this machine at {spec.get('clusterIP')}:{port['port']}"


def unreachable(service: Object, port: ServicePort, reason: str, *, permission: bool) -> Note:
    """The port cannot be listened on."""
    text = f"cannot listen on {port.address}:{port.port}: {reason}"
    if permission:
        fix = f"choose a port from 1024 on, or allow it with `sysctl net.ipv4.ip_unprivileged_port_start={port.port}`"
        text = f"{text}; {fix}"
    pods = ", ".join(map(str, port.endpoints[:3]))
    where = f"its pods answer at {pods}" if pods else "its pods answer at their own addresses"
    return Note("Warning", "PortNotForwarded", f"{text}; {where} (kubectl port-forward svc/{_name(service)} works too)")


def _name(service: Object) -> str:
    return str(service["metadata"]["name"])
