"""Ports and ready endpoints of Services, and what users are told."""

import errno
import os
from typing import Any

import pytest

from trainwright.cluster.proxy.forwarded_ports import Endpoint, ForwardedPort
from trainwright.cluster.proxy.service_ports import notes, service_ports, unreachable
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
    return [(note.reason, note.message) for note in notes(service(**spec))]


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
    note = unreachable(service(), port, OSError(number, os.strerror(number)), holder)
    assert note.message == (
        f"cannot listen on 127.16.1.1:80: {text}; its pods answer at 127.64.0.1:8080 "
        "(kubectl port-forward svc/s works too)"
    )
