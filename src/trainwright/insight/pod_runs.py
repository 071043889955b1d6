"""What the statuses of a job and its pods show for the diagnosis of the job."""

import math
from collections.abc import Mapping
from typing import Any

from trainwright.insight.first_failing_rank import Run
from trainwright.objects.kinds.pods import ContainerStatus, Pod, Terminated
from trainwright.objects.node_annotations import PYTHON
from trainwright.objects.times import unix_seconds


def runs_of_pod(pod: Pod, rank: str) -> list[Run]:
    """The runs that the status shows: of each container the last and the one before it. Without their logs."""
    status = pod.status
    runs = [
        _run(pod, rank, container, number, ended, init=init)
        for init, containers in ((True, status.init_container_statuses), (False, status.container_statuses))
        for container in containers
        for number, ended in numbered_runs(container)
    ]
    if pod.phase == "Failed" and not any(run.exit_code for run in runs):
        # The pod failed without a failed container: evicted, deadline exceeded, port taken.
        runs.append(
            Run(rank=rank, pod=pod.name, exit_code=1, reason=status.reason or "PodFailed", message=status.message)
        )
    return runs


def job_failed_at(status: Mapping[str, Any]) -> float:
    """When the job failed, in seconds since the epoch; infinity if it has not ended. Its status has whole seconds: this
    is the end of that one."""
    ended = unix_seconds(status.get("completionTime"))
    return math.inf if ended is None else ended + 1.0


def _run(pod: Pod, rank: str, status: ContainerStatus, number: int, ended: Terminated | None, *, init: bool) -> Run:
    return Run(
        rank=rank,
        pod=pod.name,
        container=status.name,
        init=init,
        number=number,
        exit_code=ended.exit_code if ended else None,
        reason=ended.reason if ended else "",
        message=ended.message if ended else "",
        finished_at=unix_seconds(ended.finished_at) if ended else None,
        python=pod.metadata.annotations.get(PYTHON, ""),
    )


def numbered_runs(status: ContainerStatus) -> list[tuple[int, Terminated | None]]:
    """Numbered from 0; None is a run that has not ended. While a container waits for its next start, its last run is
    the latest one."""
    runs: list[tuple[int, Terminated | None]] = []
    if before := status.last_state.terminated:
        runs.append((status.restart_count - (0 if status.state.waiting else 1), before))
    if status.state.terminated or status.state.running:
        runs.append((status.restart_count, status.state.terminated))
    return [(number, run) for number, run in runs if number >= 0]
