"""What the statuses of a job and its pods show for the diagnosis of the job."""

import math
from typing import Any

import pytest

from trainwright.insight.pod_runs import job_failed_at, runs_of_pod
from trainwright.objects.kinds.pods import Pod, read_pod

PYTHON = "/opt/env/bin/python"


def pod(*, phase: str = "Failed", **status: Any) -> Pod:
    annotations = {"node.trainwright.dev/python": PYTHON}
    return read_pod(
        {"metadata": {"name": "job-worker-0", "annotations": annotations}, "status": {"phase": phase, **status}}
    )


def terminated(code: int, *, at: str | None = "2026-11-15T10:00:00Z", reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at}}


def test_a_failed_container_is_a_run_with_its_python() -> None:
    [run] = runs_of_pod(pod(containerStatuses=[{"name": "pytorch", "state": terminated(3)}]), "worker-0")

    assert (run.rank, run.pod, run.container, run.init, run.number) == ("worker-0", "job-worker-0", "pytorch", False, 0)
    assert (run.exit_code, run.reason, run.exact, run.python) == (3, "Error", False, PYTHON)
    assert run.finished_at == 1794736800.0


@pytest.mark.parametrize("time", [None, "soon"])
def test_a_run_without_a_readable_time_has_none(time: str | None) -> None:
    [run] = runs_of_pod(pod(containerStatuses=[{"name": "pytorch", "state": terminated(3, at=time)}]), "worker-0")
    assert run.finished_at is None


def test_the_run_before_a_restart_and_the_one_that_runs_are_numbered() -> None:
    status = {"name": "pytorch", "state": {"running": {}}, "lastState": terminated(137), "restartCount": 2}
    runs = runs_of_pod(pod(phase="Running", containerStatuses=[status]), "worker-0")
    assert [(run.number, run.exit_code) for run in runs] == [(1, 137), (2, None)]


def test_while_a_container_waits_for_its_next_start_its_last_run_is_the_latest() -> None:
    status = {"name": "pytorch", "state": {"waiting": {}}, "lastState": terminated(1), "restartCount": 2}
    runs = runs_of_pod(pod(phase="Running", containerStatuses=[status]), "worker-0")
    assert [(run.number, run.exit_code) for run in runs] == [(2, 1)]


def test_init_containers_are_marked() -> None:
    [run] = runs_of_pod(pod(initContainerStatuses=[{"name": "wait", "state": terminated(2)}]), "worker-0")
    assert (run.init, run.container, run.exit_code) == (True, "wait", 2)


def test_a_pod_that_failed_without_a_container_has_its_own_reason() -> None:
    [run] = runs_of_pod(pod(reason="Evicted", message="The node was low on memory"), "worker-0")
    assert (run.container, run.exit_code, run.reason) == ("", 1, "Evicted")
    assert run.message == "The node was low on memory"


def test_a_job_failed_within_the_second_of_its_completion_time() -> None:
    assert job_failed_at({"completionTime": "2026-11-15T10:00:00Z"}) == 1794736801.0
    assert job_failed_at({}) == math.inf
