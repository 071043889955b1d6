"""Ports and ready endpoints of Services, and what users are told."""

import errno
import os
from typing import Any

import msgspec
import pytest

from trainwright.cluster.proxy.forwarded_ports import (
    Endpoint,
    ForwardedPort,
    HostPortPod,
    host_port_notes,
    host_port_unreachable,
    host_ports,
    service_notes,
    service_ports,
    service_unreachable,
)
from trainwright.objects import Object


def service(**spec: Any) -> Object:
    ports = [{"port": 80, "protocol": "TCP"}]
    return {"metadata": {"name": "s"}, "spec": {"type": "ClusterIP", "clusterIP": "127.16.1.1", "ports": ports, **spec}}


def endpoint(address: str, **conditions: bool) -> Object:
    return {"addresses": [address], "conditions": conditions}


def endpoint_slice(*endpoints: Object, name: str = "", port: int = 8080) -> Object:
    return {"endpoints": list(endpoints), "ports": [{"name": name, "port": port, "protocol": "TCP"}]}


def test_only_ready_endpoints_get_connections() -> None:
    one = endpoint_slice(endpoint("a", ready=True), endpoint("b", ready=False), endpoint("c"))
    (port,) = service_ports(service(), [one], ())
    assert (port.listener, port.endpoints) == (("127.16.1.1", 80), (Endpoint("a", 8080), Endpoint("c", 8080)))


def test_terminating_endpoints_serve_if_no_other_is_left() -> None:
    leaving = endpoint("a", ready=False, serving=True, terminating=True)
    (port,) = service_ports(service(), [endpoint_slice(leaving, endpoint("b", ready=False, serving=False))], ())
    assert port.endpoints == (Endpoint("a", 8080),)


def test_ports_match_by_name_and_node_ports_are_on_this_machine() -> None:
    ports = [
        {"name": "a", "port": 1, "nodePort": 30001},
        {"name": "b", "port": 2},
        {"name": "u", "port": 3, "protocol": "UDP"},
    ]
    slices = [endpoint_slice(endpoint("x"), name="a", port=11), endpoint_slice(endpoint("x"), name="b", port=22)]
    found = {port.listener: port.endpoints[0].port for port in service_ports(service(ports=ports), slices, ())}
    assert found == {("127.16.1.1", 1): 11, ("127.0.0.1", 30001): 11, ("127.16.1.1", 2): 22}


def test_headless_services_and_external_names_have_no_ports() -> None:
    assert service_ports(service(clusterIP="None"), [], ()) == []
    assert service_ports(service(type="ExternalName", clusterIP=""), [], ()) == []


def test_affinity_has_its_timeout() -> None:
    config = {"clientIP": {"timeoutSeconds": 7}}
    (port,) = service_ports(service(sessionAffinity="ClientIP", sessionAffinityConfig=config), [], ())
    assert port.affinity_seconds == 7


def told(**spec: Any) -> list[tuple[str, str]]:
    return [(note.reason, note.message) for note in service_notes(service(**spec))]


def test_users_are_told_what_is_not_honoured_and_how_to_reach_the_service() -> None:
    assert told() == []
    assert told(externalIPs=["10.0.0.5"]) == [
        (
            "ExternalIPsNotHonoured",
            "externalIPs 10.0.0.5 have no effect on this cluster: reach it on this machine at 127.16.1.1:80",
        )
    ]
    assert told(type="LoadBalancer", ports=[{"port": 80, "nodePort": 30001}]) == [
        (
            "NoLoadBalancer",
            "this cluster has no load balancer, so the external address stays pending: reach it at 127.0.0.1:30001",
        )
    ]
    (udp,) = told(ports=[{"port": 53, "protocol": "UDP"}])
    assert udp[0] == "ProtocolNotForwarded"
    (external,) = told(type="ExternalName", clusterIP=None, externalName="example.com", ports=[])
    assert external == ("ExternalNameNotResolved", "pods cannot resolve s to example.com: use that name itself")
    assert told(type="ExternalName", clusterIP=None, externalName="a.b.svc", ports=[]) == []


