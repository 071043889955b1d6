"""Why a job failed, from what its pods left: the first failing rank, the cause, and the lines that show it."""

from collections.abc import Sequence
from dataclasses import replace

from trainwright.cli.jobs.pods.logs import LogRange, logged_runs, read_log
from trainwright.cli.jobs.pods.ranks import RankPod
from trainwright.cli.jobs.references import FoundJob
from trainwright.cli.jobs.session import Session
from trainwright.cli.output.console import plain_text
from trainwright.cli.recorded_runs import recorded_runs
from trainwright.insight.first_failing_rank import Diagnosis, Line, Run, diagnose
from trainwright.insight.pod_runs import job_failed_at, runs_of_pod
from trainwright.kube.client.errors import ApiError, Unreachable
from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.node_annotations import PYTHON
from trainwright.objects.paths import value_at

_LAST_LINES = LogRange(tail=200)


def diagnose_job(session: Session, job: FoundJob, pods: Sequence[RankPod]) -> Diagnosis | None:
    """The diagnosis of these pods of the job; None if no run of a container has failed."""
    failed_at = job_failed_at(job.object.get("status") or {})
    if session.target.data is not None:
        ranks = {pod.rank for pod in pods}
        python = value_at(job.object, "metadata", "annotations", PYTHON) or session.target.python
        recorded = recorded_runs(session.target.data, job.uid, python=str(python))
        # Pods that failed without a container: evicted, port taken.
        others = [run for pod in pods if pod.pod for run in runs_of_pod(pod.pod, pod.rank) if not run.container]
        return diagnose([*others, *(run for run in recorded if run.rank in ranks)], job_failed_at=failed_at)
    runs = [run for pod in pods if pod.pod for run in _runs_in_status(session, pod, pod.pod)]
    return diagnose(runs, job_failed_at=failed_at)


def diagnosis_lines(diagnosis: Diagnosis) -> list[str]:
    """The diagnosis as it is printed, without its evidence."""
    lines = [diagnosis.headline]
    if diagnosis.advice:
        lines.append(diagnosis.advice)
    if diagnosis.alike:
        lines.append(f"the same happened in {', '.join(diagnosis.alike)}")
    if diagnosis.followers:
        lines.append(f"failed because of it, or ended by clean-up: {', '.join(diagnosis.followers)}")
    return [plain_text(line) for line in lines]


def recorded_failure(job: Object) -> list[str]:
    """The diagnosis that the operator has written to the job's status, for pods that are gone; empty if none."""
    failure = value_at(job, "status", "failure", default={})
    cause, rank = str(failure.get("cause") or ""), str(failure.get("rank") or "")
    if not cause:
        return []
    lines = [f"{rank} failed first: {cause}" if rank else cause, str(failure.get("advice") or "")]
    return [plain_text(line) for line in lines if line]


def evidence_lines(diagnosis: Diagnosis) -> list[str]:
    return [plain_text(line) for line in diagnosis.evidence]


def _runs_in_status(session: Session, pod: RankPod, status: Pod) -> list[Run]:
    return [
        replace(run, lines=_last_lines(session, pod, run.container, run.number))
        if run.exit_code and run.container
        else run
        for run in runs_of_pod(status, pod.rank)
    ]


def _last_lines(session: Session, pod: RankPod, container: str, number: int) -> tuple[Line, ...]:
    """The end of a run's log; empty if it cannot be read."""
    found = [run for run in logged_runs([pod], container=container) if run.number == number]
    try:
        return tuple(Line(line.text, line.at or None) for run in found for line in read_log(session, run, _LAST_LINES))
    except (ApiError, Unreachable):
        return ()
