"""Items 17, 18, 58 to 61 and 67: cleanup, limits and time to live. All rows of a table run at once on a real API
server; rows that the engine decides alone are tested on the planner too."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from tests.support.engine.planning import STARTED, all_services, conditions, decide, deleted
from tests.support.harness.cluster_harness import RealClusterHarness
from tests.support.harness.job_harness import JobHarness, submit
from tests.support.harness.running_operator import running_operator
from tests.support.objects import upstream
from tests.support.objects.jobs import NOW, JobBuilder, PodBuilder, at, pair, services
from trainwright.api.kinds import KINDS
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object
from trainwright.objects.times import format_time, parse_time

# 58: pods that a finished job keeps


class Cleanup(NamedTuple):
    job: str
    policy: str | None
    ending: str
    """How the job ends when worker 0 has succeeded and its other pods run."""
    kept: list[str]


CLEANUPS = [
    Cleanup("succeeded-running", "Running", "succeed", ["master-0", "worker-0"]),
    Cleanup("succeeded-all", "All", "succeed", []),
    Cleanup("succeeded-none", "None", "succeed", ["master-0", "worker-0", "worker-1"]),
    Cleanup("succeeded-default", None, "succeed", ["master-0", "worker-0", "worker-1"]),
    Cleanup("failed-none", "None", "fail", ["master-0", "worker-0", "worker-1"]),
    Cleanup("failed-running", "Running", "fail", ["master-0", "worker-0"]),
    # The policy is for finished jobs: a suspended one keeps no pods.
    Cleanup("suspended-running", "Running", "suspend", []),
    Cleanup("suspended-none", "None", "suspend", []),
]

ENDS = {"succeed": "Succeeded", "fail": "Failed", "suspend": "Suspended"}


@pytest.mark.apiserver
async def test_item_58_clean_pod_policy(harness: RealClusterHarness) -> None:
    for row in CLEANUPS:
        policy = {} if row.policy is None else {"cleanPodPolicy": row.policy}
        builder = JobBuilder(row.job).master(policy="Never").workers(2, policy="Never")
        await harness.submit(builder.run_policy(**policy))
    for row in CLEANUPS:
        await harness.wait_until_running(row.job)
        await harness.end(f"{row.job}-worker-0", exit_code=0)
        await harness.wait_for_counts(row.job, "Worker", succeeded=1)
        match row.ending:
            case "suspend":
                await harness.suspend(row.job)
            case ending:
                await harness.end(f"{row.job}-master-0", exit_code=0 if ending == "succeed" else 1)
    for row in CLEANUPS:
        await harness.wait_for_end(row.job, ENDS[row.ending])
    await harness.settle()
    for row in CLEANUPS:
        await harness.wait_for_children(row.job, [f"{row.job}-{name}" for name in row.kept])


# 59: a job past its limit is cleaned up like other failed jobs


POLICIES = {"None": ["master-0", "worker-0"], "All": [], "Running": []}


@pytest.mark.apiserver
async def test_item_59_a_job_past_its_backoff_limit_is_cleaned_up_by_its_policy(
    harness: RealClusterHarness,
) -> None:
    for policy in POLICIES:
        builder = JobBuilder(policy.lower()).master().workers(1)
        await harness.submit(builder.run_policy(backoffLimit=3, cleanPodPolicy=policy))
    for policy in POLICIES:
        await harness.wait_until_running(policy.lower())
        await harness.kubelet.start(f"{policy.lower()}-master-0", restarts=3)
    for policy, kept in POLICIES.items():
        job = policy.lower()
        await harness.wait_for_conditions(
            job, upstream.created(job), upstream.running(job, "False"), upstream.past_backoff_limit(job)
        )
        await harness.wait_for_children(job, [f"{job}-{name}" for name in kept])
        assert "completionTime" in await harness.status(job)
    created = [("Created", name) for name in ("none-master-0", "none-worker-0")]
    await harness.wait_for_only_events(
        "none",
        *(("Normal", "SuccessfulCreatePod", f"{verb} pod: {name}") for verb, name in created),
        *(("Normal", "SuccessfulCreateService", f"{verb} service: {name}") for verb, name in created),
        ("Normal", "PyTorchJobFailed", "Job none has failed because it has reached the specified backoff limit"),
    )


# 60: backoffLimit


class Limit(NamedTuple):
    job: str
    limit: int | None
    restarts: int
    past: bool


LIMITS = [
    Limit("zero-spare-none-used", 0, 0, False),
    Limit("zero-spare-one-used", 0, 1, True),
    Limit("three-spare-two-used", 3, 2, False),
    Limit("three-spare-three-used", 3, 3, True),
    Limit("no-limit", None, 99, False),
]


@pytest.mark.parametrize("row", LIMITS, ids=lambda row: row.job)
def test_item_60_past_the_backoff_limit_as_planned(row: Limit) -> None:
    builder = JobBuilder().master().workers(1).status(STARTED).run_policy(**_limit(row))
    pods = (PodBuilder("Master").running(restarts=row.restarts), PodBuilder("Worker").running())
    planned = decide(builder, *pods, services=all_services(1))
    assert (conditions(planned)[-1] == upstream.past_backoff_limit("digits")) is row.past


@pytest.mark.apiserver
async def test_item_60_past_the_backoff_limit(harness: RealClusterHarness) -> None:
    for row in LIMITS:
        await harness.submit(JobBuilder(row.job).master().workers(1).run_policy(**_limit(row)))
    for row in LIMITS:
        await harness.wait_until_running(row.job)
        await harness.kubelet.start(f"{row.job}-master-0", restarts=row.restarts)
    for row in LIMITS:
        if row.past:
            await harness.wait_for_end(row.job, "Failed")
    await harness.settle()
    for row in LIMITS:
        name = row.job
        ended = [upstream.running(name, "False"), upstream.past_backoff_limit(name)]
        expected = [upstream.created(name), *(ended if row.past else [upstream.running(name)])]
        assert await harness.conditions(name) == expected


# 61: activeDeadlineSeconds


@pytest.mark.parametrize(
    ("seconds", "elapsed", "past"), [(0, 0, True), (2, 0, False), (2, 1.9, False), (2, 2, True), (None, 10**9, False)]
)
def test_item_61_past_the_active_deadline_as_planned(seconds: int | None, elapsed: float, past: bool) -> None:
    policy = {} if seconds is None else {"activeDeadlineSeconds": seconds}
    builder = JobBuilder().master().workers(1).status(STARTED).run_policy(**policy)
    pods = (PodBuilder("Master").running(), PodBuilder("Worker").running())
    planned = decide(builder, *pods, services=all_services(1), now=at(elapsed))
    assert (conditions(planned)[-1] == upstream.past_deadline("digits")) is past
    assert planned.requeue_at == (None if past or seconds is None else at(seconds))


@pytest.mark.apiserver
async def test_item_61_past_the_active_deadline(harness: JobHarness) -> None:
    """Upstream starts the pods of a job with a deadline of zero, and checks deadlines only when the job changes: rows
    `activeDeadlineSeconds: 0` and `activeDeadlineSeconds` of docs/compatibility.md."""
    for job, seconds in {"none": 0, "short": 3600, "long": 3600}.items():
        await harness.submit(JobBuilder(job).master().run_policy(activeDeadlineSeconds=seconds, cleanPodPolicy="All"))
    await harness.wait_for_conditions("none", upstream.created("none"), upstream.past_deadline("none"))
    await harness.wait_for_only_events(
        "none",
        ("Normal", "PyTorchJobFailed", "Job none has failed because it was active longer than specified deadline"),
    )
    started = parse_time((await harness.wait_until_running("short"))["status"]["startTime"])
    # In the future however long the start took, so that it passes while nothing else changes the job.
    soon = math.ceil((datetime.now(UTC) - started).total_seconds()) + 1
    await harness.change("short", runPolicy={"activeDeadlineSeconds": soon})
    await harness.wait_for_conditions(
        "short", upstream.created("short"), upstream.running("short", "False"), upstream.past_deadline("short")
    )
    await harness.wait_for_children("short", [])
    await harness.wait_for_conditions("long", upstream.created("long"), upstream.running("long"))


# 67: ttlSecondsAfterFinished


class Expiry(NamedTuple):
    about: str
    ttl: int | None
    condition: str | None
    """The final condition of a job that finished 4 seconds ago; None: it runs."""
    completed: bool
    wait: float | None
    """Seconds from now until the job is deleted; None: it stays."""
    suspended: bool = False


EXPIRIES = [
    Expiry("a running job", 5, None, True, None),
    Expiry("a succeeded job with a second to live", 5, "Succeeded", True, 1),
    Expiry("a failed job with a second to live", 5, "Failed", True, 1),
    Expiry("a succeeded job without a time to live", None, "Succeeded", True, None),
    Expiry("a succeeded job past its time to live", 3, "Succeeded", True, 0),
    Expiry("a succeeded job with a time to live of zero", 0, "Succeeded", True, 0),
    Expiry("a suspended job", None, None, False, None, suspended=True),
    Expiry("a suspended job with a time to live", 3, "Succeeded", True, None, suspended=True),
    # Upstream never deletes it: the row on permanent exit codes of docs/compatibility.md.
    Expiry("a failed job without completionTime", 5, "Failed", False, 1),
]


@pytest.mark.parametrize("row", EXPIRIES, ids=lambda row: row.about)
def test_items_17_18_67_time_to_live_as_planned(row: Expiry) -> None:
    builder = _with_ttl(JobBuilder().master(), row).status(_ended(row, NOW))
    planned = decide(builder, PodBuilder("Master").running(), services=services(("Master", 0)), now=at(4))
    assert planned.delete_job == (row.wait == 0)
    assert planned.requeue_at == (at(4 + row.wait) if row.wait else None)
    assert deleted(planned) == (["digits-master-0"] if row.suspended and not row.condition else [])


DELETED_AS = {
    "PyTorchJob": "SuccessfulDeletePod",
    "TFJob": "SuccessfulDeleteJob",
    "XGBoostJob": "SuccessfulDeleteJob",
    "PaddleJob": "SuccessfulDeletePod",
    "JAXJob": "SuccessfulDeletePod",
}
"""The reasons of upstream's events about the deletion of a job."""


