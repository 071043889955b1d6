"""Programs that fail the same way again and again, soon after each start. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.insight.first_failing_rank import Diagnosis, first_failure
from trainwright.insight.process_end import Cause
from trainwright.objects.kinds.container_runs import ContainerRun

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
class RepeatedFailure:
    """The same failure of one rank, each time soon after the start of its program."""

    rank: str
    diagnosis: Diagnosis
    times: int
    seconds: float


def repeated_failure(failed: Sequence[ContainerRun]) -> RepeatedFailure | None:
    """The failure with which the last two or more failed runs of a rank ended soon; None if they differ."""
    times, last = 0, None
    for run in reversed(failed):
        found = first_failure([run])
        if found is None or run.seconds is None:
            break
        if run.seconds > _AT_ONCE_SECONDS and found.cause not in _LASTING:
            break
        if last and (found.cause, found.summary) != (last.cause, last.summary):
            break
        last = last or found
        times += 1
    if last is None or times < 2:
        return None
    return RepeatedFailure(failed[-1].rank, last, times, failed[-1].seconds or 0.0)
