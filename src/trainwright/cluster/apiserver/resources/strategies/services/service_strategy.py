"""The strategy of Services: defaults, checks and which fields may change."""

import ipaddress
import re
from collections.abc import Iterator
from typing import Any

from trainwright.cluster.apiserver.resources.resource_type import Strategy
from trainwright.cluster.apiserver.resources.strategies.services import service_addresses as addresses
from trainwright.objects import Object, copied
from trainwright.objects.field_errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from trainwright.objects.kinds.services import HEADLESS
from trainwright.objects.names import dns_label_problem, dns_subdomain_problem

PROTOCOLS = ("SCTP", "TCP", "UDP")
PORT_RANGE = "must be between 1 and 65535, inclusive"

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_AFFINITIES = ("ClientIP", "None")
_AFFINITY_SECONDS = 10800
_MAX_AFFINITY_SECONDS = 86400
_TRAFFIC_POLICIES = ("Cluster", "Local")
_DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
_PORT_NAME = re.compile(r"[-a-z0-9]+")


def _set_defaults(service: Object) -> None:
    spec = service.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    affinity = spec.setdefault("sessionAffinity", "None")
    if affinity == "None":
        spec.pop("sessionAffinityConfig", None)
    elif affinity == "ClientIP" and not _affinity_seconds(spec):
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": _AFFINITY_SECONDS}}
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if not port.get("targetPort"):
            port["targetPort"] = port.get("port")
    if addresses.is_externally_accessible(spec):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] in {"ClusterIP", "NodePort", "LoadBalancer"}:
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def _affinity_seconds(spec: Object) -> int | None:
    return ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds")


def _prepare_for_create(service: Object) -> None:
    service["status"] = {"loadBalancer": {}}
    _prepare(service["spec"])
    addresses.complete_new(service["spec"])


def _prepare_for_update(new: Object, old: Object) -> None:
    _prepare(new["spec"])
    addresses.complete_update(new["spec"], old["spec"])
    if new["spec"]["type"] != "LoadBalancer":
        new["status"] = {**(new.get("status") or {}), "loadBalancer": {}}


def _prepare(spec: Object) -> None:
    if spec["type"] == "ExternalName":
        spec.pop("internalTrafficPolicy", None)


def _validate(service: Object) -> list[FieldError]:
    complete = copied(service)
    spec = complete["spec"]
    # An update has been completed with the old object already; completing it again changes nothing.
    addresses.complete_new(spec)
    return addresses.address_errors(spec, None) or list(_errors(spec))


def _errors(spec: Object) -> Iterator[FieldError]:
    ports = spec.get("ports") or []
    kind = spec["type"]
    headless = addresses.is_headless(spec)
    if not ports and not headless and kind != "ExternalName":
        yield required("spec.ports")
    if kind in {"LoadBalancer", "NodePort"} and spec.get("clusterIP") == HEADLESS:
        yield invalid("spec.clusterIPs[0]", HEADLESS, f"may not be set to 'None' for {kind} services")
    if kind == "ExternalName":
        yield from _external_name_errors(spec)
    names: set[str] = set()
    for index, port in enumerate(ports):
        yield from _port_errors(port, f"spec.ports[{index}]", names, named=len(ports) > 1)
    yield from _affinity_errors(spec)
    for index, address in enumerate(spec.get("externalIPs") or ()):
        path = f"spec.externalIPs[{index}]"
        yield from addresses.ip_errors(path, address) or special_address_errors(path, address)
    if kind not in _TYPES:
        yield not_supported("spec.type", kind, _TYPES)
    if kind == "ClusterIP":
        for index, port in enumerate(ports):
            if port.get("nodePort"):
                yield forbidden(f"spec.ports[{index}].nodePort", "may not be used when `type` is 'ClusterIP'")
    yield from _repeated_ports(ports)
    yield from _load_balancer_errors(spec)
    yield from _traffic_errors(spec)


def _external_name_errors(spec: Object) -> Iterator[FieldError]:
    for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(field):
            yield forbidden(f"spec.{field}", "may not be set for ExternalName services")
    name = str(spec.get("externalName") or "").removesuffix(".")
    if not name:
        yield required("spec.externalName")
    elif problem := dns_subdomain_problem(name):
        yield invalid("spec.externalName", name, problem)


def _port_errors(port: Object, path: str, names: set[str], *, named: bool) -> Iterator[FieldError]:
    name = port.get("name", "")
    if not name and named:
        yield required(f"{path}.name")
    elif name:
        if problem := dns_label_problem(name):
            yield invalid(f"{path}.name", name, problem)
        if name in names:
            yield duplicate(f"{path}.name", name)
        names.add(name)
    if not 1 <= (number := port.get("port", 0)) <= 65535:
        yield invalid(f"{path}.port", number, PORT_RANGE)
    if port["protocol"] not in PROTOCOLS:
        yield not_supported(f"{path}.protocol", port["protocol"], PROTOCOLS)
    target = port.get("targetPort")
    if isinstance(target, str):
        yield from (invalid(f"{path}.targetPort", target, problem) for problem in port_name_problems(target))
    elif isinstance(target, int) and not 1 <= target <= 65535:
        yield invalid(f"{path}.targetPort", target, PORT_RANGE)


