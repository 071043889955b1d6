"""Defaults of fields that are not set. The manifest itself is never changed."""

import copy

import pytest

from tests.support.objects.jobs import JobBuilder, template
from trainwright.api.defaults import complete_replicas, main_container
from trainwright.api.job import Job
from trainwright.api.kinds import PYTORCH
from trainwright.api.kinds.pytorch import ElasticPolicy, PyTorchFields
from trainwright.api.types import ReplicaSpec
from trainwright.objects import Object

PORT = {"name": "pytorchjob-port", "containerPort": 23456}


def ports(job: Job, role: str) -> list[Object]:
    (container,) = job.replicas[role].template["spec"]["containers"]
    found: list[Object] = container["ports"]
    return found


def test_item_71_clean_pod_policy_replicas_restart_policy_and_port_have_defaults() -> None:
    job = JobBuilder().replica("Worker", None).job()
    assert job.run_policy.clean_pod_policy == "None"
    assert (job.replicas["Worker"].count, job.replicas["Worker"].restart_policy) == (1, "OnFailure")
    assert ports(job, "Worker") == [PORT]
    assert job.own_fields(PyTorchFields).nproc_per_node == "auto"


def test_item_71_fields_that_are_set_have_no_defaults() -> None:
    own = {"name": "pytorchjob-port", "containerPort": 29500}
    builder = JobBuilder().workers(3, policy="Never", pod=template(ports=[own])).run_policy(cleanPodPolicy="All")
    job = builder.spec(nprocPerNode="4").job()
    assert job.run_policy.clean_pod_policy == "All"
    assert (job.replicas["Worker"].count, job.replicas["Worker"].restart_policy) == (3, "Never")
    assert ports(job, "Worker") == [own]
    assert job.own_fields(PyTorchFields).nproc_per_node == "4"


def test_item_71_default_port_is_appended_to_other_ports() -> None:
    other = {"name": "metrics", "containerPort": 8080}
    assert ports(JobBuilder().master(pod=template(ports=[other])).job(), "Master") == [other, PORT]


def test_first_container_gets_the_default_port_if_none_has_the_name() -> None:
    pod = {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}
    completed = complete_replicas({"Master": ReplicaSpec(template=pod)}, PYTORCH)
    assert completed["Master"].template == {"spec": {"containers": [{"name": "a", "ports": [PORT]}, {"name": "b"}]}}


def test_main_container_is_the_named_one_at_any_position() -> None:
    containers: list[Object] = [{"name": "sidecar"}, {"name": "pytorch"}]
    assert main_container(containers, "pytorch") == {"name": "pytorch"}
    assert main_container(containers, "") == {"name": "sidecar"}


def test_template_without_containers_is_unchanged() -> None:
    assert complete_replicas({"Master": ReplicaSpec()}, PYTORCH)["Master"].template == {}


def test_unknown_role_is_left_to_validation() -> None:
    assert complete_replicas({"Chief": ReplicaSpec()}, PYTORCH) == {"Chief": ReplicaSpec()}


def test_the_manifest_is_never_changed() -> None:
    builder = JobBuilder().replica("worker", None).spec(elasticPolicy={})
    job = builder.job()
    assert job.raw == copy.deepcopy(builder.raw())


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
    completed = JobBuilder().workers(3).spec(elasticPolicy=elastic).job().own_fields(PyTorchFields).elastic_policy
    assert completed is not None
    assert (completed.min_replicas, completed.max_replicas) == bounds


def test_elastic_bounds_without_workers_are_one() -> None:
    completed = PYTORCH.complete(PyTorchFields(elastic_policy=ElasticPolicy()), {}).elastic_policy
    assert (completed.min_replicas, completed.max_replicas) == (1, 1)


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
    job = JobBuilder().workers(1).spec(**fields).job()
    assert job.own_fields(PyTorchFields).nproc_per_node == expected
