"""The address that a socket gets in place of the one that its program names, and which programs keep ports of the
machine because they tell their peers its addresses."""

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.node.supervisor.network.pod_addresses import (
    PodAddresses,
    SocketAddress,
    is_advertised,
    parse,
    render,
)

POD = PodAddresses("127.6.64.10", "127.6.192.10")


def ipv4(host: str, port: int) -> bytes:
    return struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton(host) + bytes(8)


def ipv6(host: str, port: int) -> bytes:
    address = socket.inet_pton(socket.AF_INET6, host)
    return struct.pack("=H", socket.AF_INET6) + struct.pack("!HI", port, 0) + address + bytes(4)


def bound(data: bytes, *, ipv6_only: bool = False) -> bytes | None:
    wanted = parse(data)
    assert wanted is not None
    return POD.of_bind(wanted, ipv6_only=ipv6_only)


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])  # noqa: S104
def test_ipv4_addresses_that_all_pods_share_become_that_of_the_pod(host: str) -> None:
    assert bound(ipv4(host, 80)) == ipv4("127.6.64.10", 80)
    assert bound(ipv6(f"::ffff:{host}", 80)) == ipv6("::ffff:127.6.64.10", 80)


def test_ipv6_alone_has_an_address_of_its_own() -> None:
    assert bound(ipv6("::", 80)) == ipv6("::ffff:127.6.64.10", 80)
    assert bound(ipv6("::", 80), ipv6_only=True) == ipv6("::ffff:127.6.192.10", 80)
    assert bound(ipv6("::1", 80)) == ipv6("::ffff:127.6.192.10", 80)


@pytest.mark.parametrize("data", [ipv4("127.0.0.2", 80), ipv4("192.0.2.1", 80), ipv4("0.0.0.0", 0), ipv6("::2", 80)])  # noqa: S104
def test_other_addresses_and_free_ports_stay(data: bytes) -> None:
    assert bound(data) is None


def test_bind_takes_any_address_without_a_family() -> None:
    data = bytes(2) + struct.pack("!H", 80) + bytes(12)
    assert parse(data) is None
    assert parse(data, any_without_family=True) is not None
    assert parse(bytes(2) + struct.pack("!H", 80) + b"\x7f\0\0\1" + bytes(8), any_without_family=True) is None


def test_a_client_of_ipv6_tries_both_addresses() -> None:
    def targets(data: bytes) -> list[str]:
        wanted = parse(data)
        assert wanted is not None
        return [socket.inet_ntoa(host) for host in POD.of_connect(wanted)]

    assert targets(ipv6("::1", 80)) == ["127.6.64.10", "127.6.192.10"]
    assert targets(ipv4("127.0.0.1", 80)) == ["127.6.64.10"]
    assert targets(ipv4("127.0.0.9", 80)) == []


@given(st.binary(max_size=128))
def test_no_bytes_are_too_strange_to_be_parsed(data: bytes) -> None:
    wanted = parse(data)
    if wanted is not None:
        assert wanted.family in {socket.AF_INET, socket.AF_INET6}
        assert len(wanted.host) == (4 if wanted.family == socket.AF_INET else 16)
        POD.of_bind(wanted, ipv6_only=False)
        POD.of_connect(wanted)


@given(st.sampled_from([socket.AF_INET, socket.AF_INET6]), st.binary(min_size=4, max_size=4), st.integers(0, 65535))
def test_a_rendered_address_is_read_as_the_same(family: int, host: bytes, port: int) -> None:
    again = parse(render(family, host, port))
    assert isinstance(again, SocketAddress)
    assert (again.family, again.host[-4:], again.port, again.is_ipv4) == (family, host, port, True)


@pytest.mark.parametrize(
    ("data", "other"),
    [
        (ipv4("127.6.64.11", 80), True),
        (ipv6("::ffff:127.6.0.1", 80), True),
        (ipv4("127.6.64.10", 80), False),
        (ipv4("127.6.192.10", 80), False),
        (ipv4("127.7.64.11", 80), False),
        (ipv4("0.0.0.0", 80), False),  # noqa: S104
        (ipv6("::1", 80), False),
    ],
)
def test_addresses_of_other_pods_and_services_are_those_of_the_clusters_range(data: bytes, other: bool) -> None:
    wanted = parse(data)
    assert wanted is not None
    assert POD.is_of_other(wanted) is other


@pytest.mark.parametrize("host", ["127.6.64.10", "127.6.192.10"])
def test_the_addresses_of_the_pod_itself_are_bound_as_they_are(host: str) -> None:
    assert bound(ipv4(host, 80)) == ipv4(host, 80)
    assert bound(ipv6(f"::ffff:{host}", 80), ipv6_only=True) == ipv6(f"::ffff:{host}", 80)
    assert bound(ipv4(host, 0)) is None


@pytest.mark.parametrize(
    ("port", "arguments", "variables", "advertised"),
    [
        (1024, [b"python", b"train.py"], [b"PMIX_RANK=0"], True),
        (1030, [b"python", b"train.py"], [b"OMPI_COMM_WORLD_RANK=1"], True),
        (8000, [b"python", b"train.py"], [b"PMIX_RANK=0"], False),
        (1024, [b"python", b"train.py"], [b"HOME=/"], False),
        (5000, [b"a.out"], [b"PMIX_RANK=0", b"OMPI_MCA_btl_tcp_port_min_v4=5000"], True),
        (1024, [b"a.out"], [b"PMIX_RANK=0", b"OMPI_MCA_btl_tcp_port_min_v4=5000"], False),
        (1024, [b"a.out"], [b"PMIX_RANK=0", b"OMPI_MCA_btl_tcp_port_min_v4=many"], True),
        (40123, [b"/venv/bin/python", b"/venv/bin/horovodrun", b"-np"], [], True),
        (40123, [b"python", b"-m", b"horovod.runner.task_fn", b"x"], [], True),
        (40123, [b"python", b"train.py"], [b"HOROVOD_ELASTIC=1"], True),
        (40123, [b"python", b"train.py"], [b"HOROVOD_RANK=0"], False),
        (40123, [b"python", b"/venv/bin/torchrun", b"train.py"], [], True),
        (29500, [b"python", b"/venv/bin/torchrun", b"train.py"], [], False),
        (40123, [b"python", b"train.py"], [b"TORCHELASTIC_RUN_ID=none"], True),
        (40123, [b"python", b"train.py", b"--out", b"x", b"horovodrun"], [], False),
    ],
)
def test_a_port_that_a_program_advertises_is_one_of_the_machine(
    port: int, arguments: list[bytes], variables: list[bytes], advertised: bool
) -> None:
    line, environment = (b"".join(text + b"\0" for text in texts) for texts in (arguments, variables))
    assert is_advertised(port, line, environment) is advertised
