"""Items 51 and 57: PaddleJobs and JAXJobs. What all kinds have in common is in `test_items_suspension.py`."""

import pytest

from tests.support.engine.planning import child, decide
from tests.support.harness.cluster_harness import ClusterHarness
from tests.support.harness.job_harness import environment, owner_reference
from tests.support.objects import upstream
from tests.support.objects.jobs import JobBuilder, template
from tests.support.objects.upstream import pod_labels, service_labels
from trainwright.api.kinds.jax import JAX
from trainwright.api.kinds.paddle import PADDLE
from trainwright.objects import Object


async def test_item_51_pods_and_services_of_a_paddlejob_and_its_success(cluster: ClusterHarness) -> None:
    jobs = cluster.of(PADDLE)
    pod = jobs.template()
    pod["spec"]["containers"][0]["ports"] = [{"name": "master", "containerPort": 36543}]
    names = ["job-master-0", "job-worker-0", "job-worker-1"]
    job = await jobs.submit(JobBuilder("job", kind=PADDLE).master(pod=pod).workers(2, pod=pod))
    await jobs.wait_for_children("job", names)
    pods, services = await jobs.pods("job"), await jobs.services("job")
    for name in names:
        _, role, index = name.split("-")
        assert pods[name]["metadata"]["labels"] == pod_labels("job", role, index, "PaddleJob")
        selector = services[name]["spec"]["selector"]
        assert services[name]["metadata"]["labels"] == selector == service_labels("job", role, index, "PaddleJob")
        for one in (pods[name], services[name]):
            assert one["metadata"]["ownerReferences"] == [owner_reference(job)]

    pod, service = pods["job-master-0"], services["job-master-0"]
    (exposed,), (offered,) = pod["spec"]["containers"][0]["ports"], service["spec"]["ports"]
    assert exposed["name"] == offered["name"] == "master"
    assert exposed["containerPort"] == offered["port"] == 36543
    address = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
    assert pod["spec"]["containers"][0]["env"] == [
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        {"name": "PADDLE_JOB_ID", "value": "job"},
        {"name": "PADDLE_NNODES", "value": "3"},
        {"name": "POD_IP_DUMMY", "valueFrom": address},
        {"name": "PADDLE_MASTER", "value": "$(POD_IP_DUMMY):36543"},
        {"name": "PADDLE_SERVER_NUM", "value": "1"},
    ]
    assert environment(pods["job-worker-0"])["PADDLE_MASTER"] == "job-master-0:36543"

    await jobs.wait_until_running("job")
    await jobs.end("job-master-0", exit_code=0)
    finished = await jobs.wait_for_conditions(
        "job",
        upstream.created("job", "PaddleJob"),
        upstream.running("job", "False", "PaddleJob"),
        upstream.succeeded("job", "PaddleJob"),
    )
    assert finished["status"]["replicaStatuses"]["Master"]["succeeded"] == 1


ENVIRONMENT = {
    "declared": ({"ports": [{"name": "jaxjob-port", "containerPort": 6000}]}, "6000"),
    # Upstream's function fails without a port of that name; upstream's defaults add one, and so do ours.
    "another-port": ({"ports": [{"name": "other", "containerPort": 6000}]}, "6666"),
    "no-port": ({}, "6666"),
}
"""Fields of the container, and the port of the coordinator."""


@pytest.mark.parametrize("row", ENVIRONMENT)
def test_item_57_environment_of_a_jaxjob_as_planned(row: str) -> None:
    planned = decide(jaxjob(row).metadata(name="digits"))
    assert list(environment(child(planned, "digits-worker-1")).items()) == expected_environment(row, "digits", "1")


async def test_item_57_environment_of_a_jaxjob(cluster: ClusterHarness) -> None:
    """The index of a pod is always a number."""
    jobs = cluster.of(JAX)
    for row in ENVIRONMENT:
        await jobs.submit(jaxjob(row))
    for row in ENVIRONMENT:
        await jobs.wait_for_children(row, [f"{row}-worker-0", f"{row}-worker-1"])
        pods = await jobs.pods(row)
        for index in ("0", "1"):
            pod = pods[f"{row}-worker-{index}"]
            assert list(environment(pod).items()) == expected_environment(row, row, index)
            assert ("training.kubeflow.org/job-role" in pod["metadata"]["labels"]) is (index == "0")


def jaxjob(row: str) -> JobBuilder:
    fields: Object = ENVIRONMENT[row][0]
    return JobBuilder(row, kind=JAX).workers(2, pod=template(name="jax", **fields))


def expected_environment(row: str, job: str, index: str) -> list[tuple[str, str]]:
    return [
        ("PYTHONUNBUFFERED", "1"),
        ("COORDINATOR_PORT", ENVIRONMENT[row][1]),
        ("COORDINATOR_ADDRESS", f"{job}-worker-0"),
        ("NUM_PROCESSES", "2"),
        ("PROCESS_ID", index),
    ]
