"""Suspending, resuming and leaving a job to another manager: the same items for all kinds."""

from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from tests.support.harness.cluster_harness import ClusterHarness
from tests.support.harness.job_harness import JobHarness
from tests.support.objects import upstream
from tests.support.objects.jobs import JobBuilder
from tests.support.objects.upstream import Condition
from tests.support.waiting import eventually
from trainwright.api.kinds import KINDS
from trainwright.objects import Object
from trainwright.objects.times import format_time


class Shape(NamedTuple):
    roles: dict[str, int]
    pods: list[str]
    with_namespace: bool
    """Whether the message of the condition Running names the namespace."""


SHAPES = {
    "PyTorchJob": Shape({"Master": 1, "Worker": 2}, ["job-master-0", "job-worker-0", "job-worker-1"], False),
    "TFJob": Shape({"Chief": 1, "Worker": 2}, ["job-chief-0", "job-worker-0", "job-worker-1"], True),
    "XGBoostJob": Shape({"Master": 1, "Worker": 2}, ["job-master-0", "job-worker-0", "job-worker-1"], False),
    "PaddleJob": Shape({"Master": 1, "Worker": 2}, ["job-master-0", "job-worker-0", "job-worker-1"], False),
    "JAXJob": Shape({"Worker": 2}, ["job-worker-0", "job-worker-1"], True),
    "MPIJob": Shape({"Launcher": 1, "Worker": 2}, ["job-launcher", "job-worker-0", "job-worker-1"], False),
}
EVERY_KIND = pytest.mark.parametrize("kind", SHAPES)


@EVERY_KIND
async def test_items_03_10_45_48_52_55_a_job_that_is_created_suspended(cluster: ClusterHarness, kind: str) -> None:
    jobs = cluster.of(KINDS[kind])
    await jobs.submit(job_of(jobs, jobs.template()).suspend())
    await jobs.wait_for_conditions("job", upstream.created("job", kind), upstream.suspended("job", kind))
    await jobs.wait_for_only_events("job", ("Normal", f"{kind}Suspended", f"{kind} job is suspended."))
    assert await jobs.pods("job") == await jobs.services("job") == {}
    assert "startTime" not in await jobs.status("job")


@pytest.mark.thorough("TFJob", "XGBoostJob", "PaddleJob", "JAXJob", sample=2)
@EVERY_KIND
async def test_items_04_10_46_49_53_56_suspend_and_resume(cluster: ClusterHarness, kind: str) -> None:
    jobs, pods = cluster.of(KINDS[kind]), SHAPES[kind].pods
    is_created, is_running = upstream.created("job", kind), running(kind, jobs.namespace)
    is_suspended, was_running = upstream.suspended("job", kind), upstream.suspended_while_running("job", kind)
    is_resumed = upstream.resumed("job", kind)
    created = await jobs.submit(job_of(jobs, jobs.template()))
    async with jobs.history(created) as history:
        first = await jobs.wait_until_running("job")
        await jobs.wait_for_conditions("job", is_created, is_running)
        before = await jobs.pods("job")

        await jobs.suspend("job")
        await jobs.wait_for_children("job", [])
        suspended = await jobs.wait_for_conditions("job", is_created, was_running, is_suspended)
        await jobs.settle()
        await jobs.wait_for_children("job", [])
        assert all("active" not in status for status in suspended["status"]["replicaStatuses"].values())
        assert suspended["status"]["startTime"] == first["status"]["startTime"]
        await _next_second(after=first["status"]["startTime"])

        await jobs.suspend("job", False)
        await jobs.wait_for_children("job", pods)
        await jobs.wait_until_running("job")
        again = await jobs.wait_for_conditions("job", is_created, is_resumed, is_running)
        assert again["status"]["startTime"] > first["status"]["startTime"]
        after = await jobs.pods("job")
        assert all(pod["metadata"]["uid"] != before[name]["metadata"]["uid"] for name, pod in after.items())

    assert history == [
        [is_created],
        [is_created, is_running],
        [is_created, was_running, is_suspended],
        [is_created, was_running, is_resumed],
        [is_created, is_resumed, is_running],
    ]
    services = [] if kind == "MPIJob" else pods
    await jobs.wait_for_only_events(
        "job",
        *(("Normal", "SuccessfulCreatePod", f"Created pod: {name}") for name in pods),
        *(("Normal", "SuccessfulCreateService", f"Created service: {name}") for name in services),
        *(("Normal", "SuccessfulDeletePod", f"Deleted pod: {name}") for name in pods),
        *(("Normal", "SuccessfulDeleteService", f"Deleted service: {name}") for name in services),
        ("Normal", f"{kind}Suspended", f"{kind} job is suspended."),
        ("Normal", f"{kind}Resumed", f"{kind} job is resumed."),
    )

    for pod in reversed(pods):
        await jobs.end(pod, exit_code=0)
    finished = await jobs.wait_for_end("job", "Succeeded")
    counts = {role: status.get("succeeded", 0) for role, status in finished["status"]["replicaStatuses"].items()}
    assert counts == ({"Launcher": 1, "Worker": 0} if kind == "MPIJob" else SHAPES[kind].roles)


@pytest.mark.apiserver
@EVERY_KIND
async def test_items_05_11_47_50_54_a_job_of_another_manager_is_not_changed(harness: JobHarness, kind: str) -> None:
    """Upstream does not read the field of a JAXJob: the row on `managedBy` of docs/compatibility.md."""
    jobs = harness.of(KINDS[kind])
    await jobs.submit(job_of(jobs).suspend().run_policy(managedBy="kueue.x-k8s.io/multikueue"))
    await jobs.settle()
    assert await jobs.status("job") == {}
    await jobs.suspend("job", False)
    await jobs.settle()
    await jobs.wait_for_children("job", [])
    assert await jobs.status("job") == {}
    assert await jobs.events("job") == set()


# Helpers


def job_of(harness: JobHarness, pod: Object | None = None) -> JobBuilder:
    builder = JobBuilder("job", kind=harness.kind)
    for role, count in SHAPES[harness.kind.name].roles.items():
        builder.replica(role, count, pod=pod)
    return builder


def running(kind: str, namespace: str) -> Condition:
    if SHAPES[kind].with_namespace:
        return upstream.workers_running("job", namespace, kind=kind)
    return upstream.running("job", kind=kind)


async def _next_second(after: str) -> None:
    """Timestamps have whole seconds: a job that is resumed within one second would get the same start time."""

    async def now() -> str:
        return format_time(datetime.now(UTC))

    await eventually(now, lambda shown: shown > after)
