"""The runs of containers in the status of a pod, and programs that fail the same way again and again. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.cluster.facade import ContainerRun
from trainwright.insight.first_failing_rank import Cause, Diagnosis, Run, diagnose
from trainwright.insight.pod_runs import numbered_runs
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.times import unix_seconds

_AT_ONCE_SECONDS = 20.0
"""A program that fails so soon has not trained anything: its next start is likely to fail as well."""
_LASTING = frozenset(
    {
        Cause.MISSING_MODULE,
        Cause.MISSING_BACKEND,
        Cause.COMMAND_NOT_FOUND,
        Cause.SYNTAX_ERROR,
        Cause.BAD_ARGUMENT,
        Cause.NO_GPU,
    }
)
"""Causes that no restart removes, however long the program takes to reach them."""


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A failed run; `seconds` is how long it ran, None if that is unknown."""

    run: Run
    seconds: float | None


@dataclass(frozen=True, slots=True)
class RepeatedFailure:
    """The same failure of one rank, each time soon after the start of its program."""

    rank: str
    diagnosis: Diagnosis
    times: int
    seconds: float


def runs_of_pod(pod: Pod) -> list[ContainerRun]:
    """The ended runs that the status of a pod shows: of each container the last and the one before it."""
    return [
        ContainerRun(
            container=status.name,
            init=init,
            number=number,
            started_at=unix_seconds(ended.started_at),
            finished_at=unix_seconds(ended.finished_at),
            exit_code=ended.exit_code,
            reason=ended.reason,
            message=ended.message,
        )
        for init, statuses in ((True, pod.status.init_container_statuses), (False, pod.status.container_statuses))
        for status in statuses
        for number, ended in numbered_runs(status)
        if ended
    ]


def repeated_failure(failed: Sequence[FailedRun]) -> RepeatedFailure | None:
    """The failure with which the last two or more failed runs of a rank ended soon; None if they differ."""
    times, last = 0, None
    for one in reversed(failed):
        found = diagnose([one.run])
        if found is None or one.seconds is None:
            break
        if one.seconds > _AT_ONCE_SECONDS and found.cause not in _LASTING:
            break
        if last and (found.cause, found.summary) != (last.cause, last.summary):
            break
        last = last or found
        times += 1
    if last is None or times < 2:
        return None
    return RepeatedFailure(failed[-1].run.rank, last, times, failed[-1].seconds or 0.0)
