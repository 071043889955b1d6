"""Items 1, 2 and 6 to 8: the behaviour of training-operator v1.9.4 for a PyTorchJob, on a real API server."""

from typing import Any

import pytest

from tests.support.engine.planning import child, decide, env
from tests.support.harness.cluster_harness import ClusterHarness, RealClusterHarness
from tests.support.harness.job_harness import JobHarness, environment, owner_reference
from tests.support.objects import upstream
from tests.support.objects.jobs import JobBuilder, template
from tests.support.objects.upstream import pod_labels, service_labels
from tests.support.waiting import eventually
from trainwright.kube.client.errors import Invalid
from trainwright.objects import Object
from trainwright.objects.resources import Resource

AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
CPU_METRIC = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
PODS_OF_THREE = ["job-master-0", "job-worker-0", "job-worker-1"]


async def test_item_01_pods_and_services_of_a_job_and_its_success(cluster: ClusterHarness) -> None:
    job = await cluster.submit(three(cluster))
    await cluster.wait_for_children("job", PODS_OF_THREE)
    pods, services = await cluster.pods("job"), await cluster.services("job")
    for name, role, index in (
        ("job-master-0", "master", "0"),
        *((f"job-worker-{i}", "worker", str(i)) for i in (0, 1)),
    ):
        assert pods[name]["metadata"]["labels"] == pod_labels("job", role, index)
        selector = services[name]["spec"]["selector"]
        assert services[name]["metadata"]["labels"] == selector == service_labels("job", role, index)
        assert services[name]["spec"]["clusterIP"] == "None"
        for one in (pods[name], services[name]):
            assert one["metadata"]["ownerReferences"] == [owner_reference(job)]

    pod, service = pods["job-master-0"], services["job-master-0"]
    (exposed,), (offered,) = pod["spec"]["containers"][0]["ports"], service["spec"]["ports"]
    assert exposed["name"] == offered["name"] == "pytorchjob-port"
    assert exposed["containerPort"] == offered["port"] == 23456
    address = service["metadata"]["name"]
    assert list(environment(pod).items()) == [
        ("PYTHONUNBUFFERED", "1"),
        ("MASTER_PORT", "23456"),
        ("PET_MASTER_PORT", "23456"),
        ("MASTER_ADDR", address),
        ("PET_MASTER_ADDR", address),
        ("WORLD_SIZE", "3"),
        ("RANK", "0"),
        ("PET_NODE_RANK", "0"),
        ("PET_NPROC_PER_NODE", "auto"),
        ("PET_NNODES", "3"),
    ]

    await cluster.wait_until_running("job")
    await cluster.end("job-master-0", exit_code=0)
    finished = await cluster.wait_for_conditions(
        "job", upstream.created("job"), upstream.running("job", "False"), upstream.succeeded("job")
    )
    assert finished["status"]["replicaStatuses"]["Master"]["succeeded"] == 1
    await cluster.wait_for_only_events(
        "job",
        *(("Normal", "SuccessfulCreatePod", f"Created pod: {name}") for name in PODS_OF_THREE),
        *(("Normal", "SuccessfulCreateService", f"Created service: {name}") for name in PODS_OF_THREE),
        ("Normal", "ExitedWithCode", f"Pod: {cluster.namespace}.job-master-0 exited with code 0"),
        ("Normal", "PyTorchJobSucceeded", "PyTorchJob job is successfully completed."),
    )


@pytest.mark.apiserver
async def test_item_02_the_queue_of_a_job_cannot_be_changed(harness: JobHarness) -> None:
    await harness.submit(JobBuilder("job").master().run_policy(schedulingPolicy={"queue": "initial"}))
    with pytest.raises(Invalid, match=r"spec\.runPolicy\.schedulingPolicy\.queue is immutable"):
        await harness.change("job", runPolicy={"schedulingPolicy": {"queue": "another"}})
    assert (await harness.job("job"))["spec"]["runPolicy"]["schedulingPolicy"] == {"queue": "initial"}


