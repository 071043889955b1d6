"""Jobs on our controller and on the real kube-controller-manager. The test writes the status of pods in place of the
kubelet."""

import asyncio
from typing import Any

import pytest

from tests.cluster.controllers.conftest import ControllerCluster
from tests.support.objects.manifests import batch_job
from tests.support.waiting import eventually
from trainwright.kube.client.errors import NotFound
from trainwright.objects import Object
from trainwright.objects.conditions import is_condition_true
from trainwright.objects.resources import BATCH_JOBS, EVENTS, PODS

pytestmark = pytest.mark.thorough("real", sample=5)

INDEX = "batch.kubernetes.io/job-completion-index"
FINALIZER = "batch.kubernetes.io/job-tracking"
LONG_AGO = "2026-01-01T00:00:00Z"


async def create(cluster: ControllerCluster, **spec: Any) -> Object:
    return await cluster.client.create(BATCH_JOBS, batch_job(**spec), namespace=cluster.namespace)


async def read(cluster: ControllerCluster) -> Object:
    return await cluster.client.get(BATCH_JOBS, "pi", namespace=cluster.namespace)


async def pods_of(cluster: ControllerCluster, count: int, phase: str = "Pending") -> list[Object]:
    async def found() -> list[Object]:
        pods = (await cluster.client.list(PODS, namespace=cluster.namespace)).items
        return [one for one in pods if one["status"]["phase"] == phase and "deletionTimestamp" not in one["metadata"]]

    pods = await eventually(found, lambda pods: len(pods) == count)
    return sorted(pods, key=lambda one: one["metadata"]["name"])


async def end(cluster: ControllerCluster, pod: Object, *, code: int = 0) -> None:
    """In place of the kubelet: the pod ended long ago, so that no back-off is left."""
    terminated = {"exitCode": code, "finishedAt": LONG_AGO, "startedAt": LONG_AGO}
    container = {"name": "main", "image": "busybox", "imageID": "", "ready": False, "restartCount": 0}
    status = {
        "phase": "Failed" if code else "Succeeded",
        "containerStatuses": [container | {"state": {"terminated": terminated}}],
    }
    await cluster.client.patch(
        PODS, pod["metadata"]["name"], {"status": status}, namespace=cluster.namespace, subresource="status"
    )


async def finished(cluster: ControllerCluster, condition: str) -> Object:
    return await eventually(lambda: read(cluster), lambda job: is_condition_true(job.get("status") or {}, condition))


def conditions(job: Object) -> list[tuple[str, ...]]:
    return [(one["type"], one["status"], one["reason"], one["message"]) for one in job["status"]["conditions"]]


async def test_job_completes_and_releases_its_pods(cluster: ControllerCluster) -> None:
    created = await create(cluster, completions=2, parallelism=2)
    pods = await pods_of(cluster, 2)
    for one in pods:
        assert one["metadata"]["generateName"] == "pi-"
        assert one["metadata"]["finalizers"] == [FINALIZER]
        assert one["metadata"]["labels"]["job-name"] == "pi"
    running = await eventually(lambda: read(cluster), lambda job: job["status"].get("active") == 2)
    assert running["status"]["startTime"]
    assert (running["status"]["ready"], running["status"]["terminating"]) == (0, 0)

    await asyncio.gather(*(end(cluster, one) for one in pods))
    job = await finished(cluster, "Complete")

    text = "Reached expected number of succeeded pods"
    assert conditions(job) == [
        ("SuccessCriteriaMet", "True", "CompletionsReached", text),
        ("Complete", "True", "CompletionsReached", text),
    ]
    status = {key: value for key, value in job["status"].items() if key not in {"conditions", "startTime"}}
    assert status.pop("completionTime")
    assert status == {"succeeded": 2, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}}
    for one in await pods_of(cluster, 2, "Succeeded"):
        assert "finalizers" not in one["metadata"]

    async def events() -> set[tuple[str, str]]:
        found = (await cluster.client.list(EVENTS, namespace=cluster.namespace)).items
        return {(one["reason"], one["message"]) for one in found if one["involvedObject"]["kind"] == "Job"}

    wanted = {("SuccessfulCreate", f"Created pod: {one['metadata']['name']}") for one in pods}
    await eventually(events, lambda found: found >= wanted | {("Completed", "Job completed")})
    assert created["metadata"]["uid"] == job["metadata"]["uid"]


