"""Which host ports of a pod are forwarded, and what users are told about the others."""

import errno
import os
from typing import Any

import msgspec
import pytest

from trainwright.cluster.proxy.forwarded_ports import Endpoint, ForwardedPort
from trainwright.cluster.proxy.host_ports import HostPortPod, host_ports, notes, unreachable

ADDRESS = "127.64.0.1"


def pod(*ports: dict[str, Any], phase: str = "Running", kind: str = "containers", **spec: Any) -> HostPortPod:
    container = {"ports": [{"containerPort": 80, **port} for port in ports], "restartPolicy": "Always"}
    raw = {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"nodeName": "n", kind: [container], **spec},
        "status": {"phase": phase, "podIP": ADDRESS},
    }
    return msgspec.convert(raw, HostPortPod)


def listeners(found: HostPortPod) -> list[tuple[str, int]]:
    return [port.listener for port in host_ports(found, {"n"})]


@pytest.mark.parametrize(
    ("host_ip", "address"),
    [
        ("", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),  # noqa: S104
        ("::", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.9", "127.0.0.9"),
    ],
)
def test_a_host_port_is_listened_on_at_loopback_addresses(host_ip: str, address: str) -> None:
    expected = ForwardedPort(address=address, port=8080, endpoints=(Endpoint(ADDRESS, 80),))
    assert host_ports(pod({"hostPort": 8080, "hostIP": host_ip}), {"n"}) == [expected]
    assert list(notes(pod({"hostPort": 8080, "hostIP": host_ip}))) == []


@pytest.mark.parametrize("host_ip", ["10.0.0.5", "127.64.0.2", "::1", "no address"])
def test_addresses_of_other_pods_and_of_the_network_are_refused(host_ip: str) -> None:
    found = pod({"hostPort": 8080, "hostIP": host_ip})
    (note,) = notes(found)
    assert listeners(found) == []
    assert note.message == (
        f"hostPort 8080 is not forwarded from hostIP {host_ip}: other machines cannot reach pods of this cluster; "
        "remove hostIP, or write an address of 127.0.0.0/16"
    )


def test_other_protocols_are_named() -> None:
    found = pod({"hostPort": 53, "protocol": "UDP"})
    (note,) = notes(found)
    assert listeners(found) == []
    assert note.message == (
        "hostPort 53/UDP is not forwarded on this cluster: send to the pod's address, or give the pod the machine's "
        "ports with hostNetwork: true"
    )


def test_ports_of_sidecars_are_forwarded() -> None:
    assert listeners(pod({"hostPort": 8080}, kind="initContainers", containers=[])) == [("127.0.0.1", 8080)]


@pytest.mark.parametrize(
    "found",
    [
        pod({}),
        pod({"hostPort": 8080}, phase="Succeeded"),
        pod({"hostPort": 8080}, phase="Failed"),
        pod({"hostPort": 8080, "protocol": "UDP"}, hostNetwork=True),
    ],
    ids=["no host port", "succeeded", "failed", "network of the machine"],
)
def test_nothing_is_forwarded(found: HostPortPod) -> None:
    assert host_ports(found, {"n"}) == []
    assert list(notes(found)) == []


def test_a_pod_with_the_ports_of_the_machine_is_a_rival_at_its_own_port() -> None:
    found = pod({"hostPort": 80})
    assert [port.rivals for port in host_ports(found, {"n"})] == [frozenset()]
    assert [port.rivals for port in host_ports(found, ())] == [{ADDRESS}]


def test_a_port_that_another_process_has_comes_with_the_ways_out() -> None:
    found = pod({"hostPort": 8080})
    (port,) = host_ports(found, {"n"})
    error = OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    assert unreachable(found, port, error, "process 12 (nginx)").message == (
        "cannot listen on 127.0.0.1:8080: process 12 (nginx) listens on this port; stop it, or choose another "
        "hostPort; the pod answers at 127.64.0.1:80 (kubectl port-forward pod/p works too)"
    )