@pytest.mark.apiserver
async def test_item_06_an_elastic_job_has_an_autoscaler_and_torchrun_variables(
    harness: RealClusterHarness,
) -> None:
    job = await harness.submit(elastic())
    autoscaler = await eventually(lambda: _autoscalers(harness), bool)
    (scaler,) = autoscaler
    assert scaler["metadata"]["name"] == "job"
    assert scaler["metadata"]["ownerReferences"] == [owner_reference(job)]
    assert scaler["spec"]["scaleTargetRef"] == {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "job"}
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (1, 3)
    assert scaler["spec"]["metrics"] == [CPU_METRIC]

    await harness.wait_for_children("job", ["job-worker-0"])
    pod, service = (await harness.pods("job"))["job-worker-0"], (await harness.services("job"))["job-worker-0"]
    assert pod["metadata"]["ownerReferences"] == service["metadata"]["ownerReferences"] == [owner_reference(job)]
    assert environment(pod) == {
        "PYTHONUNBUFFERED": "1",
        "PET_NPROC_PER_NODE": "auto",
        "PET_RDZV_ENDPOINT": "job-worker-0:23456",
        "PET_RDZV_BACKEND": "c10d",
        "PET_NNODES": "1:3",
        "PET_MAX_RESTARTS": "3",
    }
    await harness.wait_until_running("job")
    await harness.end("job-worker-0", exit_code=0)
    await harness.wait_for_conditions(
        "job",
        upstream.created("job"),
        upstream.workers_running("job", harness.namespace, "False"),
        upstream.workers_succeeded("job", harness.namespace),
    )


@pytest.mark.apiserver
async def test_item_07_suspending_an_elastic_job_removes_its_autoscaler(harness: JobHarness) -> None:
    await harness.submit(elastic())
    await eventually(lambda: _autoscalers(harness), bool)
    await harness.suspend("job")
    await eventually(lambda: _autoscalers(harness), lambda found: not found)
    await harness.settle()
    assert await _autoscalers(harness) == []

    await harness.suspend("job", False)
    await eventually(lambda: _autoscalers(harness), bool)


FULL_POLICY: Object = {
    "minReplicas": 1,
    "maxReplicas": 3,
    "rdzvBackend": "c10d",
    "rdzvPort": 1234,
    "rdzvHost": "localhost",
    "rdzvId": "rdzv-id",
    "rdzvConf": [{"key": "one", "value": "1"}, {"key": "two", "value": "2"}],
    "maxRestarts": 3,
}
ELASTIC_ENVIRONMENT: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({}, {}),
    (
        {"elasticPolicy": FULL_POLICY},
        {
            "PET_MAX_RESTARTS": "3",
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": "localhost:1234",
            "PET_RDZV_ID": "rdzv-id",
            "PET_RDZV_CONF": "one=1,two=2",
            "PET_NNODES": "1:3",
        },
    ),
]
"""The spec of a job of workers, and the environment variables that it adds to the common ones."""
COMMON_ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "PET_NPROC_PER_NODE": "auto", "PET_NNODES": "1"}


@pytest.mark.parametrize(("spec", "expected"), ELASTIC_ENVIRONMENT)
def test_item_08_elastic_environment_as_planned(spec: dict[str, Any], expected: dict[str, str]) -> None:
    planned = decide(JobBuilder().workers(1).spec(**spec))
    assert dict(env(child(planned, "digits-worker-0"))) == COMMON_ENVIRONMENT | expected


@pytest.mark.apiserver
async def test_item_08_elastic_environment_and_init_containers(harness: JobHarness) -> None:
    for number, (spec, _) in enumerate(ELASTIC_ENVIRONMENT):
        await harness.submit(JobBuilder(f"workers-{number}").workers(1).spec(**spec))
    await harness.submit(JobBuilder("both").master().workers(1))
    for number, (_, expected) in enumerate(ELASTIC_ENVIRONMENT):
        job = f"workers-{number}"
        await harness.wait_for_children(job, [f"{job}-worker-0"])
        pod = (await harness.pods(job))[f"{job}-worker-0"]
        assert environment(pod) == COMMON_ENVIRONMENT | expected
        assert "initContainers" not in pod["spec"]

    await harness.wait_for_children("both", ["both-master-0", "both-worker-0"])
    pods = await harness.pods("both")
    assert "initContainers" not in pods["both-master-0"]["spec"]
    (waiting,) = pods["both-worker-0"]["spec"]["initContainers"]
    assert (waiting["name"], waiting["image"]) == ("init-pytorch", "alpine:3.10")
    assert "both-master-0" in waiting["command"][-1]


# Helpers


def three(cluster: ClusterHarness) -> JobBuilder:
    """A master and two workers that declare the default port."""
    pod = cluster.template()
    pod["spec"]["containers"][0]["ports"] = [{"name": "pytorchjob-port", "containerPort": 23456}]
    return JobBuilder("job").master(pod=pod).workers(2, pod=pod)


def elastic() -> JobBuilder:
    policy = {"rdzvBackend": "c10d", "minReplicas": 1, "maxReplicas": 3, "maxRestarts": 3, "metrics": [CPU_METRIC]}
    return JobBuilder("job").workers(1, pod=template()).spec(elasticPolicy=policy)


async def _autoscalers(harness: JobHarness) -> list[Object]:
    return (await harness.client.list(AUTOSCALERS, namespace=harness.namespace)).items
