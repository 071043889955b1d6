"""Addresses and node ports of Services, whatever other Services have."""

import asyncio
import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.address_range import AddressRange
from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.storage.store import ObjectStore, Removed, Stored, TryUpdate
from trainwright.cluster.apiserver.writes.service_allocator import (
    NODE_PORTS,
    RangeFullError,
    ServiceAllocator,
    address_problem,
    choose_address,
    choose_node_port,
    drop_foreign_addresses,
    kubernetes_address,
    node_port_problem,
)
from trainwright.objects import Object

NETWORK = AddressRange(7).services
STARTS = st.integers(0, 2**32)


@given(STARTS, st.integers(0, 50))
def test_an_address_is_free_and_in_the_dynamic_part_of_the_range(start: int, taken: int) -> None:
    addresses: set[str] = set()
    for _ in range(taken + 1):
        chosen = choose_address(NETWORK, addresses, start)
        assert chosen not in addresses
        number = int(ipaddress.ip_address(chosen))
        assert int(NETWORK[256]) <= number < int(NETWORK.broadcast_address)
        addresses.add(chosen)


@given(STARTS, st.sets(st.sampled_from(NODE_PORTS), max_size=100))
def test_a_node_port_is_free_and_in_the_range(start: int, taken: set[int]) -> None:
    chosen = choose_node_port(taken, start)
    assert chosen in NODE_PORTS
    assert chosen not in taken


def test_a_full_range_is_an_error() -> None:
    with pytest.raises(RangeFullError):
        choose_node_port(set(NODE_PORTS), 7)
    assert choose_node_port(set(NODE_PORTS) - {30005}, 7) == 30005


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "delete"]),
        st.sampled_from("abc"),
        st.sampled_from(["ClusterIP", "NodePort", "ExternalName", "None"]),
        st.sampled_from(["", "127.7.0.7", "127.7.0.8"]),
        st.sampled_from([0, 30001, 30002]),
    ),
    max_size=25,
)


@given(OPERATIONS)
def test_no_two_services_ever_share_an_address_or_a_node_port(operations: list[tuple[str, str, str, str, int]]) -> None:
    async def history() -> None:
        store = ObjectStore(None)
        # The same start for all: addresses collide as often as possible.
        allocator = ServiceAllocator(store, NETWORK, randrange=lambda _size: 0)
        for operation, name, kind, address, port in operations:
            change = _delete if operation == "delete" else _put(name, kind, address, port)
            write = allocator.allocating("services", change, ("default", name), dry_run=False)
            try:
                await store.guaranteed_update("services", "default", name, write)
            except StatusError:
                assert address or port, "only what a user asks for can be refused"
            except KeyError:
                assert operation == "delete"
            specs = [stored.obj["spec"] for stored in store.list("services")]
            addresses = [spec["clusterIP"] for spec in specs if spec.get("clusterIP") not in {None, "None"}]
            ports = [one["nodePort"] for spec in specs for one in spec["ports"] if "nodePort" in one]
            assert len(set(addresses)) == len(addresses)
            assert len(set(ports)) == len(ports)
            expected = [spec for spec in specs if spec["type"] != "ExternalName" and spec.get("clusterIP") != "None"]
            assert len(addresses) == len(expected)

    asyncio.run(history())


