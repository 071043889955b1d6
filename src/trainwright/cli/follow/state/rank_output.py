"""When a rank printed something, and how long a silence is worth a warning. Pure: times are arguments."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
