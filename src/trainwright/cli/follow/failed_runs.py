"""The runs of containers in the status of a pod, and programs that fail the same way again and again. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from trainwright.cluster.embedded import ContainerRun
from trainwright.insight.failure import Failure, relevant_lines
from trainwright.objects.pods import ContainerStatus, Pod, Terminated
from trainwright.objects.times import format_micro_time, parse_time

_AT_ONCE_SECONDS = 20.0
"""A program that fails so soon has not trained anything: its next start is likely to fail as well."""


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A failed run with what the analysis needs; `seconds` is how long it ran."""

    failure: Failure
    seconds: float | None = None

    @property
    def cause(self) -> tuple[str, int, str]:
        """Equal for failures that look the same."""
        last = relevant_lines(self.failure.last_lines, limit=1)
        return self.failure.container, self.failure.exit_code, last[-1] if last else self.failure.message


@dataclass(frozen=True, slots=True)
class RepeatedFailure:
    """The same failure of one rank at once after each start."""

    failure: Failure
    times: int
    seconds: float


def runs_of_pod(pod: Pod) -> list[ContainerRun]:
    """The ended runs that the status of a pod shows: of each container the last and the one before it."""
    runs = []
    for init, statuses in ((True, pod.status.init_container_statuses), (False, pod.status.container_statuses)):
        for status in statuses:
            for number, ended in _ended_runs(status):
                runs.append(
                    ContainerRun(
                        container=status.name,
                        init=init,
                        number=number,
                        started_at=_seconds(ended.started_at),
                        finished_at=_seconds(ended.finished_at),
                        exit_code=ended.exit_code,
                        reason=ended.reason,
                        message=ended.message,
                    )
                )
    return runs


def failed_run(run: ContainerRun, *, rank: str, pod: str, last_lines: Iterable[str], python: str) -> FailedRun | None:
    """None if the run has not failed."""
    if not run.exit_code:
        return None
    known = run.started_at is not None and run.finished_at is not None
    return FailedRun(
        Failure(
            rank=rank,
            pod=pod,
            container=run.container,
            exit_code=run.exit_code,
            reason=run.reason,
            message=run.message,
            finished_at=_format(run.finished_at),
            last_lines=tuple(last_lines),
            python=python,
        ),
        seconds=(run.finished_at or 0.0) - (run.started_at or 0.0) if known else None,
    )


def repeated_failure(failed: list[FailedRun]) -> RepeatedFailure | None:
    """The failure with which the last two or more failed runs of a rank ended at once; None if they differ."""
    if len(failed) < 2:
        return None
    last, cause = failed[-1], failed[-1].cause
    times = 0
    for run in reversed(failed):
        if run.seconds is None or run.seconds > _AT_ONCE_SECONDS or run.cause != cause:
            break
        times += 1
    return RepeatedFailure(last.failure, times, last.seconds or 0.0) if times >= 2 else None


def _ended_runs(status: ContainerStatus) -> list[tuple[int, Terminated]]:
    """Numbered from 0. While a container waits for its next start, its last run is the latest one."""
    runs = []
    if before := status.last_state.terminated:
        runs.append((status.restart_count - (0 if status.state.waiting else 1), before))
    if ended := status.state.terminated:
        runs.append((status.restart_count, ended))
    return [(number, run) for number, run in runs if number >= 0]


def _seconds(time: str | None) -> float | None:
    try:
        return parse_time(time).timestamp() if time else None
    except ValueError:
        return None


def _format(seconds: float | None) -> str:
    return "" if seconds is None else format_micro_time(datetime.fromtimestamp(seconds, UTC))
