"""The ports of a Service and the ready endpoints behind each, and what users should know about it. Pure."""

from collections.abc import Container, Iterable, Iterator

from trainwright.cluster.proxy.forwarded_ports import (
    Endpoint,
    ForwardedPort,
    Note,
    has_machine_ports,
    not_forwarded,
)
from trainwright.objects import Object
from trainwright.objects.kinds.nodes import NODE_ADDRESS
from trainwright.objects.kinds.services import HEADLESS, is_resolvable


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
    port = next((candidate for candidate in spec.get("ports") or () if candidate.get("protocol", "TCP") == "TCP"), None)
    if port is None:
        return "reach the addresses of its pods"
    if port.get("nodePort"):
        return f"reach it at {NODE_ADDRESS}:{port['nodePort']}"
    if spec.get("clusterIP") == HEADLESS:
        return f"reach it from pods by its name, {name}:{port['port']}"
    return f"reach it on this machine at {spec.get('clusterIP')}:{port['port']}"


def unreachable(service: Object, port: ForwardedPort, error: OSError, holder: str) -> Note:
    """The port cannot be listened on."""
    pods = ", ".join(map(str, port.endpoints[:3]))
    ways = f"its pods answer at {pods} (kubectl port-forward svc/{service['metadata']['name']} works too)"
    return not_forwarded(port, error, holder, "port", ways)
