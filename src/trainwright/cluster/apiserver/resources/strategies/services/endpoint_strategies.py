"""Strategies of Endpoints and EndpointSlices. Unlike the real server's they accept loopback addresses, because pods of
this cluster have them."""

from collections.abc import Iterator

from trainwright.cluster.apiserver.resources.resource_type import Strategy
from trainwright.cluster.apiserver.resources.strategies.services.service_addresses import ip_errors, is_address
from trainwright.cluster.apiserver.resources.strategies.services.service_strategy import (
    PORT_RANGE,
    PROTOCOLS,
    special_address_errors,
)
from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError, duplicate, invalid, not_supported, required, too_many
from trainwright.objects.names import dns_label_problem, dns_subdomain_problem

_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_MAX_ENDPOINTS = 1000
_MAX_ADDRESSES = 100
_MAX_PORTS = 20000


def _default_endpoints(endpoints: Object) -> None:
    for subset in endpoints.get("subsets") or ():
        for port in subset.get("ports") or ():
            port.setdefault("protocol", "TCP")


def _endpoints_errors(endpoints: Object) -> Iterator[FieldError]:
    for index, subset in enumerate(endpoints.get("subsets") or ()):
        yield from _subset_errors(subset, f"subsets[{index}]")


def _subset_errors(subset: Object, path: str) -> Iterator[FieldError]:
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        yield required(path, "must specify `addresses` or `notReadyAddresses`")
    for field in ("addresses", "notReadyAddresses"):
        for index, address in enumerate(subset.get(field) or ()):
            yield from _address_errors(address, f"{path}.{field}[{index}]")
    ports = subset.get("ports") or []
    for index, port in enumerate(ports):
        yield from _port_errors(port, f"{path}.ports[{index}]", named=len(ports) > 1)


def _address_errors(address: Object, path: str) -> Iterator[FieldError]:
    ip = address.get("ip", "")
    yield from ip_errors(f"{path}.ip", ip)
    yield from _name_errors(address, path)
    if is_address(ip):
        yield from special_address_errors(f"{path}.ip", ip, loopback=True)
    else:
        yield invalid(f"{path}.ip", ip, "must be a valid IP address")


def _name_errors(endpoint: Object, path: str) -> Iterator[FieldError]:
    if (hostname := endpoint.get("hostname")) and (problem := dns_label_problem(hostname)):
        yield invalid(f"{path}.hostname", hostname, problem)
    if (node := endpoint.get("nodeName")) is not None and (problem := dns_subdomain_problem(node)):
        yield invalid(f"{path}.nodeName", node, problem)


def _port_errors(port: Object, path: str, *, named: bool) -> Iterator[FieldError]:
    name = port.get("name", "")
    if named and not name:
        yield required(f"{path}.name")
    elif name and (problem := dns_label_problem(name)):
        yield invalid(f"{path}.name", name, problem)
    if not 1 <= (number := port.get("port", 0)) <= 65535:
        yield invalid(f"{path}.port", number, PORT_RANGE)
    if port["protocol"] not in PROTOCOLS:
        yield not_supported(f"{path}.protocol", port["protocol"], PROTOCOLS)


ENDPOINTS = Strategy(set_defaults=_default_endpoints, validate=_endpoints_errors)


def _default_slice(endpoint_slice: Object) -> None:
    for port in endpoint_slice.get("ports") or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


def _slice_errors(endpoint_slice: Object) -> Iterator[FieldError]:
    kind = endpoint_slice.get("addressType", "")
    if not kind:
        yield required("addressType")
    elif kind not in _ADDRESS_TYPES:
        yield not_supported("addressType", kind, _ADDRESS_TYPES)
    yield from _slice_port_errors(endpoint_slice.get("ports") or [])
    endpoints = endpoint_slice.get("endpoints") or []
    if len(endpoints) > _MAX_ENDPOINTS:
        yield too_many("endpoints", len(endpoints), _MAX_ENDPOINTS)
        return
    for index, endpoint in enumerate(endpoints):
        yield from _endpoint_errors(endpoint, kind, f"endpoints[{index}]")


def _slice_port_errors(ports: list[Object]) -> Iterator[FieldError]:
    if len(ports) > _MAX_PORTS:
        yield too_many("ports", len(ports), _MAX_PORTS)
        return
    names: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"ports[{index}]", port["name"]
        if name and (problem := dns_label_problem(name)):
            yield invalid(f"{path}.name", name, problem)
        if name in names:
            yield duplicate(f"{path}.name", name)
        names.add(name)
        if port["protocol"] not in PROTOCOLS:
            yield not_supported(f"{path}.protocol", port["protocol"], PROTOCOLS)


def _endpoint_errors(endpoint: Object, kind: str, path: str) -> Iterator[FieldError]:
    addresses = endpoint.get("addresses") or []
    if not addresses:
        yield required(f"{path}.addresses", "must contain at least 1 address")
    elif len(addresses) > _MAX_ADDRESSES:
        yield too_many(f"{path}.addresses", len(addresses), _MAX_ADDRESSES)
    if kind in {"IPv4", "IPv6"}:
        for index, address in enumerate(addresses):
            yield from _slice_address_errors(address, kind, f"{path}.addresses", index)
    yield from _name_errors(endpoint, path)


def _slice_address_errors(address: str, kind: str, path: str, index: int) -> Iterator[FieldError]:
    if wrong := ip_errors(f"{path}[{index}]", address):
        yield from wrong
        return
    if (":" in address) != (kind == "IPv6"):
        yield invalid(path, address, f"must be an {kind} address")
    yield from special_address_errors(f"{path}[{index}]", address, loopback=True)


def _validate_slice_update(new: Object, old: Object) -> list[FieldError]:
    kind = new.get("addressType", "")
    return [] if kind == old.get("addressType") else [invalid("addressType", kind, "field is immutable")]


ENDPOINT_SLICE = Strategy(set_defaults=_default_slice, validate=_slice_errors, validate_update=_validate_slice_update)
