"""Why a job failed, from what its pods left: the first failing rank, the cause, and the lines that show it."""

from collections.abc import Sequence

from trainwright.cli.console import visible
from trainwright.cli.jobs.logs import LogRange, logged_runs, read_log
from trainwright.cli.jobs.ranks import RankPod
from trainwright.cli.jobs.references import FoundJob
from trainwright.cli.jobs.session import Session
from trainwright.cli.recorded_runs import recorded_runs
from trainwright.insight.diagnosis import Diagnosis, Line, Run, diagnose
from trainwright.kube.client.errors import ApiError, Unreachable
from trainwright.objects.node_annotations import PYTHON
from trainwright.objects.paths import value_at
from trainwright.objects.pods import ContainerStatus, Pod, Terminated
from trainwright.objects.times import parse_time

_LAST_LINES = LogRange(tail=200)


def diagnose_job(session: Session, job: FoundJob, pods: Sequence[RankPod]) -> Diagnosis | None:
    """The diagnosis of these pods of the job; None if no run of a container has failed."""
    runs = [_failed_pod(pod, pod.pod) for pod in pods if pod.pod and _failed_without_container(pod.pod)]
    if session.target.data is not None:
        ranks = {pod.rank for pod in pods}
        python = value_at(job.object, "metadata", "annotations", PYTHON) or session.target.python
        recorded = recorded_runs(session.target.data, job.uid, python=str(python))
        return diagnose([*runs, *(run for run in recorded if run.rank in ranks)])
    return diagnose([*runs, *(run for pod in pods if pod.pod for run in _runs_in_status(session, pod, pod.pod))])


def diagnosis_lines(diagnosis: Diagnosis) -> list[str]:
    """The diagnosis as it is printed, without its evidence."""
    lines = [diagnosis.headline]
    if diagnosis.advice:
        lines.append(diagnosis.advice)
    if diagnosis.alike:
        lines.append(f"the same happened in {', '.join(diagnosis.alike)}")
    if diagnosis.followers:
        lines.append(f"failed because of it, or ended by clean-up: {', '.join(diagnosis.followers)}")
    return [visible(line) for line in lines]


def evidence_lines(diagnosis: Diagnosis) -> list[str]:
    return [visible(line) for line in diagnosis.evidence]


def _runs_in_status(session: Session, pod: RankPod, status: Pod) -> list[Run]:
    return [
        Run(
            rank=pod.rank,
            pod=pod.name,
            container=container.name,
            init=init,
            number=number,
            exit_code=ended.exit_code if ended else None,
            reason=ended.reason if ended else "",
            message=ended.message if ended else "",
            finished_at=_seconds(ended.finished_at) if ended else None,
            lines=_last_lines(session, pod, container.name, number) if ended and ended.exit_code else (),
        )
        for init, statuses in ((True, status.status.init_container_statuses), (False, status.status.container_statuses))
        for container in statuses
        for number, ended in _numbered(container)
    ]


def _failed_without_container(pod: Pod) -> bool:
    """Evicted, deadline exceeded, port taken."""
    statuses = pod.status.init_container_statuses + pod.status.container_statuses
    failed = any(one.state.terminated and one.state.terminated.exit_code for one in statuses)
    return pod.phase == "Failed" and not failed


def _failed_pod(pod: RankPod, status: Pod) -> Run:
    return Run(rank=pod.rank, pod=pod.name, exit_code=1, reason=status.status.reason, message=status.status.message)


def _numbered(status: ContainerStatus) -> list[tuple[int, Terminated | None]]:
    """The runs that a status shows: the one before the last, and the last, which may still run."""
    runs: list[tuple[int, Terminated | None]] = []
    if before := status.last_state.terminated:
        runs.append((max(status.restart_count - (0 if status.state.waiting else 1), 0), before))
    if status.state.running or status.state.terminated:
        runs.append((status.restart_count, status.state.terminated))
    return runs


def _last_lines(session: Session, pod: RankPod, container: str, number: int) -> tuple[Line, ...]:
    """The end of a run's log; empty if it cannot be read."""
    found = [run for run in logged_runs([pod], container=container) if run.number == number]
    try:
        return tuple(Line(line.text, line.at or None) for run in found for line in read_log(session, run, _LAST_LINES))
    except (ApiError, Unreachable):
        return ()


def _seconds(time: str | None) -> float | None:
    try:
        return parse_time(time).timestamp() if time else None
    except ValueError:
        return None
