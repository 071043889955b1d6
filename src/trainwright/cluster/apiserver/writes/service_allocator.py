"""Hands out the addresses and node ports of Services. What is in use follows from the stored Services."""

import ipaddress
import random
from collections.abc import Callable, Container, Iterable
from typing import Any

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.resources.strategies.services.service_addresses import (
    complete_new,
    has_cluster_address,
    needs_cluster_address,
    needs_health_check_port,
    needs_node_ports,
    node_ports,
)
from trainwright.cluster.apiserver.storage.store import Change, Key, ObjectStore, Removed, Stored, TryUpdate
from trainwright.objects import Object, copied
from trainwright.objects.field_errors import FieldError, invalid
from trainwright.objects.kinds.services import HEADLESS
from trainwright.objects.resources import SERVICES

NODE_PORTS = range(30000, 32768)

_STATIC = 256
"""The first addresses of the range are handed out on request only, as by the real server."""

_KUBERNETES: Key = ("default", "kubernetes")


class RangeFullError(Exception):
    """Every address or port of the range is in use."""


def choose_address(network: ipaddress.IPv4Network, taken: Container[str], start: int) -> str:
    """The first free address from number `start` on, round the range; raises RangeFullError."""
    size = network.num_addresses - 1 - _STATIC  # without the broadcast address
    for step in range(size):
        address = str(network[_STATIC + (start + step) % size])
        if address not in taken:
            return address
    raise RangeFullError


def choose_node_port(taken: Container[int], start: int) -> int:
    """The first free port from number `start` on, round the range; raises RangeFullError."""
    for step in range(len(NODE_PORTS)):
        port = NODE_PORTS[(start + step) % len(NODE_PORTS)]
        if port not in taken:
            return port
    raise RangeFullError


def kubernetes_address(store: ObjectStore, network: ipaddress.IPv4Network) -> str:
    """That of the Service `kubernetes`. A new one gets the first address of the range, as on every cluster."""
    stored = store.get(SERVICES.qualified_plural, *_KUBERNETES)
    addresses = _addresses_of(stored.obj["spec"]) if stored is not None else ()
    return addresses[0] if addresses else str(network[1])


async def drop_foreign_addresses(store: ObjectStore, network: ipaddress.IPv4Network) -> None:
    """Takes the addresses outside of the range from stored Services, before a server uses the store: the cluster had
    another range. `ServiceAllocator.complete_stored` gives them new ones."""

    def drop(current: Stored | None) -> Object:
        service = copied(current.obj) if current is not None else {}
        for field in ("clusterIP", "clusterIPs"):
            del service["spec"][field]
        if current is not None and current.key == _KUBERNETES:
            service["spec"] |= {"clusterIP": str(network[1]), "clusterIPs": [str(network[1])]}
        return service

    for stored in store.list(SERVICES.qualified_plural):
        if any(address_problem(address, network, {}, stored.key) for address in _addresses_of(stored.obj["spec"])):
            await store.guaranteed_update(SERVICES.qualified_plural, *stored.key, drop)


