"""The Service of a rank: headless, with every port of the main container."""

import pytest

from tests.support.engine.planning import child, decide, env
from tests.support.objects.jobs import JobBuilder, template
from trainwright.objects import Object

LABELS = {
    "training.kubeflow.org/operator-name": "pytorchjob-controller",
    "training.kubeflow.org/job-name": "digits",
    "training.kubeflow.org/replica-type": "master",
    "training.kubeflow.org/replica-index": "0",
}


def service_ports(declared: list[Object]) -> list[Object]:
    made = decide(JobBuilder().master(pod=template(ports=declared)))
    ports: list[Object] = child(made, "digits-master-0", "Service")["spec"]["ports"]
    return ports


def test_a_service_is_headless_and_selects_its_pod() -> None:
    service = child(decide(JobBuilder().master()), "digits-master-0", "Service")
    assert service["metadata"]["labels"] == LABELS
    assert service["metadata"]["ownerReferences"][0]["uid"] == "job-uid"
    assert service["spec"] == {
        "clusterIP": "None",
        "selector": LABELS,
        "ports": [{"name": "pytorchjob-port", "port": 23456}],
    }


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (
            [{"name": "b", "containerPort": 2}, {"name": "a", "containerPort": 1, "protocol": "UDP"}],
            [{"name": "b", "port": 2}, {"name": "a", "port": 1, "protocol": "UDP"}],
        ),
        (
            [{"containerPort": 8080}, {"containerPort": 8080, "protocol": "UDP"}],
            [{"name": "port-8080", "port": 8080}, {"name": "port-8080-udp", "port": 8080, "protocol": "UDP"}],
        ),
        ([{"name": "a", "containerPort": 1}, {"name": "b", "containerPort": 1}], [{"name": "a", "port": 1}]),
    ],
    ids=["order and protocol are kept", "ports without a name get one", "a number is listed once"],
)
def test_service_has_the_ports_of_the_container(declared: list[Object], expected: list[Object]) -> None:
    assert service_ports(declared) == [*expected, {"name": "pytorchjob-port", "port": 23456}]


def test_unnamed_port_with_the_default_number_gets_the_default_name() -> None:
    assert service_ports([{"containerPort": 23456}]) == [{"name": "pytorchjob-port", "port": 23456}]


def test_ports_are_those_of_the_main_container_wherever_it_stands() -> None:
    main = {"name": "pytorch", "image": "a", "ports": [{"name": "pytorchjob-port", "containerPort": 29500}]}
    pod = {"spec": {"containers": [{"name": "sidecar", "image": "b"}, main]}}
    made = decide(JobBuilder().master(pod=pod).workers(1))
    assert child(made, "digits-master-0", "Service")["spec"]["ports"] == [{"name": "pytorchjob-port", "port": 29500}]
    assert ("MASTER_PORT", "29500") in env(child(made, "digits-worker-0"))
