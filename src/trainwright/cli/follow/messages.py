"""The words in which `run` tells how a job goes and how it ended. Functions of values, so that each can be tested."""

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from trainwright.cli.follow.job_state import JobStory
from trainwright.insight.failure import Ended, cause, telling_lines
from trainwright.insight.progress import Progress
from trainwright.objects import Object
from trainwright.objects.conditions import find_condition
from trainwright.objects.times import human_duration, parse_time

EXIT_CODES = {"Succeeded": 0, "Failed": 1, "Deleted": 1, "Stuck": 1}
_FIRST_METRICS = ("accuracy", "loss", "test_loss")


def progress_line(progress: Progress) -> str:
    """`epoch 3/8  step 720/1500  31%  loss 0.1262  accuracy 0.9562  412/s  9s left`, as far as it is known."""
    parts = []
    if progress.epoch is not None:
        parts.append(f"epoch {progress.epoch}/{progress.epochs}" if progress.epochs else f"epoch {progress.epoch}")
    if progress.step is not None:
        parts.append(f"step {progress.step}/{progress.total}" if progress.total else f"step {progress.step}")
    if progress.fraction is not None:
        parts.append(f"{progress.fraction:.0%}")
    parts += [f"{name} {_number(value)}" for name, value in _metrics(progress.metrics)]
    if progress.speed:
        parts.append(f"{_short(progress.speed)}/s")
        if left := _time_left(progress):
            parts.append(f"{left} left")
    return "  ".join(parts)


def final_metrics(progress: Progress) -> str:
    """`accuracy=0.9832 loss=0.0177`"""
    return " ".join(f"{name}={_number(value)}" for name, value in _metrics(progress.metrics))


def verdict(story: JobStory, *, now: datetime, kubectl: str) -> list[str]:
    """The last lines about a job: its end and duration, then what a user wants next."""
    outcome = story.outcome or "Unfinished"
    match outcome:
        case "Succeeded":
            metrics = final_metrics(story.progress)
            return [f"{story.name} succeeded in {_duration(story.object, now)}" + (f": {metrics}" if metrics else "")]
        case "Failed":
            return _failure(story, now=now, kubectl=kubectl)
        case "Stuck":
            return _stuck(story, kubectl=kubectl)
        case "Deleted":
            return [f"{story.name} was deleted while it ran"]
        case _:
            return [f"{story.name} is unfinished after {_duration(story.object, now)}"]


def goes_on(story: JobStory, *, again: str, kubectl: str) -> list[str]:
    """What to do with a job that runs on after we stopped following it."""
    return [
        f"{story.name} goes on without us",
        f"  follow it: {again}",
        f"  end it:    {kubectl} delete {_addressed(story)}",
    ]


def volume_lines(volumes: Iterable[tuple[str, str, str]]) -> list[str]:
    """`Volume digits (mounted at /models): /path/on/this/machine`, each once."""
    lines = (f"Volume {name} (mounted at {mount}): {path}" for name, mount, path in volumes)
    return list(dict.fromkeys(lines))


def _failure(story: JobStory, *, now: datetime, kubectl: str) -> list[str]:
    reason = _condition_message(story.object, "Failed")
    lines = [f"{story.name} failed after {_duration(story.object, now)}" + (f": {reason}" if reason else "")]
    return [*lines, *_explanation(story, kubectl=kubectl), *_survivors(story, kubectl=kubectl)]


def _explanation(story: JobStory, *, kubectl: str) -> list[str]:
    failure = story.first_failure()
    if failure is None:
        return [f"  no replica has failed; its events: {kubectl} describe {_addressed(story)}"]
    lines = [f"  {failure.rank} failed first: {failure.how}{_message(failure)}"]
    if why := cause(failure):
        lines.append(f"  {why}")
    said = telling_lines(failure.last_lines)
    if said:
        lines += [f"  its last lines ({kubectl} logs {failure.pod} -n {story.namespace} shows all):"]
        lines += [f"    {line}" for line in said]
    return lines


def _survivors(story: JobStory, *, kubectl: str) -> list[str]:
    """A failed job's other replicas wait for the one that is gone, with all that they hold."""
    left = story.survivors()
    if not left:
        return []
    run, them = ("runs", "it") if len(left) == 1 else ("run", "them")
    why = "as spec.runPolicy.cleanPodPolicy is None"
    return [f"  {', '.join(left)} still {run}, {why}: {kubectl} delete {_addressed(story)} ends {them}"]


def _addressed(story: JobStory) -> str:
    """`pytorchjob digits -n team`, behind a verb of kubectl."""
    return f"{story.kind.singular} {story.name} -n {story.namespace}"


def _stuck(story: JobStory, *, kubectl: str) -> list[str]:
    if story.stuck is None:
        return [f"{story.name} cannot start"]
    rank, waiting = story.stuck
    delete = f"{kubectl} delete {_addressed(story)}"
    return [
        f"{story.name} cannot start: {rank} waits with {waiting.reason}: {waiting.message}",
        f"  change the manifest and run it again with --replace, or end the job: {delete}",
    ]


def _message(failure: Ended) -> str:
    text = " ".join(failure.message.split())
    return f": {text}" if text else ""


def _condition_message(job: Object, kind: str) -> str:
    condition = find_condition(job.get("status") or {}, kind)
    return str(condition.get("message") or "") if condition else ""


def _duration(job: Object, now: datetime) -> str:
    status = job.get("status") or {}
    start = status.get("startTime") or job["metadata"].get("creationTimestamp")
    if not start:
        return human_duration(timedelta(0))
    end = parse_time(status["completionTime"]) if status.get("completionTime") else now
    return human_duration(max(end - parse_time(start), timedelta(0)))


def _metrics(metrics: Mapping[str, float]) -> list[tuple[str, float]]:
    return [(name, metrics[name]) for name in _FIRST_METRICS if name in metrics]


def _number(value: float) -> str:
    return f"{value:.4f}" if not math.isfinite(value) or 0.001 <= abs(value) < 10_000 or value == 0 else f"{value:.3g}"


def _short(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:.0f}k"
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _time_left(progress: Progress) -> str | None:
    """Only where the length of the whole is known: an epoch's end is not the end."""
    if not (progress.speed and progress.epochs and progress.total and progress.epoch):
        return None
    steps = (progress.epochs - progress.epoch) * progress.total + progress.total - (progress.step or 0)
    return human_duration(timedelta(seconds=min(max(steps, 0) / progress.speed, 1e9)))
