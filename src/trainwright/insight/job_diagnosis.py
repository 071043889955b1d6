"""Why a job failed, from facts: its status, the runs of its containers with their logs, its pods.

Operator, `run`, `logs` and `describe` gather these facts in their own ways, and all of them call `diagnose_job`.
"""

import math
from collections.abc import Iterable

from trainwright.insight.first_failing_rank import Diagnosis, first_failure
from trainwright.objects import Object
from trainwright.objects.kinds.container_runs import ContainerRun, runs_in_status
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.times import unix_seconds


def diagnose_job(
    job: Object,
    runs: Iterable[ContainerRun],
    pods: Iterable[tuple[str, Pod]] = (),
    *,
    failed_at: float | None = None,
) -> Diagnosis | None:
    """None if no run of a container and no pod has failed.

    `runs` are those of finished and running containers, also those that succeeded. `pods` are pods and their ranks.
    `failed_at` is for callers that saw the job fail; otherwise its status says in which second that was.
    """
    known = list(runs)
    failed = {run.pod_uid for run in known if run.exit_code}
    known += [_failure_of_pod(pod, rank) for rank, pod in pods if pod.metadata.uid not in failed and _has_failed(pod)]
    return first_failure(known, job_failed_at=job_failed_at(job) if failed_at is None else failed_at)


def job_failed_at(job: Object) -> float:
    """When the job failed, in seconds since the epoch; infinity if it has not ended. Its status has whole seconds: this
    is the end of that one."""
    ended = unix_seconds((job.get("status") or {}).get("completionTime"))
    return math.inf if ended is None else ended + 1.0


def _has_failed(pod: Pod) -> bool:
    """True if the pod failed without a failed container: evicted, deadline exceeded, port taken."""
    return pod.phase == "Failed" and not any(run.exit_code for run in runs_in_status(pod, ""))


def _failure_of_pod(pod: Pod, rank: str) -> ContainerRun:
    status = pod.status
    return ContainerRun(
        rank=rank,
        pod=pod.name,
        pod_uid=pod.metadata.uid,
        exit_code=1,
        reason=status.reason or "PodFailed",
        message=status.message,
    )
