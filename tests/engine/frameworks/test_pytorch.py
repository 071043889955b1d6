"""PyTorch's environment, byte for byte and in upstream's order, and its rules for success."""

from typing import Any

import pytest

from tests.support.engine.planning import DNS, STARTED, child, conditions, decide, env
from tests.support.objects.jobs import JobBuilder, PodBuilder, template
from trainwright.engine import InitContainer, Settings
from trainwright.objects import Object


def elastic(builder: JobBuilder, **fields: Any) -> JobBuilder:
    return builder.spec(elasticPolicy=fields)


def test_environment_of_a_worker_of_a_job_with_a_master() -> None:
    made = decide(JobBuilder().master().workers(2))
    assert env(child(made, "digits-worker-1")) == [
        ("PYTHONUNBUFFERED", "1"),
        ("MASTER_PORT", "23456"),
        ("PET_MASTER_PORT", "23456"),
        ("MASTER_ADDR", "digits-master-0"),
        ("PET_MASTER_ADDR", "digits-master-0"),
        ("WORLD_SIZE", "3"),
        ("RANK", "2"),
        ("PET_NODE_RANK", "2"),
        ("PET_NPROC_PER_NODE", "auto"),
        ("PET_NNODES", "3"),
    ]


def test_the_master_is_rank_zero() -> None:
    found = dict(env(child(decide(JobBuilder().master().workers(2)), "digits-master-0")))
    assert (found["RANK"], found["PET_NODE_RANK"]) == ("0", "0")


@pytest.mark.parametrize(
    ("processes", "world"),
    [
        ("4", "12"),
        ("gpu", "3"),
        ("cpu", "3"),
        ("1_0", "3"),
        (str(2**63 - 1), str(3 * (2**63 - 1))),
        (str(2**63), "3"),
        ("9" * 5000, "3"),
    ],
)
def test_world_size_is_the_number_of_processes_of_all_pods(processes: str, world: str) -> None:
    made = decide(JobBuilder().master().workers(2).spec(nprocPerNode=processes))
    found = dict(env(child(made, "digits-master-0")))
    assert (found["WORLD_SIZE"], found["PET_NPROC_PER_NODE"]) == (world, processes)


def test_declared_port_of_the_master_is_used() -> None:
    port = {"name": "pytorchjob-port", "containerPort": 29500}
    made = decide(JobBuilder().master(pod=template(ports=[port])).workers(1))
    assert dict(env(child(made, "digits-worker-0")))["MASTER_PORT"] == "29500"


def test_workers_of_a_job_without_master_have_no_master_variables() -> None:
    assert env(child(decide(JobBuilder().workers(2)), "digits-worker-0")) == [
        ("PYTHONUNBUFFERED", "1"),
        ("PET_NPROC_PER_NODE", "auto"),
        ("PET_NNODES", "2"),
    ]


def test_all_containers_get_the_environment_and_user_variables_come_first() -> None:
    pod = template(env=[{"name": "RANK", "value": "mine"}])
    pod["spec"]["containers"].append({"name": "sidecar", "image": "s"})
    pod["spec"]["initContainers"] = [{"name": "setup", "image": "s"}]
    found = child(decide(JobBuilder().master(pod=pod)), "digits-master-0")
    assert env(found)[:2] == [("RANK", "mine"), ("PYTHONUNBUFFERED", "1")]
    assert env(found, 1)[0] == ("PYTHONUNBUFFERED", "1")
    assert found["spec"]["initContainers"] == [{"name": "setup", "image": "s"}]


def test_rendezvous_endpoint_is_the_first_worker() -> None:
    builder = elastic(JobBuilder().workers(2), minReplicas=1, maxReplicas=3, maxRestarts=3, rdzvBackend="c10d")
    assert env(child(decide(builder), "digits-worker-1")) == [
        ("PYTHONUNBUFFERED", "1"),
        ("PET_NPROC_PER_NODE", "auto"),
        ("PET_RDZV_ENDPOINT", "digits-worker-0:23456"),
        ("PET_RDZV_BACKEND", "c10d"),
        ("PET_NNODES", "1:3"),
        ("PET_MAX_RESTARTS", "3"),
    ]


def test_environment_of_a_complete_elastic_policy() -> None:
    builder = elastic(
        JobBuilder().workers(2),
        rdzvBackend="etcd",
        rdzvHost="etcd.example.com",
        rdzvPort=2379,
        rdzvId="run-7",
        rdzvConf=[{"key": "a", "value": "1"}, {"key": "b", "value": "2"}, {}],
        nProcPerNode=4,
        standalone=True,
    )
    assert env(child(decide(builder), "digits-worker-0")) == [
        ("PYTHONUNBUFFERED", "1"),
        ("PET_RDZV_ENDPOINT", "etcd.example.com:2379"),
        ("PET_RDZV_BACKEND", "etcd"),
        ("PET_NNODES", "2:2"),
        ("PET_NPROC_PER_NODE", "4"),
        ("PET_RDZV_ID", "run-7"),
        ("PET_RDZV_CONF", "a=1,b=2,="),
        ("PET_STANDALONE", ""),
    ]


