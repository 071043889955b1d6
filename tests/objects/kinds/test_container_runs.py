"""The runs of containers that the status of a pod shows."""

from typing import Any

import pytest

from trainwright.objects.kinds.container_runs import runs_in_status
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
    [run] = runs_in_status(pod(containerStatuses=[{"name": "pytorch", "state": terminated(3)}]), "worker-0")

    assert (run.rank, run.pod, run.container, run.init, run.number) == ("worker-0", "job-worker-0", "pytorch", False, 0)
    assert (run.exit_code, run.reason, run.exact, run.python) == (3, "Error", False, PYTHON)
    assert run.finished_at == 1794736800.0


@pytest.mark.parametrize("time", [None, "soon"])
def test_a_run_without_a_readable_time_has_none(time: str | None) -> None:
    [run] = runs_in_status(pod(containerStatuses=[{"name": "pytorch", "state": terminated(3, at=time)}]), "worker-0")
    assert run.finished_at is None


def test_the_run_before_a_restart_and_the_one_that_runs_are_numbered() -> None:
    status = {"name": "pytorch", "state": {"running": {}}, "lastState": terminated(137), "restartCount": 2}
    runs = runs_in_status(pod(phase="Running", containerStatuses=[status]), "worker-0")
    assert [(run.number, run.exit_code, run.previous) for run in runs] == [(1, 137, True), (2, None, False)]


def test_while_a_container_waits_for_its_next_start_its_last_run_is_the_latest() -> None:
    status = {"name": "pytorch", "state": {"waiting": {}}, "lastState": terminated(1), "restartCount": 2}
    runs = runs_in_status(pod(phase="Running", containerStatuses=[status]), "worker-0")
    assert [(run.number, run.exit_code, run.previous) for run in runs] == [(2, 1, False)]


def test_init_containers_are_marked() -> None:
    [run] = runs_in_status(pod(initContainerStatuses=[{"name": "wait", "state": terminated(2)}]), "worker-0")
    assert (run.init, run.container, run.exit_code) == (True, "wait", 2)