async def test_parallelism_limits_the_pods_that_run_at_once(cluster: ControllerCluster) -> None:
    await create(cluster, completions=3, parallelism=2)
    first, second = await pods_of(cluster, 2)
    await end(cluster, first)
    pods = await pods_of(cluster, 2)
    assert second["metadata"]["name"] in {one["metadata"]["name"] for one in pods}
    expected = {"succeeded": 1, "active": 2}
    await eventually(lambda: read(cluster), lambda job: expected.items() <= job["status"].items())


async def test_job_fails_beyond_its_backoff_limit(cluster: ControllerCluster) -> None:
    await create(cluster, backoffLimit=1)
    for _ in range(2):
        (one,) = await pods_of(cluster, 1)
        await end(cluster, one, code=3)
    job = await finished(cluster, "Failed")
    text = "Job has reached the specified backoff limit"
    assert conditions(job) == [
        ("FailureTarget", "True", "BackoffLimitExceeded", text),
        ("Failed", "True", "BackoffLimitExceeded", text),
    ]
    assert job["status"]["failed"] == 2
    assert "completionTime" not in job["status"]


async def test_deadline_deletes_the_running_pods(cluster: ControllerCluster) -> None:
    await create(cluster, activeDeadlineSeconds=1, parallelism=2, completions=2)
    job = await finished(cluster, "Failed")
    assert conditions(job)[-1] == (
        "Failed", "True", "DeadlineExceeded", "Job was active longer than specified deadline",
    )  # fmt: skip
    assert job["status"]["failed"] == 2
    await pods_of(cluster, 0)


async def test_indexed_pods_know_their_index(cluster: ControllerCluster) -> None:
    await create(cluster, completionMode="Indexed", completions=3, parallelism=2)
    first, second = await pods_of(cluster, 2)
    for index, one in enumerate((first, second)):
        assert one["metadata"]["generateName"] == f"pi-{index}-"
        assert one["metadata"]["annotations"][INDEX] == one["metadata"]["labels"][INDEX] == str(index)
        assert one["spec"]["hostname"] == f"pi-{index}"
        (variable,) = one["spec"]["containers"][0]["env"]
        field = {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}
        assert variable == {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": field}}

    await end(cluster, second)
    job = await eventually(lambda: read(cluster), lambda job: job["status"].get("completedIndexes") == "1")
    assert job["status"]["succeeded"] == 1
    _, third = await pods_of(cluster, 2)
    assert third["metadata"]["labels"][INDEX] == "2"
    await end(cluster, first)
    await end(cluster, third)
    job = await finished(cluster, "Complete")
    assert (job["status"]["completedIndexes"], job["status"]["succeeded"]) == ("0-2", 3)


async def test_suspended_job_has_no_pods_until_it_is_resumed(cluster: ControllerCluster) -> None:
    await create(cluster, suspend=True)
    job = await finished(cluster, "Suspended")
    assert conditions(job) == [("Suspended", "True", "JobSuspended", "Job suspended")]
    assert "startTime" not in job["status"]

    await cluster.client.patch(BATCH_JOBS, "pi", {"spec": {"suspend": False}}, namespace=cluster.namespace)
    await pods_of(cluster, 1)
    job = await eventually(lambda: read(cluster), lambda job: not is_condition_true(job["status"], "Suspended"))
    assert conditions(job) == [("Suspended", "False", "JobResumed", "Job resumed")]
    assert job["status"]["startTime"]

    await cluster.client.patch(BATCH_JOBS, "pi", {"spec": {"suspend": True}}, namespace=cluster.namespace)
    await pods_of(cluster, 0)
    job = await finished(cluster, "Suspended")
    assert "failed" not in job["status"]


async def test_failure_policy_fails_the_job_by_exit_code(cluster: ControllerCluster) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    await create(cluster, podFailurePolicy={"rules": [rule]})
    (one,) = await pods_of(cluster, 1)
    await end(cluster, one, code=42)
    job = await finished(cluster, "Failed")
    name = f"{cluster.namespace}/{one['metadata']['name']}"
    text = f"Container main for pod {name} failed with exit code 42 matching FailJob rule at index 0"
    assert conditions(job)[-1] == ("Failed", "True", "PodFailurePolicy", text)


async def test_ignored_failures_do_not_count(cluster: ControllerCluster) -> None:
    rule = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}}
    await create(cluster, podFailurePolicy={"rules": [rule]}, backoffLimit=0)
    (one,) = await pods_of(cluster, 1)
    await end(cluster, one, code=42)
    (one,) = await pods_of(cluster, 1)
    await end(cluster, one)
    job = await finished(cluster, "Complete")
    assert "failed" not in job["status"]