def test_an_empty_rendezvous_configuration_is_left_out() -> None:
    found = dict(env(child(decide(elastic(JobBuilder().workers(1), rdzvConf=[])), "digits-worker-0")))
    assert "PET_RDZV_CONF" not in found
    assert found["PET_RDZV_BACKEND"] == "c10d"


def init_containers(builder: JobBuilder, name: str, settings: Settings = DNS) -> list[Object]:
    found: list[Object] = child(decide(builder, settings=settings), name)["spec"].get("initContainers", [])
    return found


def test_workers_wait_until_the_masters_name_resolves() -> None:
    (waiting,) = init_containers(JobBuilder().master().workers(1), "digits-worker-0")
    script = waiting.pop("command")
    assert waiting == {
        "name": "init-pytorch",
        "image": "alpine:3.10",
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "50m", "memory": "10Mi"}, "limits": {"cpu": "100m", "memory": "20Mi"}},
    }
    assert script[:2] == ["sh", "-c"]
    assert "nslookup digits-master-0" in script[2]
    assert "getent hosts digits-master-0" in script[2]
    assert "-lt 100 " in script[2]
    assert "sleep 2\n" in script[2]


def test_master_and_workers_without_master_have_no_init_container() -> None:
    assert init_containers(JobBuilder().master().workers(1), "digits-master-0") == []
    assert init_containers(JobBuilder().workers(1), "digits-worker-0") == []
    assert init_containers(JobBuilder().master().workers(1), "digits-worker-0", Settings(init_container=None)) == []


def test_init_container_comes_last_and_gets_another_name_if_its_own_is_taken() -> None:
    pod = template()
    pod["spec"]["initContainers"] = [{"name": "init-pytorch", "image": "i"}, {"name": "init-pytorch-2", "image": "i"}]
    names = [one["name"] for one in init_containers(JobBuilder().master().workers(1, pod=pod), "digits-worker-0")]
    assert names == ["init-pytorch", "init-pytorch-2", "init-pytorch-3"]


def test_image_tries_and_pause_of_the_init_container_are_settings() -> None:
    settings = Settings(init_container=InitContainer(image="trainwright/host", max_tries=7, pause_seconds=0.25))
    (waiting,) = init_containers(JobBuilder().master().workers(1), "digits-worker-0", settings)
    assert waiting["image"] == "trainwright/host"
    assert "-lt 7 " in waiting["command"][2]
    assert "sleep 0.25\n" in waiting["command"][2]


def test_init_container_has_no_limits_on_the_embedded_cluster() -> None:
    settings = Settings(init_container=InitContainer(limited=False))
    (waiting,) = init_containers(JobBuilder().master().workers(1), "digits-worker-0", settings)
    assert "resources" not in waiting


def test_job_succeeds_when_its_master_succeeds() -> None:
    builder = JobBuilder().master().workers(2).status(STARTED)
    made = decide(builder, PodBuilder("Master").succeeded(), PodBuilder("Worker", 0).running())
    assert conditions(made)[-1] == (
        "Succeeded",
        "True",
        "PyTorchJobSucceeded",
        "PyTorchJob digits is successfully completed.",
    )


def test_without_a_master_all_workers_must_succeed() -> None:
    builder = JobBuilder().workers(2).status(STARTED)
    one_done = decide(builder, PodBuilder("Worker", 0).succeeded(), PodBuilder("Worker", 1).running())
    assert conditions(one_done)[-1] == ("Running", "True", "PyTorchJobRunning", "PyTorchJob team/digits is running.")
    both_done = decide(builder, PodBuilder("Worker", 0).succeeded(), PodBuilder("Worker", 1).succeeded())
    assert conditions(both_done)[-1] == (
        "Succeeded",
        "True",
        "PyTorchJobSucceeded",
        "PyTorchJob team/digits successfully completed.",
    )


def test_refused_autoscaler_blames_the_elastic_policy() -> None:
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    }
    made = decide(elastic(JobBuilder().workers(2), minReplicas=1, maxReplicas=3, metrics=[metric]))
    fields = {one.resource.kind: one.job_field for one in made.creates}
    assert fields["HorizontalPodAutoscaler"] == "spec.elasticPolicy"


def test_elastic_job_succeeds_when_one_worker_succeeds() -> None:
    builder = elastic(JobBuilder().workers(2).status(STARTED), minReplicas=1)
    made = decide(builder, PodBuilder("Worker", 0).running(), PodBuilder("Worker", 1).succeeded())
    assert conditions(made)[-1][0] == "Succeeded"


def test_elastic_job_with_a_master_succeeds_when_the_master_does() -> None:
    builder = elastic(JobBuilder().master().workers(2).status(STARTED), minReplicas=1)
    made = decide(builder, PodBuilder("Master").running(), PodBuilder("Worker", 1).succeeded())
    assert conditions(made)[-1][0] == "Running"
