"""The address fields of a Service: clusterIP, clusterIPs, ipFamilies, ipFamilyPolicy and nodePorts, which depend on
each other and on the type. Pure; `writes/service_allocator` hands out the addresses and ports.

The rules and texts are those of the real server on a cluster with IPv4 alone.
"""

import ipaddress
from collections.abc import Iterator
from typing import Any

from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError, duplicate, invalid, not_supported, required
from trainwright.objects.kinds.services import HEADLESS

IPV4, IPV6 = "IPv4", "IPv6"
SINGLE_STACK, PREFER_DUAL_STACK, REQUIRE_DUAL_STACK = "SingleStack", "PreferDualStack", "RequireDualStack"

_FAMILIES = (IPV4, IPV6)
_POLICIES = (PREFER_DUAL_STACK, REQUIRE_DUAL_STACK, SINGLE_STACK)
_NOT_AN_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


def is_headless(spec: Object) -> bool:
    return spec.get("type") == "ClusterIP" and spec.get("clusterIP") == HEADLESS


def has_cluster_address(spec: Object) -> bool:
    return bool(spec.get("clusterIP")) and spec.get("clusterIP") != HEADLESS


def needs_cluster_address(spec: Object) -> bool:
    return spec.get("type") != "ExternalName"


def needs_node_ports(spec: Object) -> bool:
    return spec.get("type") in {"NodePort", "LoadBalancer"}


def needs_health_check_port(spec: Object) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def is_externally_accessible(spec: Object) -> bool:
    return needs_node_ports(spec) or (spec.get("type") == "ClusterIP" and bool(spec.get("externalIPs")))


