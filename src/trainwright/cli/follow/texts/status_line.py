"""The line at the bottom of a terminal: a bar, what the job does now, and its metrics. Pure functions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise

from trainwright.cli.follow.state.job_state import JobState
from trainwright.cli.history import in_order, metric_text
from trainwright.cli.output.console import cells
from trainwright.insight.log_progress import Progress
from trainwright.objects.times import human_duration

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FULL, _HALF, _EMPTY = "━", "╸", " "
_MIN_BAR, _MAX_BAR = 8, 30
_HIDDEN_METRICS = frozenset({"lr", "perplexity"})
_SHOWN_METRICS = 4
_NOTABLE_SILENCE = 10.0
_STALLED_SECONDS = 15.0
_STALLED_GAPS = 3.0
"""A program that reports its progress once per minute is not stalled after 15 seconds."""


@dataclass(frozen=True, slots=True)
class Status:
    """What is shown of one job. `activity` is shown while the program has not reported any progress."""

    progress: Progress = field(default_factory=Progress)
    elapsed: float = 0.0
    activity: str = ""
    silence: float = 0.0
    """Seconds since the last output of any rank."""


@dataclass(frozen=True, slots=True)
class _Part:
    """`rank` 0 is shown always; the highest ranks are left out first if the terminal is too narrow."""

    text: str
    rank: int


def status_of(state: JobState, now: float) -> Status:
    since = state.started_at or now
    silence = state.silence(now)
    return Status(
        progress=replace(state.progress, speed=None) if is_stalled(state.progress, now) else state.progress,
        elapsed=max(now - since, 0.0),
        activity=_activity(state, silence),
        silence=silence or 0.0,
    )


def is_stalled(progress: Progress, now: float) -> bool:
    """True if no progress came for so long that the last speed, and the time left by it, say nothing any more."""
    times = [at for at, _ in progress.marks]
    longest = max((later - earlier for earlier, later in pairwise(times)), default=0.0)
    return bool(times) and now - times[-1] >= max(_STALLED_SECONDS, _STALLED_GAPS * longest)


def render_status(status: Status, *, width: int, frame: int = 0) -> str:
    """One line of at most `width` columns; `frame` turns the spinner."""
    parts = _parts(status)
    fraction = status.progress.fraction
    if fraction is None:
        lead = _Part(f"{_SPINNER[frame % len(_SPINNER)]} {status.activity}".rstrip(), 0)
        return "  ".join(part.text for part in _fitting([lead, *parts], width))
    space = width - _MIN_BAR - 2
    percent = f"{fraction:>4.0%}"
    named = f"{percent}{_of_epoch(status.progress)}"
    kept = _fitting([_Part(named if cells(named) <= space else percent, 0), *parts], space)
    rest = "  ".join(part.text for part in kept)
    room = width - cells(rest) - 2
    return f"{bar(fraction, max(min(room, _MAX_BAR), _MIN_BAR))}  {rest}"


def bar(fraction: float, width: int) -> str:
    """`━━━━╸    `"""
    halves = round(min(max(fraction, 0.0), 1.0) * width * 2)
    return (_FULL * (halves // 2) + _HALF * (halves % 2)).ljust(width, _EMPTY)


def shown_metrics(metrics: Mapping[str, float]) -> list[tuple[str, float]]:
    """The well-known metrics first, then those that the program named itself."""
    shown = in_order(name for name in metrics if name not in _HIDDEN_METRICS)
    return [(name, metrics[name]) for name in shown][:_SHOWN_METRICS]


def seconds(value: float) -> str:
    return human_duration(timedelta(seconds=min(max(value, 0.0), 1e9)))


def _parts(status: Status) -> list[_Part]:
    progress = status.progress
    parts = []
    if progress.epoch is not None and not (progress.is_of_epoch and progress.fraction is not None):
        of = f"/{progress.epochs}" if progress.epochs else ""
        parts.append(_Part(f"epoch {progress.epoch}{of}", 3))
    if progress.step is not None:
        of = f"/{progress.total}" if progress.total else ""
        parts.append(_Part(f"step {progress.step}{of}", 6 if progress.epoch is not None else 3))
    for place, (name, value) in enumerate(shown_metrics(progress.metrics)):
        parts.append(_Part(f"{name} {metric_text(value)}", 2 if name == "loss" else 5 + 3 * place))
    if progress.speed:
        parts.append(_Part(f"{_short(progress.speed)}/s", 7))
        if left := _time_left(progress):
            parts.append(_Part(f"{left} left", 1))
    if status.silence >= _NOTABLE_SILENCE and not status.activity:
        parts.append(_Part(f"no output for {seconds(status.silence)}", 1))
    parts.append(_Part(seconds(status.elapsed), 4))
    return parts


def _of_epoch(progress: Progress) -> str:
    """` of epoch 2`, by the number that the program prints, if the bar is that of an epoch."""
    if not progress.is_of_epoch or progress.epoch is None:
        return ""
    return f" of epoch {progress.epoch - (1 if progress.counts_from_zero else 0)}"


def _fitting(parts: Iterable[_Part], width: int) -> list[_Part]:
    kept = list(parts)
    while len(kept) > 1 and sum(cells(part.text) for part in kept) + 2 * (len(kept) - 1) > width:
        kept.remove(max(kept, key=lambda part: part.rank))
    return kept


def _activity(state: JobState, silence: float | None) -> str:
    """What a job does that has not reported progress: its pods start, or its program imports its libraries."""
    if state.progress.fraction is not None:
        return ""
    running, wanted = len(state.running_since()), len(state.labels)
    if silence is None:
        return "starting: waiting for pods" if not state.outputs else "waiting for pods"
    if not any(output.last is not None for output in state.outputs.values()):
        missing = f"{running} of {wanted} ranks running, " if running < wanted else ""
        return f"starting: {missing}no output yet"
    return "running" if silence < _NOTABLE_SILENCE / 2 else f"running: no output for {seconds(silence)}"


def _short(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:.0f}k"
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _time_left(progress: Progress) -> str | None:
    """None if the end is unknown: without epochs, the end of the steps is that of the program."""
    if not (progress.speed and progress.total):
        return None
    steps = progress.total - (progress.step or 0)
    if progress.epoch and not progress.spans_epochs:
        if not progress.epochs:
            return None
        steps += (progress.epochs - progress.epoch) * progress.total
    return seconds(steps / progress.speed) if steps > 0 else None