class ServiceAllocator:
    """`allocating` wraps a write. An address is in use from then on, before other requests can see the Service."""

    def __init__(
        self,
        store: ObjectStore,
        network: ipaddress.IPv4Network,
        *,
        randrange: Callable[[int], int] = random.randrange,
    ) -> None:
        self._store = store
        self._network = network
        self._randrange = randrange
        self._addresses: dict[str, Key] = {}
        self._ports: dict[int, Key] = {}
        self._by_service: dict[Key, tuple[tuple[str, ...], tuple[int, ...]]] = {}
        for stored in store.list(SERVICES.qualified_plural):
            self._record(stored.key, stored.obj["spec"])
        store.subscribe(SERVICES.qualified_plural, self._changed)

    def allocating(self, resource: str, try_update: TryUpdate, key: Key, *, dry_run: bool) -> TryUpdate:
        """`resource` is the qualified plural: the write of any other resource than a Service stays as it is."""
        if resource != SERVICES.qualified_plural:
            return try_update

        def allocate(current: Stored | None) -> Object | Removed:
            result = try_update(current)
            if isinstance(result, Removed) or (current is not None and result is current.obj):
                return result
            allocated = result | {"spec": self._allocated(key, result)}
            if not dry_run:
                self._record(key, allocated["spec"], keep=True)
            return allocated

        return allocate

    def release(self, resource: str, key: Key) -> None:
        """Frees what was allocated for a write that has failed."""
        if resource == SERVICES.qualified_plural:
            stored = self._store.get(resource, *key)
            self._record(key, stored.obj["spec"] if stored is not None else {})

    async def complete_stored(self) -> None:
        """Gives addresses to stored Services without: those of an earlier version, or of another range."""
        for stored in self._store.list(SERVICES.qualified_plural):
            spec = stored.obj["spec"]
            if needs_cluster_address(spec) and not (spec.get("ipFamilies") and spec.get("clusterIP")):
                complete = self.allocating(SERVICES.qualified_plural, _completed, stored.key, dry_run=False)
                await self._store.guaranteed_update(SERVICES.qualified_plural, *stored.key, complete)

    def _allocated(self, key: Key, service: Object) -> Object:
        """The spec of a valid Service with all its addresses and ports; raises a StatusError."""
        spec: Object = dict(service["spec"])
        if needs_cluster_address(spec) and spec.get("clusterIP") != HEADLESS:
            self._allocate_address(key, spec, service)
        if needs_node_ports(spec):
            self._allocate_node_ports(key, spec, service)
        if needs_health_check_port(spec) and not spec.get("healthCheckNodePort"):
            spec["healthCheckNodePort"] = self._any_node_port(set(node_ports(spec)))
        return spec

    def _allocate_address(self, key: Key, spec: Object, service: Object) -> None:
        address = spec.get("clusterIP")
        if not address:
            try:
                address = choose_address(self._network, self._addresses, self._randrange(self._network.num_addresses))
            except RangeFullError:
                raise errors.internal("failed to allocate a serviceIP: range is full") from None
            spec |= {"clusterIP": address, "clusterIPs": [address]}
        elif problem := address_problem(address, self._network, self._addresses, key):
            detail = f"failed to allocate IP {address}: {problem}"
            raise _refused(service, invalid("spec.clusterIPs", spec.get("clusterIPs") or [address], detail))

    def _allocate_node_ports(self, key: Key, spec: Object, service: Object) -> None:
        allocate = spec["type"] == "NodePort" or spec.get("allocateLoadBalancerNodePorts", True)
        requested = {port.get("port"): port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")}
        chosen: dict[Any, int] = dict(requested)
        ports = []
        for index, port in enumerate(spec.get("ports") or ()):
            number = port.get("nodePort")
            if number:
                if problem := node_port_problem(number, self._ports, key):
                    raise _refused(service, invalid(f"spec.ports[{index}].nodePort", number, problem))
            elif allocate:
                # TCP and UDP of the same port share one.
                number = chosen.get(port.get("port")) or self._any_node_port(set(chosen.values()))
                chosen[port.get("port")] = number
            ports.append(port | {"nodePort": number} if number else port)
        spec["ports"] = ports

    def _any_node_port(self, chosen: set[int]) -> int:
        try:
            return choose_node_port(self._ports.keys() | chosen, self._randrange(len(NODE_PORTS)))
        except RangeFullError:
            raise errors.internal("failed to allocate a nodePort: range is full") from None

    def _changed(self, change: Change) -> None:
        self._record(change.new.key, {} if change.removed else change.new.obj["spec"])

    def _record(self, key: Key, spec: Object, *, keep: bool = False) -> None:
        """`keep`: what the stored Service has stays in use, until the write is committed."""
        addresses = _addresses_of(spec)
        ports = _node_ports_of(spec)
        old_addresses, old_ports = self._by_service.pop(key, ((), ()))
        if keep:
            addresses, ports = (*old_addresses, *addresses), (*old_ports, *ports)
        _replace(self._addresses, key, old_addresses, addresses)
        _replace(self._ports, key, old_ports, ports)
        if addresses or ports:
            self._by_service[key] = (tuple(addresses), tuple(ports))


def _completed(current: Stored | None) -> Object:
    service = copied(current.obj) if current is not None else {}
    complete_new(service["spec"])
    return service


def _replace(owners: dict[Any, Key], key: Key, before: Iterable[Any], after: Iterable[Any]) -> None:
    for value in before:
        if owners.get(value) == key:
            del owners[value]
    for value in after:
        owners.setdefault(value, key)


def _addresses_of(spec: Object) -> tuple[str, ...]:
    return (spec["clusterIP"],) if has_cluster_address(spec) else ()


def _node_ports_of(spec: Object) -> tuple[int, ...]:
    health = spec.get("healthCheckNodePort")
    return tuple(dict.fromkeys([*node_ports(spec), *([health] if health else [])]))


def address_problem(address: str, network: ipaddress.IPv4Network, owners: dict[str, Key], key: Key) -> str | None:
    """Why the Service `key` cannot have this address."""
    if owners.get(address) == key:
        return None
    ip = ipaddress.ip_address(address)
    if ip not in network:
        return "the provided network does not match the current range"
    if ip in (network.network_address, network.broadcast_address):
        return f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {network}"
    if address in owners or (ip == network[1] and key != _KUBERNETES):
        return "provided IP is already allocated"
    return None


def node_port_problem(port: int, owners: dict[int, Key], key: Key) -> str | None:
    """Why the Service `key` cannot have this port."""
    if owners.get(port) == key:
        return None
    if port not in NODE_PORTS:
        valid = f"{NODE_PORTS.start}-{NODE_PORTS.stop - 1}"
        return f"provided port is not in the valid range. The range of valid ports is {valid}"
    return "provided port is already allocated" if port in owners else None


def _refused(service: Object, error: FieldError) -> errors.StatusError:
    return errors.invalid(SERVICES, service["metadata"]["name"], [error])
