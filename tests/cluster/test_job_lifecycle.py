"""The lifecycle of a PyTorchJob, once on the embedded cluster with real processes and once on a real API server.

Everything that a user can see is compared with what the training-operator v1.9 shows, as literal values.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.harness.cluster_harness import ClusterHarness, embedded_cluster_harness, real_cluster_harness
from tests.support.harness.job_harness import owner_reference
from tests.support.objects.upstream import pod_labels, service_labels
from tests.support.waiting import eventually
from trainwright.api.kinds import PYTORCH
from trainwright.objects import Object
from trainwright.objects.resources import EVENTS, PODS, SERVICES, Resource

REPLICAS = [("life-master-0", "master", "0"), ("life-worker-0", "worker", "0"), ("life-worker-1", "worker", "1")]

CREATED = ("Created", "True", "PyTorchJobCreated", "PyTorchJob life is created.")
RUNNING = ("Running", "True", "PyTorchJobRunning", "PyTorchJob life is running.")
RESTARTING = (
    "Restarting",
    "True",
    "PyTorchJobRestarting",
    "PyTorchJob life is restarting because 1 Worker replica(s) failed.",
)
NO_LONGER_RUNNING = ("Running", "False", "PyTorchJobRunning", "PyTorchJob life is running.")
SUCCEEDED = ("Succeeded", "True", "PyTorchJobSucceeded", "PyTorchJob life is successfully completed.")


@pytest.fixture(params=["embedded", "embedded-plain", pytest.param("real", marks=pytest.mark.apiserver)])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ClusterHarness]:
    match request.param:
        case "embedded":
            chosen = embedded_cluster_harness(tmp_path)
        case "embedded-plain":
            chosen = embedded_cluster_harness(tmp_path, sandbox="plain")
        case _:
            config = request.getfixturevalue("job_plane").config
            chosen = real_cluster_harness(config, request.getfixturevalue("real_namespace"), tmp_path)
    async with chosen as harness:
        yield harness


async def test_a_job_runs_restarts_a_worker_succeeds_is_cleaned_up_and_deleted(harness: ClusterHarness) -> None:
    created = await harness.client.create(PYTORCH.resource, manifest(harness))
    async with harness.history(created) as history:
        await all_running(harness)
        await check_pods(harness, owner=created)
        await check_services(harness, owner=created)

        first = await harness.client.get(PODS, "life-worker-0", namespace=harness.namespace)
        await harness.end("life-worker-0", exit_code=130)
        await eventually(
            lambda: list_named(harness, PODS),
            lambda pods: pods.get("life-worker-0", first)["metadata"]["uid"] != first["metadata"]["uid"],
        )
        await all_running(harness)
        await check_pods(harness, owner=created)

        await harness.end("life-worker-0", exit_code=0)
        await eventually(lambda: job(harness), lambda seen: replicas(seen, "Worker").get("succeeded") == 1)
        await harness.end("life-master-0", exit_code=0)
        finished = await eventually(lambda: job(harness), lambda seen: "completionTime" in seen["status"])
        await check_cleaned_up(harness)

    assert history == [
        [CREATED],
        [CREATED, RUNNING],
        [CREATED, RESTARTING],
        [CREATED, RUNNING],
        [CREATED, NO_LONGER_RUNNING, SUCCEEDED],
    ]
    await check_final_status(harness, finished)
    await check_events(harness)

    await harness.client.delete(PYTORCH.resource, "life", namespace=harness.namespace)
    # A garbage collector that happens to look for new kinds just now takes its time.
    await eventually(lambda: list_named(harness, PODS), lambda left: not left, seconds=60)
    await eventually(lambda: list_named(harness, SERVICES), lambda left: not left, seconds=60)


def manifest(harness: ClusterHarness) -> Object:
    def role(replicas: int, restart_policy: str) -> Object:
        return {"replicas": replicas, "restartPolicy": restart_policy, "template": harness.template()}

    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "life", "namespace": harness.namespace},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "Running"},
            "pytorchReplicaSpecs": {"Master": role(1, "OnFailure"), "Worker": role(2, "ExitCode")},
        },
    }


async def check_pods(harness: ClusterHarness, *, owner: Object) -> None:
    pods = await list_named(harness, PODS)
    host = "life-master-0"
    assert sorted(pods) == [name for name, _, _ in REPLICAS]
    for rank, (name, role, index) in enumerate(REPLICAS):
        pod = pods[name]
        assert pod["metadata"]["labels"] == pod_labels("life", role, index)
        assert pod["metadata"]["ownerReferences"] == [owner_reference(owner)]
        assert pod["spec"]["restartPolicy"] == ("OnFailure" if role == "master" else "Never")
        (container,) = pod["spec"]["containers"]
        assert container["env"] == [
            {"name": "PYTHONUNBUFFERED", "value": "1"},
            {"name": "MASTER_PORT", "value": "23456"},
            {"name": "PET_MASTER_PORT", "value": "23456"},
            {"name": "MASTER_ADDR", "value": host},
            {"name": "PET_MASTER_ADDR", "value": host},
            {"name": "WORLD_SIZE", "value": "3"},
            {"name": "RANK", "value": str(rank)},
            {"name": "PET_NODE_RANK", "value": str(rank)},
            {"name": "PET_NPROC_PER_NODE", "value": "auto"},
            {"name": "PET_NNODES", "value": "3"},
        ]
        (exposed,) = container["ports"]
        assert (exposed["name"], exposed["containerPort"]) == ("pytorchjob-port", 23456)


async def check_services(harness: ClusterHarness, *, owner: Object) -> None:
    services = await list_named(harness, SERVICES)
    assert sorted(services) == [name for name, _, _ in REPLICAS]
    for name, role, index in REPLICAS:
        service = services[name]
        assert service["metadata"]["labels"] == service_labels("life", role, index)
        assert service["metadata"]["ownerReferences"] == [owner_reference(owner)]
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["selector"] == service_labels("life", role, index)
        (exposed,) = service["spec"]["ports"]
        assert (exposed["name"], exposed["port"]) == ("pytorchjob-port", 23456)


async def check_cleaned_up(harness: ClusterHarness) -> None:
    """cleanPodPolicy Running: the worker that still ran is deleted with its Service, the finished ones stay."""
    kept = ["life-master-0", "life-worker-0"]
    await eventually(lambda: list_named(harness, PODS), lambda left: sorted(left) == kept)
    await eventually(lambda: list_named(harness, SERVICES), lambda left: sorted(left) == kept)


async def check_final_status(harness: ClusterHarness, finished: Object) -> None:
    def selector(role: str) -> str:
        return (
            "training.kubeflow.org/job-name=life,training.kubeflow.org/operator-name=pytorchjob-controller,"
            f"training.kubeflow.org/replica-type={role}"
        )

    status = (await job(harness))["status"]
    assert status["replicaStatuses"] == {
        "Master": {"succeeded": 1, "selector": selector("master")},
        # As upstream counts: a pod that ran when the job succeeded has succeeded.
        "Worker": {"succeeded": 2, "selector": selector("worker")},
    }
    assert status["restarts"] == {"Worker": 1}
    assert status["completionTime"] == finished["status"]["completionTime"]
    assert status["startTime"] <= status["completionTime"]


async def check_events(harness: ClusterHarness) -> None:
    expected = {
        *(("Normal", "SuccessfulCreatePod", f"Created pod: {name}") for name, _, _ in REPLICAS),
        *(("Normal", "SuccessfulCreateService", f"Created service: {name}") for name, _, _ in REPLICAS),
        ("Normal", "ExitedWithCode", f"Pod: {harness.namespace}.life-worker-0 exited with code 130"),
        ("Warning", "PyTorchJobRestarting", "job life is restarting because Worker replica(s) failed."),
        ("Warning", "PyTorchJobRestarting", "PyTorchJob life is restarting because 1 Worker replica(s) failed."),
        ("Normal", "SuccessfulDeletePod", "Deleted pod: life-worker-0"),
        ("Normal", "ExitedWithCode", f"Pod: {harness.namespace}.life-worker-0 exited with code 0"),
        ("Normal", "ExitedWithCode", f"Pod: {harness.namespace}.life-master-0 exited with code 0"),
        ("Normal", "PyTorchJobSucceeded", "PyTorchJob life is successfully completed."),
        ("Normal", "SuccessfulDeletePod", "Deleted pod: life-worker-1"),
        ("Normal", "SuccessfulDeleteService", "Deleted service: life-worker-1"),
    }

    async def seen() -> set[tuple[str, str, str]]:
        events = await harness.client.list(
            EVENTS, namespace=harness.namespace, field_selector="involvedObject.kind=PyTorchJob"
        )
        assert {event["source"]["component"] for event in events.items} <= {"pytorchjob-controller"}
        return {(event["type"], event["reason"], event["message"]) for event in events.items}

    # Events follow the writes that they report.
    assert await eventually(seen, lambda events: len(events) >= len(expected)) == expected


async def all_running(harness: ClusterHarness) -> None:
    def running(seen: Object) -> bool:
        active = {role: replicas(seen, role).get("active") for role in ("Master", "Worker")}
        return active == {"Master": 1, "Worker": 2} and seen["status"]["conditions"][-1]["type"] == "Running"

    await eventually(lambda: job(harness), running)


async def job(harness: ClusterHarness) -> Object:
    return await harness.client.get(PYTORCH.resource, "life", namespace=harness.namespace)


def replicas(seen: Object, role: str) -> Object:
    counts: Object = seen.get("status", {}).get("replicaStatuses", {}).get(role, {})
    return counts


async def list_named(harness: ClusterHarness, resource: Resource) -> dict[str, Object]:
    """Children of the job by name."""
    found = await harness.client.list(
        resource, namespace=harness.namespace, label_selector="training.kubeflow.org/job-name=life"
    )
    return {item["metadata"]["name"]: item for item in found.items}