@pytest.mark.parametrize(
    ("address", "node", "rivals"),
    [
        ("127.64.0.1", "with-own-ports", set()),
        ("127.64.0.1", "without", {"127.64.0.1"}),
        ("127.0.0.1", "with-own-ports", {"127.0.0.1"}),
        ("10.0.0.5", None, set()),
    ],
    ids=["pod with its own ports", "pod with the machine's ports", "pod on the machine's network", "no pod"],
)
def test_a_pod_is_a_rival_at_its_own_port_if_it_has_the_ports_of_the_machine(
    address: str, node: str | None, rivals: set[str]
) -> None:
    def found(target: int) -> frozenset[str]:
        one = endpoint_slice(endpoint(address) | {"nodeName": node}, port=target)
        (port,) = service_ports(service(), [one], {"with-own-ports"})
        return port.rivals

    assert found(80) == rivals
    assert not found(8080)


SYSCTL = "`sysctl net.ipv4.ip_unprivileged_port_start=80`"


@pytest.mark.parametrize(
    ("number", "holder", "text"),
    [
        (errno.EACCES, "", f"Permission denied; choose a port from 1024 on, or allow it with {SYSCTL}"),
        (errno.EADDRINUSE, "", "another process listens on this port; stop it, or choose another port"),
        (
            errno.EADDRINUSE,
            "process 12 (nginx)",
            "process 12 (nginx) listens on this port; stop it, or choose another port",
        ),
        (errno.EADDRNOTAVAIL, "", "Cannot assign requested address"),
    ],
)
def test_a_port_that_cannot_be_listened_on_comes_with_the_ways_out(number: int, holder: str, text: str) -> None:
    port = ForwardedPort(address="127.16.1.1", port=80, endpoints=(Endpoint("127.64.0.1", 8080),))
    note = service_unreachable(service(), port, OSError(number, os.strerror(number)), holder)
    assert note.message == (
        f"cannot listen on 127.16.1.1:80: {text}; its pods answer at 127.64.0.1:8080 "
        "(kubectl port-forward svc/s works too)"
    )


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
    assert list(host_port_notes(pod({"hostPort": 8080, "hostIP": host_ip}))) == []


@pytest.mark.parametrize("host_ip", ["10.0.0.5", "127.64.0.2", "::1", "no address"])
def test_addresses_of_other_pods_and_of_the_network_are_refused(host_ip: str) -> None:
    found = pod({"hostPort": 8080, "hostIP": host_ip})
    (note,) = host_port_notes(found)
    assert listeners(found) == []
    assert note.message == (
        f"hostPort 8080 is not forwarded from hostIP {host_ip}: other machines cannot reach pods of this cluster; "
        "remove hostIP, or write an address of 127.0.0.0/16"
    )


def test_other_protocols_are_named() -> None:
    found = pod({"hostPort": 53, "protocol": "UDP"})
    (note,) = host_port_notes(found)
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
    assert list(host_port_notes(found)) == []


def test_a_pod_with_the_ports_of_the_machine_is_a_rival_at_its_own_port() -> None:
    found = pod({"hostPort": 80})
    assert [port.rivals for port in host_ports(found, {"n"})] == [frozenset()]
    assert [port.rivals for port in host_ports(found, ())] == [{ADDRESS}]


def test_a_port_that_another_process_has_comes_with_the_ways_out() -> None:
    found = pod({"hostPort": 8080})
    (port,) = host_ports(found, {"n"})
    error = OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    assert host_port_unreachable(found, port, error, "process 12 (nginx)").message == (
        "cannot listen on 127.0.0.1:8080: process 12 (nginx) listens on this port; stop it, or choose another "
        "hostPort; the pod answers at 127.64.0.1:80 (kubectl port-forward pod/p works too)"
    )
