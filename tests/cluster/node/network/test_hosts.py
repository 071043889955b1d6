"""Addresses, names and hosts files of pods."""

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.address_range import AddressRange
from trainwright.cluster.node.network.hosts import (
    Peer,
    Service,
    addresses_by_name,
    allocate_address,
    names_in_namespace,
    render_hosts_file,
    replace_names,
    unresolved_names,
)

NETWORK = AddressRange(7).pods
MASTER = Peer(namespace="default", name="job-master-0", address="127.64.0.1", labels={"job": "a", "role": "master"})
WORKER = Peer(namespace="default", name="job-worker-0", address="127.64.0.2", labels={"job": "a", "role": "worker"})
OTHER = Peer(namespace="other", name="job-master-0", address="127.64.0.3", labels={"job": "a", "role": "master"})
SERVICES = [
    Service(namespace="default", name="job-master-0", selector={"role": "master"}),
    Service(namespace="other", name="job-master-0", selector={"role": "master"}),
    Service(namespace="default", name="manual", selector={}),
]


def test_short_names_are_those_of_the_own_namespace() -> None:
    names = names_in_namespace("default", [MASTER, WORKER, OTHER], SERVICES)
    assert render_hosts_file(names) == (
        "127.0.0.1 localhost\n"
        "::1 localhost ip6-localhost ip6-loopback\n"
        "127.64.0.1 job-master-0 job-master-0.default job-master-0.default.svc job-master-0.default.svc.cluster.local\n"
        "127.64.0.2 job-worker-0\n"
        "127.64.0.3 job-master-0.other job-master-0.other.svc job-master-0.other.svc.cluster.local\n"
    )


def test_names_of_the_machine_are_kept() -> None:
    machine = "# comment\n127.0.0.1 localhost\n127.0.1.1 workstation\n\n10.0.0.5 nas\n"
    assert render_hosts_file({}, machine).splitlines()[2:] == ["127.0.1.1 workstation", "10.0.0.5 nas"]


def test_a_pod_with_a_subdomain_has_its_full_name() -> None:
    peer = Peer(namespace="default", name="p", address="127.64.0.9", hostname="h", subdomain="s")
    assert names_in_namespace("default", [peer], [])["127.64.0.9"] == [
        "p", "h.s", "h.s.default", "h.s.default.svc", "h.s.default.svc.cluster.local",
    ]  # fmt: skip


LABELS = st.dictionaries(st.sampled_from("jri"), st.sampled_from("01"), max_size=3)
NAMESPACE = st.sampled_from(["a", "b"])


@given(st.lists(st.tuples(NAMESPACE, LABELS), max_size=6), st.lists(st.tuples(NAMESPACE, LABELS), max_size=6))
def test_a_service_names_exactly_the_pods_that_have_all_its_labels(
    pods: list[tuple[str, dict[str, str]]], selectors: list[tuple[str, dict[str, str]]]
) -> None:
    peers = [
        Peer(namespace=namespace, name=f"pod-{number}", address=f"127.64.0.{number + 1}", labels=labels)
        for number, (namespace, labels) in enumerate(pods)
    ]
    services = [
        Service(namespace=namespace, name=f"service-{number}", selector=selector)
        for number, (namespace, selector) in enumerate(selectors)
    ]
    names = names_in_namespace("elsewhere", peers, services)
    found = {(address, name) for address, known in names.items() for name in known if name.endswith(".svc")}
    assert found == {
        (peer.address, f"{service.name}.{service.namespace}.svc")
        for peer in peers
        for service in services
        if service.selector
        and service.namespace == peer.namespace
        and service.selector.items() <= dict(peer.labels).items()
    }


@given(st.lists(st.text("ab-", min_size=1, max_size=4), min_size=1, max_size=40))
def test_addresses_are_unique_and_in_their_network(keys: list[str]) -> None:
    taken: list[str] = []
    for key in keys:
        taken.append(allocate_address(NETWORK, key, taken))
    assert len(set(taken)) == len(keys)
    assert all(ipaddress.ip_address(address) in NETWORK for address in taken)
    assert not any(address.endswith((".0", ".255")) for address in taken)


def test_a_replaced_pod_gets_the_address_of_its_predecessor() -> None:
    first = allocate_address(NETWORK, "default/job-master-0", [])
    assert allocate_address(NETWORK, "default/job-master-0", ["127.7.64.1"]) == first


def test_names_in_values_become_addresses() -> None:
    known = addresses_by_name(names_in_namespace("default", [MASTER, WORKER], SERVICES))
    assert replace_names("job-master-0", known) == "127.64.0.1"
    assert replace_names("job-master-0:23456", known) == "127.64.0.1:23456"
    assert replace_names("job-master-0.default.svc", known) == "127.64.0.1"
    config = '{"worker": ["job-worker-0:2222", "my-job-worker-0:1", "job-worker-0.example.com"]}'
    expected = '{"worker": ["127.64.0.2:2222", "my-job-worker-0:1", "job-worker-0.example.com"]}'
    assert replace_names(config, known) == expected


def test_names_of_missing_peers_are_found_in_the_environment() -> None:
    variables = {
        "MASTER_ADDR": "job-master-0",
        "PET_RDZV_ENDPOINT": "job-worker-0:23456",
        "PADDLE_MASTER": "job-worker-1:36543",
        "WORKER_ADDRS": "job-worker-0,job-worker-2",
        "TF_CONFIG": '["job-ps-0.default.svc:2222"]',
        "MODE": "train",
        "DB_HOST": "db.example.com",
        "OTHER_ADDR": "127.64.0.1",
        "LOCAL_ADDR": "localhost",
        "HOSTNAME": "me",
        "IS_MASTER": "yes",
    }
    assert unresolved_names(variables, "default", {"job-worker-0": "127.64.0.2"}) == {
        "job-master-0",
        "job-ps-0.default.svc",
        "job-worker-1",
        "job-worker-2",
    }
