"""What is left of a finished job, and when the job itself goes."""

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
def test_the_cleaning_policy_says_which_pods_go_and_their_services_with_them(
    policy: str | None, gone: list[str], kind: str
) -> None:
    made = decide(job(finished(kind), cleanPodPolicy=policy), *PODS, services=all_services(3))
    assert deleted(made) == gone
    assert deleted(made, "services") == gone


def test_services_whose_pods_are_gone_go_too() -> None:
    assert deleted(decide(job(cleanPodPolicy="All"), services=services(("Worker", 0))), "services") == [
        "digits-worker-0"
    ]
    assert decide(job(cleanPodPolicy="None"), services=services(("Worker", 0))).empty


def test_what_goes_already_is_not_deleted_again() -> None:
    pods = [PodBuilder("Master").succeeded().terminating(), PodBuilder("Worker", 0).running().terminating()]
    assert decide(job(cleanPodPolicy="All"), *pods).empty


def test_a_service_that_goes_already_is_not_deleted_again() -> None:
    going = service("Worker", 0)
    going["metadata"]["deletionTimestamp"] = ENDED
    assert decide(job(cleanPodPolicy="All"), services=[view_service(going)]).empty


def test_pods_that_ran_when_the_job_succeeded_count_as_succeeded() -> None:
    status = {**finished(), "replicaStatuses": {"Worker": {"active": 2, "succeeded": 1}, "Master": {"succeeded": 1}}}
    made = decide(job(status))
    assert made.status is not None
    assert made.status["replicaStatuses"] == {"Worker": {"succeeded": 3}, "Master": {"succeeded": 1}}


def test_pods_that_ran_when_the_job_failed_keep_their_number() -> None:
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
def test_a_job_goes_when_its_time_after_the_end_is_over(
    ttl: int | None, now: datetime, delete: bool, wake: datetime | None
) -> None:
    made = decide(job(ttlSecondsAfterFinished=ttl), now=now)
    assert (made.delete_job, made.requeue_at) == (delete, wake)
    assert made.empty is not delete


@pytest.mark.parametrize("kind", ["Succeeded", "Failed"])
def test_a_job_whose_end_was_not_dated_goes_by_its_condition(kind: str) -> None:
    status = finished(kind)
    del status["completionTime"]
    assert decide(job(status, ttlSecondsAfterFinished=5), now=at(5)).delete_job


def test_a_job_whose_end_has_no_date_at_all_stays() -> None:
    status = {"conditions": [{"type": "Failed", "status": "True"}]}
    assert decide(job(status, ttlSecondsAfterFinished=5), now=at(5)).empty


def test_a_job_that_is_suspended_as_well_stays() -> None:
    assert decide(job(ttlSecondsAfterFinished=5, suspend=True), now=at(50)).empty


def test_a_time_beyond_the_calendar_is_never() -> None:
    status = {**finished(), "completionTime": "9999-12-31T23:59:59Z"}
    made = decide(job(status, ttlSecondsAfterFinished=2**31 - 1))
    assert made.requeue_at is None
    assert made.empty


def test_a_job_that_ends_with_no_time_left_goes_in_the_same_plan() -> None:
    builder = JobBuilder().master().run_policy(ttlSecondsAfterFinished=0).status(STARTED)
    made = decide(builder, PodBuilder("Master").succeeded())
    assert made.delete_job
    assert made.status is not None
