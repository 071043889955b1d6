"""What a manifest leaves out, and that the manifest itself is never touched."""

import copy

import pytest

from tests.support.objects.jobs import JobBuilder, template
from trainwright.api.defaults import default_container, with_defaults
from trainwright.api.kinds import PYTORCH
from trainwright.objects import Object

PORT = {"name": "pytorchjob-port", "containerPort": 23456}


def defaulted(builder: JobBuilder) -> Object:
    return with_defaults(builder.raw()["spec"], PYTORCH)


def ports(spec: Object, role: str = "Master") -> list[Object]:
    container = spec["pytorchReplicaSpecs"][role]["template"]["spec"]["containers"][0]
    found: list[Object] = container["ports"]
    return found


def test_item_71_cleaning_replicas_restart_policy_and_port_have_defaults() -> None:
    spec = defaulted(JobBuilder().replica("Master", None))
    assert spec["runPolicy"]["cleanPodPolicy"] == "None"
    assert spec["pytorchReplicaSpecs"]["Master"]["replicas"] == 1
    assert spec["pytorchReplicaSpecs"]["Master"]["restartPolicy"] == "OnFailure"
    assert ports(spec) == [PORT]
    assert spec["nprocPerNode"] == "auto"


def test_item_71_what_is_written_stands() -> None:
    own = {"name": "pytorchjob-port", "containerPort": 29500}
    builder = JobBuilder().workers(3, policy="Never", pod=template(ports=[own])).run_policy(cleanPodPolicy="All")
    spec = defaulted(builder.spec(nprocPerNode="4"))
    assert spec["runPolicy"]["cleanPodPolicy"] == "All"
    assert spec["pytorchReplicaSpecs"]["Worker"]["replicas"] == 3
    assert spec["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] == "Never"
    assert ports(spec, "Worker") == [own]
    assert spec["nprocPerNode"] == "4"


def test_item_71_default_port_is_appended_beside_other_ports() -> None:
    other = {"name": "metrics", "containerPort": 8080}
    assert ports(defaulted(JobBuilder().master(pod=template(ports=[other])))) == [other, PORT]


def test_default_port_goes_to_the_first_container_if_none_has_the_name() -> None:
    pod = {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}
    spec = defaulted(JobBuilder().master(pod=pod))
    assert spec["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"] == [
        {"name": "a", "ports": [PORT]},
        {"name": "b"},
    ]


def test_default_container_is_the_named_one_wherever_it_stands() -> None:
    containers = [{"name": "sidecar"}, {"name": "pytorch"}]
    assert default_container(containers, PYTORCH) == {"name": "pytorch"}


def test_a_template_without_containers_stays_as_it_is() -> None:
    spec = with_defaults({"pytorchReplicaSpecs": {"Master": {}}}, PYTORCH)
    assert spec["pytorchReplicaSpecs"]["Master"]["template"] == {}


def test_a_role_that_does_not_exist_is_left_to_validation() -> None:
    spec = with_defaults({"pytorchReplicaSpecs": {"Chief": {}}}, PYTORCH)
    assert spec["pytorchReplicaSpecs"] == {"Chief": {}}


def test_the_manifest_is_never_changed() -> None:
    raw = JobBuilder().replica("worker", None).spec(elasticPolicy={}).raw()
    before = copy.deepcopy(raw)
    with_defaults(raw["spec"], PYTORCH)
    assert raw == before


@pytest.mark.parametrize(
    ("elastic", "bounds"),
    [
        ({}, (3, 3)),
        ({"minReplicas": 1}, (1, 1)),
        ({"maxReplicas": 5}, (5, 5)),
        ({"minReplicas": 1, "maxReplicas": 5}, (1, 5)),
    ],
)
def test_item_71_elastic_bounds_default_to_each_other_or_to_the_workers(
    elastic: Object, bounds: tuple[int, int]
) -> None:
    completed = defaulted(JobBuilder().workers(3).spec(elasticPolicy=elastic))["elasticPolicy"]
    assert (completed["minReplicas"], completed["maxReplicas"]) == bounds


def test_elastic_bounds_without_workers_are_one() -> None:
    completed = PYTORCH.complete({"elasticPolicy": {}})["elasticPolicy"]
    assert (completed["minReplicas"], completed["maxReplicas"]) == (1, 1)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "auto"),
        ({"nprocPerNode": "gpu"}, "gpu"),
        ({"elasticPolicy": {}}, "auto"),
        ({"elasticPolicy": {"nProcPerNode": 2}}, None),
        ({"elasticPolicy": {}, "nprocPerNode": "2"}, "2"),
    ],
)
def test_item_71_processes_per_node_are_auto_unless_the_old_field_is_used(fields: Object, expected: str | None) -> None:
    assert defaulted(JobBuilder().workers(1).spec(**fields)).get("nprocPerNode") == expected