def _put(name: str, kind: str, address: str, port: int) -> TryUpdate:
    headless = kind == "None"
    spec: Object = {"type": "ClusterIP" if headless else kind, "ports": [{"port": 80}]}
    if headless:
        spec |= {"clusterIP": "None", "clusterIPs": ["None"]}
    elif address and kind != "ExternalName":
        spec |= {"clusterIP": address, "clusterIPs": [address]}
    if port and kind == "NodePort":
        spec["ports"][0]["nodePort"] = port
    return lambda _current: {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def _delete(current: Stored | None) -> Removed:
    if current is None:
        raise KeyError
    return Removed(current.obj)


async def test_two_services_that_are_created_at_once_get_different_addresses() -> None:
    store = ObjectStore(None)
    allocator = ServiceAllocator(store, NETWORK, randrange=lambda _size: 0)
    first = allocator.allocating("services", _put("a", "ClusterIP", "", 0), ("default", "a"), dry_run=False)(None)
    second = allocator.allocating("services", _put("b", "ClusterIP", "", 0), ("default", "b"), dry_run=False)(None)
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert first["spec"]["clusterIP"] != second["spec"]["clusterIP"]


async def test_failed_write_keeps_no_address() -> None:
    """A tenant could otherwise use up the range with Services that are too large to be stored."""
    store = ObjectStore(None)
    allocator = ServiceAllocator(store, NETWORK, randrange=lambda _size: 0)
    keys = [("default", name) for name in "ab"]
    for key in keys:
        written = allocator.allocating("services", _put(key[1], "NodePort", "", 0), key, dry_run=False)(None)
        allocator.release("services", key)
        assert isinstance(written, dict)
        assert (written["spec"]["clusterIP"], written["spec"]["ports"][0]["nodePort"]) == (str(NETWORK[256]), 30000)
    await store.guaranteed_update(
        "services",
        "default",
        "a",
        allocator.allocating("services", _put("a", "ClusterIP", "", 0), keys[0], dry_run=False),
    )
    for resource in ("services", "pods"):
        allocator.release(resource, keys[0])
    other = allocator.allocating("services", _put("b", "ClusterIP", "", 0), keys[1], dry_run=False)(None)
    assert isinstance(other, dict)
    assert other["spec"]["clusterIP"] == str(NETWORK[257]), "what is stored stays in use"


async def test_dry_run_takes_nothing() -> None:
    allocator = ServiceAllocator(ObjectStore(None), NETWORK, randrange=lambda _size: 0)
    for name in "ab":
        shown = allocator.allocating("services", _put(name, "NodePort", "", 0), ("default", name), dry_run=True)(None)
        assert isinstance(shown, dict)
        assert shown["spec"]["ports"] == [{"port": 80, "nodePort": 30000}]


async def test_ports_of_a_load_balancer() -> None:
    allocator = ServiceAllocator(ObjectStore(None), NETWORK, randrange=lambda _size: 0)

    def allocated(**fields: Any) -> Object:
        ports = [{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}, {"port": 80, "nodePort": 30001}]
        service = {"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "ports": ports, **fields}}
        found = allocator.allocating("services", lambda _old: service, ("default", "s"), dry_run=True)(None)
        assert isinstance(found, dict)
        spec: Object = found["spec"]
        return spec

    shared = allocated(externalTrafficPolicy="Local")
    assert [port["nodePort"] for port in shared["ports"]] == [30000, 30000, 30001], "TCP and UDP share one"
    assert shared["healthCheckNodePort"] == 30002
    assert allocated(externalTrafficPolicy="Local", healthCheckNodePort=31000)["healthCheckNodePort"] == 31000
    without = allocated(allocateLoadBalancerNodePorts=False)
    assert [port.get("nodePort") for port in without["ports"]] == [None, None, 30001]
    assert "healthCheckNodePort" not in without


async def test_full_ranges_are_reported() -> None:
    tiny = ipaddress.IPv4Network("127.7.0.0/23")
    store = ObjectStore(None)
    allocator = ServiceAllocator(store, tiny)
    ports = [{"port": port} for port in range(1, len(NODE_PORTS) + 1)]
    large = {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": ports}}
    write = allocator.allocating("services", lambda _old: large, ("default", "s"), dry_run=False)
    await store.guaranteed_update("services", "default", "s", write)
    with pytest.raises(StatusError, match="failed to allocate a nodePort: range is full"):
        allocator.allocating("services", _put("t", "NodePort", "", 0), ("default", "t"), dry_run=False)(None)
    with pytest.raises(StatusError, match="failed to allocate a serviceIP: range is full"):
        _use_up(allocator, tiny.num_addresses)


def _use_up(allocator: ServiceAllocator, count: int) -> None:
    for number in range(count):
        key = ("default", f"s{number}")
        allocator.allocating("services", _put(key[1], "ClusterIP", "", 0), key, dry_run=False)(None)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        (str(NETWORK[300]), None),
        (str(NETWORK[0]), "is not in the valid range"),
        (str(NETWORK.broadcast_address), "is not in the valid range"),
        (str(NETWORK[1]), "already allocated"),
        (str(NETWORK[5]), "already allocated"),
        ("192.0.2.1", "does not match the current range"),
    ],
)
def test_address_that_a_service_asks_for(address: str, problem: str | None) -> None:
    found = address_problem(address, NETWORK, {str(NETWORK[5]): ("default", "other")}, ("default", "s"))
    assert found is None if problem is None else problem in (found or "")
    assert address_problem(address, NETWORK, {address: ("default", "s")}, ("default", "s")) is None


@pytest.mark.parametrize(
    ("port", "problem"), [(30001, None), (30002, "already allocated"), (29999, "valid range"), (32768, "valid range")]
)
def test_node_port_that_a_service_asks_for(port: int, problem: str | None) -> None:
    found = node_port_problem(port, {30002: ("default", "other")}, ("default", "s"))
    assert found is None if problem is None else problem in (found or "")
    assert node_port_problem(port, {port: ("default", "s")}, ("default", "s")) is None


async def test_services_of_an_earlier_version_get_their_addresses_at_the_start() -> None:
    store = ObjectStore(None)
    old = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"type": "ClusterIP", "ports": [{"port": 80}]}}
    await store.guaranteed_update("services", "default", "s", lambda _current: old)
    external = {"metadata": {"name": "e", "namespace": "default"}, "spec": {"type": "ExternalName"}}
    await store.guaranteed_update("services", "default", "e", lambda _current: external)
    await ServiceAllocator(store, NETWORK).complete_stored()
    assert [stored.obj["spec"] for stored in store.list("services") if stored.key[1] == "e"] == [external["spec"]]
    stored = store.get("services", "default", "s")
    assert stored is not None
    spec = stored.obj["spec"]
    assert ipaddress.ip_address(spec["clusterIP"]) in NETWORK
    assert (spec["clusterIPs"], spec["ipFamilies"]) == ([spec["clusterIP"]], ["IPv4"])


