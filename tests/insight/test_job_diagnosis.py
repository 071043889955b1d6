"""What the statuses of a job and its pods add to the runs of its containers."""

import math
from typing import Any

from trainwright.insight.job_diagnosis import diagnose_job, job_failed_at
from trainwright.insight.process_end import Cause
from trainwright.objects.kinds.container_runs import ContainerRun
from trainwright.objects.kinds.pods import Pod, read_pod

ENDED = {"status": {"completionTime": "2026-11-15T10:00:00Z"}}
END = 1794736800.0


def failed_pod(**status: Any) -> Pod:
    return read_pod({"metadata": {"name": "job-worker-0", "uid": "u"}, "status": {"phase": "Failed", **status}})


def stopped(at: float) -> ContainerRun:
    return ContainerRun(rank="worker-0", pod_uid="u", container="pytorch", exit_code=143, finished_at=at, exact=True)


def test_a_job_failed_within_the_second_of_its_completion_time() -> None:
    assert job_failed_at(ENDED) == END + 1.0
    assert job_failed_at({}) == math.inf


def test_a_run_that_clean_up_ended_is_no_cause() -> None:
    assert diagnose_job(ENDED, [stopped(END + 2.0)]) is None


def test_a_caller_that_saw_the_job_fail_knows_the_time_better() -> None:
    assert diagnose_job(ENDED, [stopped(END + 0.5)]) is not None
    assert diagnose_job(ENDED, [stopped(END + 0.5)], failed_at=END + 0.2) is None


def test_a_pod_that_failed_without_a_container_has_its_own_reason() -> None:
    pod = failed_pod(reason="Evicted", message="The node was low on memory")
    found = diagnose_job(ENDED, [], [("worker-0", pod)])
    assert found is not None
    assert (found.rank, found.pod, found.container, found.cause) == ("worker-0", "job-worker-0", "", Cause.POD_FAILED)
    assert found.summary == "Evicted: The node was low on memory"


def test_the_end_of_a_container_says_more_than_that_of_its_pod() -> None:
    run = ContainerRun(rank="worker-0", pod_uid="u", container="pytorch", exit_code=3, finished_at=END, exact=True)
    found = diagnose_job(ENDED, [run], [("worker-0", failed_pod())])
    assert found is not None
    assert (found.container, found.summary) == ("pytorch", "exit code 3")
