"""Why a job failed, from what its pods left: the first failing rank, the cause, and the lines that show it."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from trainwright.cli.jobs.pods.logs import LogRange, read_log
from trainwright.cli.jobs.pods.ranks import RankPod
from trainwright.cli.jobs.recorded_runs import recorded_runs
from trainwright.cli.jobs.references import FoundJob
from trainwright.cli.jobs.session import Session
from trainwright.cli.output.console import plain_text
from trainwright.insight.first_failing_rank import Diagnosis
from trainwright.insight.job_diagnosis import diagnose_job
from trainwright.kube.client.errors import ApiError, Unreachable
from trainwright.objects import Object
from trainwright.objects.kinds.container_runs import ContainerRun, Line, runs_in_status
from trainwright.objects.node_annotations import PYTHON
from trainwright.objects.paths import value_at

_LAST_LINES = LogRange(tail=200)


def diagnose_pods(session: Session, job: FoundJob, pods: Sequence[RankPod]) -> Diagnosis | None:
    """The diagnosis of these pods of the job; None if no run of a container has failed."""
    present = [(pod.rank, pod.pod) for pod in pods if pod.pod]
    if session.target.data is not None:
        ranks = {pod.rank for pod in pods}
        python = value_at(job.object, "metadata", "annotations", PYTHON) or session.target.python
        recorded = recorded_runs(session.target.data, job.uid, python=str(python))
        return diagnose_job(job.object, [run for run in recorded if run.rank in ranks], present)
    runs = [_with_last_lines(session, run) for rank, pod in present for run in runs_in_status(pod, rank)]
    return diagnose_job(job.object, runs, present)


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
    lines = [recorded_headline(job), value_at(job, "status", "failure", "advice", default="")]
    return [plain_text(str(line)) for line in lines if line] if lines[0] else []


def recorded_headline(job: Object) -> str:
    """Why the job failed in one line, as the operator has written it to the status; empty if it has not."""
    failure = value_at(job, "status", "failure", default={})
    cause, rank = str(failure.get("cause") or ""), str(failure.get("rank") or "")
    return f"{rank} failed first: {cause}" if rank and cause else cause


def evidence_lines(diagnosis: Diagnosis) -> list[str]:
    return [plain_text(line) for line in diagnosis.evidence]


def _with_last_lines(session: Session, run: ContainerRun) -> ContainerRun:
    """The run with the end of its log, if it has failed and its log can be read."""
    if run.exit_code:
        with contextlib.suppress(ApiError, Unreachable):
            lines = read_log(session, run, _LAST_LINES)
            return replace(run, lines=tuple(Line(line.text, line.at or None) for line in lines))
    return run
