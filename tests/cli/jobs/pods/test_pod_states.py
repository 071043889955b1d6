"""Where programs listen: only valid ports of running pods are shown, whatever the annotation contains."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.jobs.pods.pod_states import MAX_PORTS, declared_ports, listening_addresses, listening_ports
from trainwright.objects.kinds.pods import Pod, read_pod
from trainwright.objects.node_annotations import LISTENING


def pod(listening: str | None, *, phase: str = "Running", address: str = "127.6.64.10") -> Pod:
    annotations = {} if listening is None else {LISTENING: listening}
    metadata = {"name": "p", "namespace": "default", "annotations": annotations}
    return read_pod({"metadata": metadata, "spec": {}, "status": {"phase": phase, "podIP": address}})


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        (None, []),
        ("", []),
        ("6006,23456", [6006, 23456]),
        ("23456,6006,6006", [6006, 23456]),
        ("1,65535", [1, 65535]),
        ("0,65536,99999,-1,+5,1e3, 80,080,８０,\x1b[31m80", []),
        ("http://evil.example/,6006", [6006]),
    ],
)
def test_only_port_numbers_are_read(text: str | None, ports: list[int]) -> None:
    assert listening_ports(pod(text)) == ports


def test_addresses_are_those_of_the_pod_while_it_runs() -> None:
    assert listening_addresses(pod("6006,8080")) == ["127.6.64.10:6006", "127.6.64.10:8080"]
    for phase in ("Pending", "Succeeded", "Failed"):
        assert listening_addresses(pod("6006", phase=phase)) == []
    for address in ("", "no address", "evil.example"):
        assert listening_addresses(pod("6006", address=address)) == []


@given(st.text() | st.lists(st.integers(0, 70_000)).map(lambda numbers: ",".join(map(str, numbers))))
def test_any_text_gives_at_most_so_many_valid_ports(text: str) -> None:
    found = listening_ports(pod(text))
    assert len(found) <= MAX_PORTS
    assert all(0 < port < 65536 and str(port) in text.split(",") for port in found)


def test_declared_ports_are_those_of_all_containers() -> None:
    containers = [{"ports": [{"containerPort": 1}, {"containerPort": 2}]}, {"ports": None}, {"ports": [{}]}]
    assert declared_ports({"spec": {"containers": containers}}) == {1, 2}
    assert declared_ports({}) == set()
