"""Which endpoint gets a connection."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.proxy.balancer import Balancer
from trainwright.cluster.proxy.forwarded_ports import Endpoint

ENDPOINTS = [Endpoint(f"127.64.0.{number}", 80) for number in range(1, 6)]


@given(st.integers(1, 5), st.integers(1, 40))
def test_endpoints_take_turns(count: int, connections: int) -> None:
    balancer = Balancer(ENDPOINTS[:count])
    first = Counter(balancer.candidates("c", 0)[0] for _ in range(connections))
    assert max(first.values()) - min(first.get(one, 0) for one in ENDPOINTS[:count]) <= 1


@given(st.integers(1, 5))
def test_every_endpoint_is_tried(count: int) -> None:
    balancer = Balancer(ENDPOINTS[:count])
    balancer.candidates("c", 0)
    assert sorted(balancer.candidates("c", 0), key=str) == ENDPOINTS[:count]


def test_a_client_with_affinity_keeps_its_endpoint_until_the_timeout() -> None:
    balancer = Balancer(ENDPOINTS, affinity_seconds=10)
    balancer.connected("c", ENDPOINTS[3], 0)
    assert {balancer.candidates("c", 9.9)[0] for _ in range(5)} == {ENDPOINTS[3]}
    assert len({balancer.candidates("c", 10)[0] for _ in range(5)}) == 5
    assert len({balancer.candidates("other", 1)[0] for _ in range(5)}) == 5


def test_affinity_ends_with_the_endpoint() -> None:
    balancer = Balancer(ENDPOINTS, affinity_seconds=10)
    balancer.connected("c", ENDPOINTS[0], 0)
    balancer.update(ENDPOINTS[1:], 10)
    assert ENDPOINTS[0] not in balancer.candidates("c", 1)


def test_without_endpoints_there_is_none_to_try() -> None:
    assert Balancer().candidates("c", 0) == []
