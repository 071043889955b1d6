"""What tables and descriptions say about a job."""

from datetime import timedelta

import pytest

from tests.support.objects.jobs import NOW, JobBuilder
from trainwright.api.kinds import PYTORCH
from trainwright.cli.jobs.summary import age, duration, finished_state, job_state, present_ranks, rank_count, ranks
from trainwright.objects import Object
from trainwright.objects.times import format_time


def job(**status: object) -> Object:
    return JobBuilder().replica("Master").replica("Worker", 2).status(status).raw()


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([], "New"),
        ([("Created", "True")], "Created"),
        ([("Created", "True"), ("Running", "True")], "Running"),
        ([("Created", "True"), ("Running", "False"), ("Succeeded", "True")], "Succeeded"),
    ],
)
def test_the_last_true_condition_is_the_state(conditions: list[tuple[str, str]], state: str) -> None:
    listed = [{"type": kind, "status": status} for kind, status in conditions]
    assert job_state(job(conditions=listed)) == state


def test_a_finished_job_stays_finished_while_it_is_deleted() -> None:
    deleted = job(conditions=[{"type": "Failed", "status": "True"}])
    deleted["metadata"]["deletionTimestamp"] = format_time(NOW)

    assert job_state(deleted) == "Terminating"
    assert finished_state(deleted) == "Failed"
    assert finished_state(job(conditions=[{"type": "Running", "status": "True"}])) is None


def test_ranks_that_run_or_have_succeeded_are_counted() -> None:
    running = job(replicaStatuses={"Master": {"active": 1}, "Worker": {"succeeded": 1, "failed": 1}})
    assert (present_ranks(running), rank_count(running, PYTORCH)) == (2, 3)
    assert present_ranks(job()) == 0
    assert ranks(running, PYTORCH) == "2/3"


def test_ranks_of_a_finished_job_are_not_counted_any_more() -> None:
    """The operator stops counting with the last condition, also ranks that end a moment later."""
    done = job(conditions=[{"type": "Succeeded", "status": "True"}], replicaStatuses={"Master": {"succeeded": 1}})
    assert ranks(done, PYTORCH) == "3"


def test_duration_ends_with_the_job_and_is_empty_before_it_starts() -> None:
    started, ended = format_time(NOW), format_time(NOW + timedelta(seconds=5))
    later = NOW + timedelta(minutes=3)
    assert duration(job(startTime=started, completionTime=ended), later) == "5s"
    assert duration(job(startTime=started), later) == "3m"
    assert duration(job(), later) == ""
    suspended = job(startTime=started, conditions=[{"type": "Suspended", "status": "True"}])
    assert duration(suspended, later) == ""


def test_age_is_that_of_kubectl() -> None:
    new = job()
    new["metadata"]["creationTimestamp"] = format_time(NOW)
    assert age(new, NOW + timedelta(seconds=154)) == "2m34s"
    del new["metadata"]["creationTimestamp"]
    assert age(new, NOW) == "<unknown>"