async def test_failed_index_does_not_stop_the_others(cluster: ControllerCluster) -> None:
    await create(cluster, completionMode="Indexed", completions=2, parallelism=2, backoffLimitPerIndex=0)
    first, second = await pods_of(cluster, 2)
    await end(cluster, first, code=1)
    job = await eventually(lambda: read(cluster), lambda job: job["status"].get("failedIndexes") == "0")
    await end(cluster, second)
    job = await finished(cluster, "Failed")
    assert conditions(job)[-1] == ("Failed", "True", "FailedIndexes", "Job has failed indexes")
    assert (job["status"]["completedIndexes"], job["status"]["failedIndexes"]) == ("1", "0")


async def test_success_policy_ends_the_job_early(cluster: ControllerCluster) -> None:
    policy = {"rules": [{"succeededIndexes": "0"}]}
    await create(cluster, completionMode="Indexed", completions=2, parallelism=2, successPolicy=policy)
    first, _ = await pods_of(cluster, 2)
    await end(cluster, first)
    job = await finished(cluster, "Complete")
    assert conditions(job)[-1] == ("Complete", "True", "SuccessPolicy", "Matched rules at index 0")
    assert job["status"]["succeeded"] == 1


async def test_work_queue_job_completes_with_its_first_success(cluster: ControllerCluster) -> None:
    await create(cluster, parallelism=2)
    first, second = await pods_of(cluster, 2)
    await end(cluster, first)
    await end(cluster, second, code=1)
    job = await finished(cluster, "Complete")
    assert (job["status"]["succeeded"], job["status"]["failed"]) == (1, 1)


async def test_finished_job_is_deleted_after_its_ttl(cluster: ControllerCluster) -> None:
    await create(cluster, ttlSecondsAfterFinished=0)
    (one,) = await pods_of(cluster, 1)
    await end(cluster, one)

    async def exists() -> bool:
        try:
            await read(cluster)
        except NotFound:
            return False
        return True

    await eventually(exists, lambda there: not there, seconds=60)
    await pods_of(cluster, 0, "Succeeded")


async def test_deleting_a_job_deletes_its_pods(cluster: ControllerCluster) -> None:
    await create(cluster, parallelism=2)
    await pods_of(cluster, 2)
    await cluster.client.delete(BATCH_JOBS, "pi", namespace=cluster.namespace)
    await pods_of(cluster, 0)


async def test_orphaned_pods_lose_their_finalizer(cluster: ControllerCluster) -> None:
    await create(cluster)
    (one,) = await pods_of(cluster, 1)
    await cluster.client.delete(BATCH_JOBS, "pi", namespace=cluster.namespace, propagation="Orphan")

    async def pod() -> Object:
        return await cluster.client.get(PODS, one["metadata"]["name"], namespace=cluster.namespace)

    found = await eventually(
        pod, lambda found: not found["metadata"].get("finalizers") and not found["metadata"].get("ownerReferences")
    )
    assert found["status"]["phase"] == "Pending"