def port_name_problems(name: str) -> list[str]:
    checks = {
        "must be no more than 15 characters": len(name) > 15,
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)": not _PORT_NAME.fullmatch(name),
        "must contain at least one letter (a-z)": not re.search("[a-z]", name),
        "must not contain consecutive hyphens": "--" in name,
        "must not begin or end with a hyphen": name.startswith("-") or name.endswith("-"),
    }
    return [problem for problem, applies in checks.items() if applies]


def _affinity_errors(spec: Object) -> Iterator[FieldError]:
    affinity = spec["sessionAffinity"]
    if affinity not in _AFFINITIES:
        yield not_supported("spec.sessionAffinity", affinity, _AFFINITIES)
    seconds = _affinity_seconds(spec)
    if affinity == "ClientIP" and seconds is not None and not 0 < seconds <= _MAX_AFFINITY_SECONDS:
        detail = f"must be greater than 0 and less than {_MAX_AFFINITY_SECONDS}"
        yield invalid("spec.sessionAffinityConfig.clientIP.timeoutSeconds", seconds, detail)


def special_address_errors(path: str, address: str, *, loopback: bool = False) -> list[FieldError]:
    """Addresses that cannot be an endpoint; `loopback` ones can on this cluster, because its pods have them."""
    ip = ipaddress.ip_address(address)
    found = []
    if ip.is_unspecified:
        found.append(invalid(path, address, f"may not be unspecified ({address})"))
    if ip.is_loopback and not loopback:
        found.append(invalid(path, address, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
    if ip.is_link_local:
        found.append(invalid(path, address, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
    if ip in (_MULTICAST_6 if ip.version == 6 else _MULTICAST_4):
        detail = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
        found.append(invalid(path, address, detail))
    return found


_MULTICAST_4 = ipaddress.ip_network("224.0.0.0/24")
_MULTICAST_6 = ipaddress.ip_network("ff02::/16")


def _repeated_ports(ports: list[Object]) -> Iterator[FieldError]:
    seen: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        if number := port.get("nodePort"):
            if (port["protocol"], number) in seen:
                yield duplicate(f"spec.ports[{index}].nodePort", number)
            seen.add((port["protocol"], number))
    seen = set()
    for index, port in enumerate(ports):
        key = (port["protocol"], port.get("port"))
        if key in seen:
            shown = {
                "Name": "",
                "Protocol": key[0],
                "AppProtocol": None,
                "Port": key[1],
                "TargetPort": 0,
                "NodePort": 0,
            }
            yield duplicate(f"spec.ports[{index}]", shown)
        seen.add(key)


def _load_balancer_errors(spec: Object) -> Iterator[FieldError]:
    if spec["type"] == "LoadBalancer":
        return
    only = "may only be used when `type` is 'LoadBalancer'"
    if spec.get("loadBalancerSourceRanges"):
        yield forbidden("spec.LoadBalancerSourceRanges", only)
    if spec.get("allocateLoadBalancerNodePorts") is not None:
        yield forbidden("spec.allocateLoadBalancerNodePorts", only)
    if spec.get("loadBalancerClass") is not None:
        yield forbidden("spec.loadBalancerClass", only)


def _traffic_errors(spec: Object) -> Iterator[FieldError]:
    external = spec.get("externalTrafficPolicy")
    if external and not addresses.is_externally_accessible(spec):
        detail = "may only be set for externally-accessible services"
        yield invalid("spec.externalTrafficPolicy", external, detail)
    elif external and external not in _TRAFFIC_POLICIES:
        yield not_supported("spec.externalTrafficPolicy", external, _TRAFFIC_POLICIES)
    if (port := spec.get("healthCheckNodePort")) and not addresses.needs_health_check_port(spec):
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        yield invalid("spec.healthCheckNodePort", port, detail)
    internal = spec.get("internalTrafficPolicy")
    if internal and internal not in _TRAFFIC_POLICIES:
        yield not_supported("spec.internalTrafficPolicy", internal, _TRAFFIC_POLICIES)
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in _DISTRIBUTIONS:
        yield not_supported("spec.trafficDistribution", distribution, _DISTRIBUTIONS)


def _validate_update(new: Object, old: Object) -> list[FieldError]:
    spec, before = new["spec"], old["spec"]
    found = addresses.address_update_errors(spec, before)
    if spec["type"] == before["type"] == "LoadBalancer" and spec.get("loadBalancerClass") != before.get(
        "loadBalancerClass"
    ):
        found.append(invalid("spec.loadBalancerClass", spec.get("loadBalancerClass"), "may not change once set"))
    health = (addresses.needs_health_check_port(spec), addresses.needs_health_check_port(before))
    if all(health) and spec.get("healthCheckNodePort") != before.get("healthCheckNodePort"):
        found.append(forbidden("spec.healthCheckNodePort", "field is immutable"))
    return found


SERVICE = Strategy(
    set_defaults=_set_defaults,
    prepare_for_create=_prepare_for_create,
    prepare_for_update=_prepare_for_update,
    validate=_validate,
    validate_update=_validate_update,
)