ADDRESSES = st.sampled_from(["127.16.3.4", "127.8.0.1", "127.7.0.1", "127.7.9.9", "None", ""])


STORED = st.dictionaries(st.sampled_from(["a", "b", "kubernetes"]), ADDRESSES)


@given(STORED.filter(lambda services: list(services.values()).count("127.7.9.9") < 2))
def test_services_with_addresses_of_another_range_get_new_ones(services: dict[str, str]) -> None:
    async def start() -> None:
        store = ObjectStore(None)
        for name, address in services.items():
            put = _put(name, "None" if address == "None" else "ClusterIP", address, 0)
            await store.guaranteed_update("services", "default", name, put)
        await drop_foreign_addresses(store, NETWORK)
        await ServiceAllocator(store, NETWORK).complete_stored()

        for stored in store.list("services"):
            spec, before = stored.obj["spec"], services[stored.key[1]]
            assert spec["clusterIPs"] == [spec["clusterIP"]]
            if before in {"None", "127.7.9.9"}:
                assert spec["clusterIP"] == before
            elif before and stored.key[1] == "kubernetes":
                assert spec["clusterIP"] == "127.7.0.1" == kubernetes_address(store, NETWORK)
            else:
                assert ipaddress.ip_address(spec["clusterIP"]) in NETWORK
                assert spec["clusterIP"] != "127.7.0.1", "it is that of the Service kubernetes"

    asyncio.run(start())


def test_new_service_kubernetes_gets_the_first_address() -> None:
    assert kubernetes_address(ObjectStore(None), NETWORK) == "127.7.0.1"