def node_ports(spec: Object) -> list[int]:
    return [port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")]


# New Services


def complete_new(spec: Object) -> None:
    """Fills in the fields that follow from others."""
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    _complete_families(spec, None)


# Updates


def complete_update(spec: Object, old: Object) -> None:
    """Keeps what was allocated where the client left it out, and drops what the new type does not have."""
    _keep_allocated(spec, old)
    _follow_cluster_address(spec, old)
    _complete_families(spec, old)
    _drop_fields_of_old_type(spec, old)


def _keep_allocated(spec: Object, old: Object) -> None:
    if needs_cluster_address(old) and needs_cluster_address(spec):
        for field in ("clusterIP", "clusterIPs"):
            if not spec.get(field) and old.get(field):
                spec[field] = old[field]
    if needs_node_ports(old) and needs_node_ports(spec):
        kept = set(node_ports(old)) & set(node_ports(spec))
        by_name = {port.get("name", ""): port.get("nodePort") for port in old.get("ports") or ()}
        for port in spec.get("ports") or ():
            before = by_name.get(port.get("name", ""))
            if not port.get("nodePort") and before and before not in kept:
                port["nodePort"] = before
    if needs_health_check_port(old) and needs_health_check_port(spec) and old.get("healthCheckNodePort"):
        spec.setdefault("healthCheckNodePort", old["healthCheckNodePort"])


def _follow_cluster_address(spec: Object, old: Object) -> None:
    """clusterIPs follows clusterIP if the client changed only that."""
    before, after = old.get("clusterIP", ""), spec.get("clusterIP", "")
    if old.get("clusterIPs") and not spec.get("clusterIPs") and before == after:
        spec["clusterIPs"] = old["clusterIPs"]
    if before != after and _same(spec, old, "clusterIPs"):
        if before and not after:
            spec.pop("clusterIPs", None)
        else:
            spec["clusterIPs"] = [after]


def _drop_fields_of_old_type(spec: Object, old: Object) -> None:
    """A field is dropped only if the client did not change it too; otherwise validation refuses it."""
    if needs_cluster_address(old) and not needs_cluster_address(spec):
        if _same(spec, old, "clusterIP") and _same(spec, old, "clusterIPs"):
            spec.pop("clusterIP", None)
            spec.pop("clusterIPs", None)
        for field in ("ipFamilies", "ipFamilyPolicy"):
            _drop_if_same(spec, old, field)
    if needs_node_ports(old) and not needs_node_ports(spec) and set(node_ports(old)) >= set(node_ports(spec)):
        for port in spec.get("ports") or ():
            port.pop("nodePort", None)
    if needs_health_check_port(old) and not needs_health_check_port(spec):
        _drop_if_same(spec, old, "healthCheckNodePort")
    if old.get("type") == "LoadBalancer" and spec.get("type") != "LoadBalancer":
        _drop_if_same(spec, old, "allocateLoadBalancerNodePorts")
        _drop_if_same(spec, old, "loadBalancerClass")
    if is_externally_accessible(old) and not is_externally_accessible(spec):
        _drop_if_same(spec, old, "externalTrafficPolicy")


def _drop_if_same(spec: Object, old: Object, field: str) -> None:
    if _same(spec, old, field):
        spec.pop(field, None)


def _same(spec: Object, old: Object, field: str) -> bool:
    return (spec.get(field) or None) == (old.get(field) or None)


# Address families


def _complete_families(spec: Object, old: Object | None) -> None:
    """Sets ipFamilyPolicy and ipFamilies. Does nothing more if `address_errors` finds errors in them."""
    if not needs_cluster_address(spec):
        return
    headless_without_selector = spec.get("clusterIP") == HEADLESS and not spec.get("selector")
    if not spec.get("ipFamilyPolicy"):
        inherited = (old or {}).get("ipFamilyPolicy")
        spec["ipFamilyPolicy"] = inherited or (REQUIRE_DUAL_STACK if headless_without_selector else SINGLE_STACK)
    policy = spec["ipFamilyPolicy"]
    families = list(spec.get("ipFamilies") or ())
    if old is not None and policy == SINGLE_STACK and len(families) > 1 and _same(spec, old, "ipFamilies"):
        families = families[:1]
    families = families or [IPV4]
    if headless_without_selector and len(families) == 1 and policy != SINGLE_STACK:
        families.append(IPV6 if families[0] == IPV4 else IPV4)
    spec["ipFamilies"] = families


def address_errors(spec: Object, old: Object | None) -> list[FieldError]:
    """Errors of clusterIPs, ipFamilies and ipFamilyPolicy; `spec` is complete."""
    if not needs_cluster_address(spec):
        return []
    return list(_field_errors(spec, old)) or list(_stack_errors(spec))


def _field_errors(spec: Object, old: Object | None) -> Iterator[FieldError]:
    addresses = spec.get("clusterIPs") or []
    yield from _first_address_errors(spec.get("clusterIP", ""), addresses)
    families = spec.get("ipFamilies") or []
    for index, family in enumerate(families):
        if family not in _FAMILIES:
            yield not_supported(f"spec.ipFamilies[{index}]", family, _FAMILIES)
        if family in families[:index]:
            yield duplicate(f"spec.ipFamilies[{index}]", family)
    if (policy := spec.get("ipFamilyPolicy")) and policy not in _POLICIES:
        yield not_supported("spec.ipFamilyPolicy", policy, _POLICIES)
    wrong = list(_address_problems(addresses, (old or {}).get("clusterIPs") or []))
    yield from wrong
    if len(addresses) > 2:
        yield invalid("spec.clusterIPs", addresses, "may only hold up to 2 values")
    if not wrong and HEADLESS not in addresses:
        yield from _family_errors(addresses, families)


def _first_address_errors(single: str, addresses: list[str]) -> Iterator[FieldError]:
    if single and not addresses:
        yield required("spec.clusterIPs")
    elif single and addresses[0] != single:
        yield invalid("spec.clusterIPs", addresses, "first value must match `clusterIP`")
    elif not single and addresses:
        yield invalid("spec.clusterIPs", addresses, "must be empty when `clusterIP` is not specified")


def _family_errors(addresses: list[str], families: list[str]) -> Iterator[FieldError]:
    if len(addresses) > 1 and len({ipaddress.ip_address(address).version for address in addresses}) < 2:
        yield invalid("spec.clusterIPs", addresses, "may specify no more than one IP for each IP family")
    for index, (address, family) in enumerate(zip(addresses, families, strict=False)):
        if family in _FAMILIES and _family_of(address) != family:
            detail = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
            yield invalid(f"spec.clusterIPs[{index}]", address, detail)


def _address_problems(addresses: list[str], accepted: list[str]) -> Iterator[FieldError]:
    for index, address in enumerate(addresses):
        if index == 0 and address == HEADLESS:
            if len(addresses) > 1:
                yield invalid("spec.clusterIPs", addresses, "'None' must be the first and only value")
        elif address not in accepted and not is_address(address):
            yield invalid(f"spec.clusterIPs[{index}]", address, _NOT_AN_ADDRESS)


def _stack_errors(spec: Object) -> Iterator[FieldError]:
    policy, families, addresses = spec.get("ipFamilyPolicy"), spec.get("ipFamilies") or [], spec.get("clusterIPs") or []
    if policy == SINGLE_STACK:
        for many, what in ((addresses, "cluster IPs"), (families, "IP families")):
            if len(many) == 2:
                detail = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                yield invalid("spec.ipFamilyPolicy", policy, detail)
    if spec.get("clusterIP") == HEADLESS and not spec.get("selector"):
        return
    if policy == REQUIRE_DUAL_STACK:
        yield invalid("spec.ipFamilyPolicy", policy, "this cluster is not configured for dual-stack services")
    for index, family in enumerate(families):
        if family != IPV4:
            yield invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster")


def address_update_errors(spec: Object, old: Object) -> list[FieldError]:
    if "ExternalName" in (spec.get("type"), old.get("type")) or (is_headless(spec) and is_headless(old)):
        return []
    before, after = old.get("clusterIPs") or [], spec.get("clusterIPs") or []
    if before and not after:
        return [invalid("spec.clusterIPs[0]", after, "primary clusterIP can not be unset")]
    if before and before[0] != after[0]:
        return [invalid("spec.clusterIPs[0]", after, "may not change once set")]
    return []


def is_address(text: Any) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return isinstance(text, str)


def ip_errors(path: str, text: str) -> list[FieldError]:
    return [] if is_address(text) else [invalid(path, text, _NOT_AN_ADDRESS)]


def _family_of(address: str) -> str:
    return IPV6 if ipaddress.ip_address(address).version == 6 else IPV4
