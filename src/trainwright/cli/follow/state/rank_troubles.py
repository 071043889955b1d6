"""What a user is told about ranks while a job runs: they fail the same way again and again, they wait for a peer that
never comes back, they print nothing. Pure: times are arguments."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trainwright.insight.first_failing_rank import Diagnosis, first_failure
from trainwright.insight.process_end import Cause
from trainwright.objects.kinds.container_runs import ContainerRun
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.times import unix_seconds

# The same failure again and again

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


# Ranks that started again after the first rank had succeeded

_PATIENCE_SECONDS = 10.0
"""A rank that has something else to do than to join its peers has often ended by then."""
_ROUNDING_SECONDS = 1.0
"""Times in the status of a pod are whole seconds."""


@dataclass(frozen=True, slots=True)
class LateRank:
    rank: str
    exit_code: int | None
    """How the run before ended; None if the pod was replaced."""
    first: str
    succeeded_at: float


def late_ranks(pods: Sequence[tuple[str, Pod]], now: float) -> list[LateRank]:
    """`pods` are those of each rank in order: the others join the first one."""
    if not pods or pods[0][1].phase != "Succeeded":
        return []
    first, pod = pods[0]
    ends = [status.state.terminated for status in pod.status.container_statuses if status.state.terminated]
    times = [unix_seconds(end.finished_at) for end in ends]
    succeeded_at = max((time for time in times if time), default=None)
    return [] if succeeded_at is None else list(_late(pods[1:], first, succeeded_at, now))


def _late(pods: Iterable[tuple[str, Pod]], first: str, succeeded_at: float, now: float) -> Iterator[LateRank]:
    for rank, pod in pods:
        created = unix_seconds(pod.metadata.creation_timestamp) or 0.0
        for status in pod.status.container_statuses:
            running, before = status.state.running, status.last_state.terminated
            started = unix_seconds(running.started_at) if running else None
            if started is None or now - started < _PATIENCE_SECONDS:
                continue
            failed = before is not None and before.exit_code != 0
            if started > succeeded_at - _ROUNDING_SECONDS and (failed or created > succeeded_at):
                yield LateRank(rank, before.exit_code if before and failed else None, first, succeeded_at)
                break


# Silence

SILENT_JOB_SECONDS = 30.0
"""Without output of any rank."""
SILENT_RANK_SECONDS = 60.0
"""Without output of one rank, while others print."""
_USUAL_GAPS = 3.0
"""A program that prints once per epoch is silent only after several times its longest pause."""
_REGULAR_LINES = 5
"""Many programs print on the first rank alone: the others are expected to be silent after their first lines."""


@dataclass(slots=True)
class RankOutput:
    rank: str
    lines: int = 0
    first: float | None = None
    last: float | None = None
    longest_gap: float = 0.0
    live: str = ""
    """The unfinished line, such as a progress bar."""

    def add(self, at: float, lines: int = 1) -> None:
        if self.last is None:
            self.first = at
        else:
            self.longest_gap = max(self.longest_gap, at - self.last)
        self.last = at if self.last is None else max(at, self.last)
        self.lines += lines

    def silence(self, started: float, now: float) -> float:
        """Seconds since its last output, or since it started."""
        return max(now - max(self.last or 0.0, started), 0.0)

    def is_silent(self, started: float, now: float, limit: float) -> bool:
        return self.silence(started, now) >= max(limit, _USUAL_GAPS * self.longest_gap)


@dataclass(frozen=True, slots=True)
class Silence:
    """Running ranks from which output is expected. `everyone`: no rank of the job prints anything."""

    ranks: tuple[str, ...]
    seconds: float
    everyone: bool


def find_silence(outputs: Iterable[RankOutput], started: dict[str, float], now: float) -> Silence | None:
    """`started` has the running ranks and when they started."""
    running = [output for output in outputs if output.rank in started]
    if not running:
        return None
    if all(output.is_silent(started[output.rank], now, SILENT_JOB_SECONDS) for output in running):
        return Silence(
            _ranks(running), min(output.silence(started[output.rank], now) for output in running), everyone=True
        )
    quiet = [
        output
        for output in running
        if output.lines >= _REGULAR_LINES and output.is_silent(started[output.rank], now, SILENT_RANK_SECONDS)
    ]
    if not quiet or len(quiet) == len(running):
        return None
    return Silence(_ranks(quiet), min(output.silence(started[output.rank], now) for output in quiet), everyone=False)


def _ranks(outputs: Sequence[RankOutput]) -> tuple[str, ...]:
    return tuple(output.rank for output in outputs)