@pytest.mark.apiserver
async def test_items_17_18_67_time_to_live(client: Client, real_namespace: str) -> None:
    """The jobs of all kinds exist before the operator starts, four seconds after they finished."""
    ended = datetime.now(UTC) - timedelta(seconds=4)
    rows = [(KINDS[kind], f"job-{number}", row) for kind in DELETED_AS for number, row in enumerate(EXPIRIES)]
    for kind, name, row in rows:
        builder = _with_ttl(pair(name, kind).metadata(namespace=real_namespace), row)
        job = await submit(client, builder)
        await client.replace(kind.resource, {**job, "status": _ended(row, ended)}, subresource="status")

    async with running_operator(client, namespace=real_namespace) as operator:
        harness = JobHarness(client, real_namespace, operator)
        for kind, name, row in rows:
            if row.wait is not None:
                await harness.of(kind).wait_until_deleted(name)
                event = ("Normal", DELETED_AS[kind.name], f"Deleted job: {name}")
                await harness.of(kind).wait_for_events(name, event)
        await harness.settle()
        left = [row for row in rows if await harness.of(row[0]).exists(row[1])]
    assert left == [row for row in rows if row[2].wait is None]


# Helpers


def _limit(row: Limit) -> dict[str, Any]:
    return {} if row.limit is None else {"backoffLimit": row.limit}


def _with_ttl(builder: JobBuilder, row: Expiry) -> JobBuilder:
    policy = {} if row.ttl is None else {"ttlSecondsAfterFinished": row.ttl}
    return builder.run_policy(suspend=row.suspended, **policy)


def _ended(row: Expiry, when: datetime) -> Object:
    """The status of a job that started and, if the row says so, finished at `when`."""
    stamp = format_time(when)
    kinds = ["Created", row.condition or "Running"]
    shown = [
        {"type": kind, "status": "True", "reason": f"PyTorchJob{kind}", "message": "m", "lastTransitionTime": stamp}
        for kind in kinds
    ]
    status: Object = {"conditions": shown, "startTime": stamp}
    return {**status, "completionTime": stamp} if row.completed and row.condition else status
