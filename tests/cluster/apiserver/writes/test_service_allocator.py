"""Addresses and node ports of Services, whatever other Services have."""

import asyncio
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.storage.store import ObjectStore, Removed, Stored, TryUpdate
from trainwright.cluster.apiserver.writes.service_allocator import (
    KUBERNETES_ADDRESS,
    NODE_PORTS,
    SERVICE_NETWORK,
    RangeFullError,
    ServiceAllocator,
    choose_address,
    choose_node_port,
)
from trainwright.cluster.pki import SERVER_NAMES
from trainwright.objects import Object

STARTS = st.integers(0, 2**32)


@given(STARTS, st.integers(0, 50))
def test_an_address_is_free_and_in_the_dynamic_part_of_the_range(start: int, taken: int) -> None:
    addresses: set[str] = set()
    for _ in range(taken + 1):
        chosen = choose_address(addresses, start)
        assert chosen not in addresses
        number = int(ipaddress.ip_address(chosen))
        assert int(SERVICE_NETWORK[256]) <= number < int(SERVICE_NETWORK.broadcast_address)
        addresses.add(chosen)
    assert KUBERNETES_ADDRESS not in addresses


@given(STARTS, st.sets(st.sampled_from(NODE_PORTS), max_size=100))
def test_a_node_port_is_free_and_in_the_range(start: int, taken: set[int]) -> None:
    chosen = choose_node_port(taken, start)
    assert chosen in NODE_PORTS
    assert chosen not in taken


def test_a_full_range_is_an_error() -> None:
    with pytest.raises(RangeFullError):
        choose_node_port(set(NODE_PORTS), 7)
    assert choose_node_port(set(NODE_PORTS) - {30005}, 7) == 30005


def test_the_certificate_of_the_server_has_the_address_of_its_service() -> None:
    assert KUBERNETES_ADDRESS in SERVER_NAMES


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "delete"]),
        st.sampled_from("abc"),
        st.sampled_from(["ClusterIP", "NodePort", "ExternalName", "None"]),
        st.sampled_from(["", "127.16.0.7", "127.16.0.8"]),
        st.sampled_from([0, 30001, 30002]),
    ),
    max_size=25,
)


@given(OPERATIONS)
def test_no_two_services_ever_share_an_address_or_a_node_port(operations: list[tuple[str, str, str, str, int]]) -> None:
    async def history() -> None:
        store = ObjectStore(None)
        # The same start for all: addresses collide as often as possible.
        allocator = ServiceAllocator(store, randrange=lambda _size: 0)
        for operation, name, kind, address, port in operations:
            change = _delete if operation == "delete" else _put(name, kind, address, port)
            write = allocator.allocating(change, ("default", name), dry_run=False)
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
    allocator = ServiceAllocator(store, randrange=lambda _size: 0)
    first = allocator.allocating(_put("a", "ClusterIP", "", 0), ("default", "a"), dry_run=False)(None)
    second = allocator.allocating(_put("b", "ClusterIP", "", 0), ("default", "b"), dry_run=False)(None)
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert first["spec"]["clusterIP"] != second["spec"]["clusterIP"]


async def test_services_of_an_earlier_version_get_their_addresses_at_the_start() -> None:
    store = ObjectStore(None)
    old = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"type": "ClusterIP", "ports": [{"port": 80}]}}
    await store.guaranteed_update("services", "default", "s", lambda _current: old)
    await ServiceAllocator(store).complete_stored()
    stored = store.get("services", "default", "s")
    assert stored is not None
    spec = stored.obj["spec"]
    assert ipaddress.ip_address(spec["clusterIP"]) in SERVICE_NETWORK
    assert (spec["clusterIPs"], spec["ipFamilies"]) == ([spec["clusterIP"]], ["IPv4"])
