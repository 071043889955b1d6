"""Clean-up of a finished job, and the deletion of the job itself."""

from datetime import datetime

import pytest

from tests.support.engine.planning import STARTED, all_services, decide, deleted
from tests.support.objects.jobs import NOW, JobBuilder, PodBuilder, at, service, services, view_service
from trainwright.objects import Object

ENDED = "2026-11-15T04:00:00Z"


def finished(kind: str = "Succeeded") -> Object:
    verdict = {"type": kind, "status": "True", "reason": f"PyTorchJob{kind}", "lastTransitionTime": ENDED}
    return {**STARTED, "conditions": [*STARTED["conditions"], verdict], "completionTime": ENDED}


def job(status: Object | None = None, **run_policy: object) -> JobBuilder:
    return JobBuilder().master().workers(3).run_policy(**run_policy).status(status or finished())


PODS = (
    PodBuilder("Master").succeeded(),
    PodBuilder("Worker", 0).running(),
    PodBuilder("Worker", 1),
    PodBuilder("Worker", 2).failed(1),
)
ALL = ["digits-master-0", "digits-worker-0", "digits-worker-1", "digits-worker-2"]


@pytest.mark.parametrize(
    ("policy", "gone"),
    [("None", []), ("Running", ALL[1:3]), ("All", ALL), ("whatever", ALL), (None, [])],
)
@pytest.mark.parametrize("kind", ["Succeeded", "Failed"])
def test_clean_pod_policy_decides_which_pods_and_services_are_deleted(
    policy: str | None, gone: list[str], kind: str
) -> None:
    made = decide(job(finished(kind), cleanPodPolicy=policy), *PODS, services=all_services(3))
    assert deleted(made) == gone
    assert deleted(made, "services") == gone


def test_services_without_pods_are_deleted_too() -> None:
    assert deleted(decide(job(cleanPodPolicy="All"), services=services(("Worker", 0))), "services") == [
        "digits-worker-0"
    ]
    assert decide(job(cleanPodPolicy="None"), services=services(("Worker", 0))).empty


def test_terminating_pod_is_not_deleted_again() -> None:
    pods = [PodBuilder("Master").succeeded().terminating(), PodBuilder("Worker", 0).running().terminating()]
    assert decide(job(cleanPodPolicy="All"), *pods).empty


def test_terminating_service_is_not_deleted_again() -> None:
    terminating = service("Worker", 0)
    terminating["metadata"]["deletionTimestamp"] = ENDED
    assert decide(job(cleanPodPolicy="All"), services=[view_service(terminating)]).empty


def test_running_pods_of_a_succeeded_job_count_as_succeeded() -> None:
    status = {**finished(), "replicaStatuses": {"Worker": {"active": 2, "succeeded": 1}, "Master": {"succeeded": 1}}}
    made = decide(job(status))
    assert made.status is not None
    assert made.status["replicaStatuses"] == {"Worker": {"succeeded": 3}, "Master": {"succeeded": 1}}


def test_running_pods_of_a_failed_job_count_as_active() -> None:
    status = {**finished("Failed"), "replicaStatuses": {"Worker": {"active": 2}}}
    assert decide(job(status)).empty


@pytest.mark.parametrize(
    ("ttl", "now", "delete", "wake"),
    [
        (None, at(1000), False, None),
        (0, NOW, True, None),
        (60, at(59), False, at(60)),
        (60, at(60), True, None),
        (60, at(-500), False, at(60)),
    ],
)
def test_job_is_deleted_after_its_ttl(ttl: int | None, now: datetime, delete: bool, wake: datetime | None) -> None:
    made = decide(job(ttlSecondsAfterFinished=ttl), now=now)
    assert (made.delete_job, made.requeue_at) == (delete, wake)
    assert made.empty is not delete


@pytest.mark.parametrize("kind", ["Succeeded", "Failed"])
def test_ttl_counts_from_the_condition_without_completion_time(kind: str) -> None:
    status = finished(kind)
    del status["completionTime"]
    assert decide(job(status, ttlSecondsAfterFinished=5), now=at(5)).delete_job


def test_job_without_any_completion_time_is_kept() -> None:
    status = {"conditions": [{"type": "Failed", "status": "True"}]}
    assert decide(job(status, ttlSecondsAfterFinished=5), now=at(5)).empty


def test_suspended_job_is_kept_after_its_ttl() -> None:
    assert decide(job(ttlSecondsAfterFinished=5, suspend=True), now=at(50)).empty


def test_ttl_that_is_too_far_to_represent_means_never() -> None:
    status = {**finished(), "completionTime": "9999-12-31T23:59:59Z"}
    made = decide(job(status, ttlSecondsAfterFinished=2**31 - 1))
    assert made.requeue_at is None
    assert made.empty


def test_job_with_ttl_0_is_deleted_by_the_plan_that_finishes_it() -> None:
    builder = JobBuilder().master().run_policy(ttlSecondsAfterFinished=0).status(STARTED)
    made = decide(builder, PodBuilder("Master").succeeded())
    assert made.delete_job
    assert made.status is not None
