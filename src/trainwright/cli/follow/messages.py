"""The texts of `run`: the progress line, the result of a job, and what to do next."""

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from trainwright.cli.console import visible
from trainwright.cli.follow.job_state import JobState
from trainwright.insight.failure import Failure, probable_cause, relevant_lines
from trainwright.insight.progress import Progress
from trainwright.objects import Object
from trainwright.objects.conditions import find_condition
from trainwright.objects.times import human_duration, parse_time

EXIT_CODES = {"Succeeded": 0, "Failed": 1, "Deleted": 1, "Stuck": 1}
_FIRST_METRICS = ("accuracy", "loss", "test_loss")
_HIDDEN_METRICS = frozenset({"lr", "perplexity"})
_SHOWN_METRICS = 3


def progress_line(progress: Progress) -> str:
    """`epoch 3/8  step 720/1500  31%  loss 0.1262  accuracy 0.9562  412/s  9s left`; unknown parts are omitted."""
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


def result_lines(state: JobState, *, now: datetime, kubectl: str) -> list[str]:
    """The last lines about a job: its result and duration, then the cause of a failure and what to do."""
    outcome = state.outcome or "Unfinished"
    match outcome:
        case "Succeeded":
            return _succeeded_lines(state, now=now, kubectl=kubectl)
        case "Failed":
            return _failed_lines(state, now=now, kubectl=kubectl)
        case "Stuck":
            return _stuck_lines(state, kubectl=kubectl)
        case "Deleted":
            return [f"{state.name} was deleted while it was running"]
        case _:
            return [f"{state.name} has not finished after {_duration(state.object, now)}"]


def still_running_lines(state: JobState, *, again: str, kubectl: str) -> list[str]:
    """What to do with a job that keeps running when `run` stops following it."""
    return [
        f"{state.name} is still running",
        f"  follow it: {again}",
        f"  delete it: {kubectl} delete {_kubectl_args(state)}",
    ]


def volume_lines(volumes: Iterable[tuple[str, str, str]]) -> list[str]:
    """`Volume digits (mounted at /models): /path/on/this/machine`, each once."""
    lines = (f"Volume {name} (mounted at {mount}): {path}" for name, mount, path in volumes)
    return list(dict.fromkeys(lines))


def _succeeded_lines(state: JobState, *, now: datetime, kubectl: str) -> list[str]:
    metrics = final_metrics(state.progress)
    line = f"{state.name} succeeded in {_duration(state.object, now)}" + (f": {metrics}" if metrics else "")
    left = _leftover_lines(state, kubectl=kubectl)
    return [line, *left, *(["  with cleanPodPolicy Running such pods end with the job"] if left else [])]


def _failed_lines(state: JobState, *, now: datetime, kubectl: str) -> list[str]:
    reason = _condition_message(state.object, "Failed")
    lines = [f"{state.name} failed after {_duration(state.object, now)}" + (f": {reason}" if reason else "")]
    return [*lines, *_explanation(state, kubectl=kubectl), *_leftover_lines(state, kubectl=kubectl)]


def _explanation(state: JobState, *, kubectl: str) -> list[str]:
    failure = state.first_failure()
    if failure is None:
        return [f"  no failed pod was seen; see its events: {kubectl} describe {_kubectl_args(state)}"]
    lines = [f"  {failure.rank} failed first: {failure.description}{_message(failure)}"]
    if cause := probable_cause(failure):
        lines.append(f"  {cause}")
    if last_lines := relevant_lines(failure.last_lines):
        lines += [f"  last lines of its log (all of it: {kubectl} logs {failure.pod} -n {state.namespace}):"]
        lines += [f"    {visible(line)}" for line in last_lines]
    return lines


def _leftover_lines(state: JobState, *, kubectl: str) -> list[str]:
    """The pods that outlive the job and hold their resources: peers that wait for a failed one, parameter servers."""
    left = state.leftover_pods()
    if not left:
        return []
    why = "because spec.runPolicy.cleanPodPolicy is None"
    return [f"  still running {why}: {', '.join(left)}; delete them: {kubectl} delete {_kubectl_args(state)}"]


def _kubectl_args(state: JobState) -> str:
    """`pytorchjob digits -n team`, the arguments of a kubectl command."""
    return f"{state.kind.singular} {state.name} -n {state.namespace}"


def _stuck_lines(state: JobState, *, kubectl: str) -> list[str]:
    if state.stuck is None:
        return [f"{state.name} cannot start"]
    rank, waiting = state.stuck
    delete = f"{kubectl} delete {_kubectl_args(state)}"
    return [
        f"{state.name} cannot start: {rank} is waiting: {waiting.reason}: {waiting.message}",
        f"  change the manifest and run it again with --replace, or delete the job: {delete}",
    ]


def _message(failure: Failure) -> str:
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
    """The well-known metrics first, then those that the program named itself."""
    others = (name for name in metrics if name not in _HIDDEN_METRICS and name not in _FIRST_METRICS)
    return [(name, metrics[name]) for name in (*_FIRST_METRICS, *others) if name in metrics][:_SHOWN_METRICS]


def _number(value: float) -> str:
    return f"{value:.4f}" if not math.isfinite(value) or 0.001 <= abs(value) < 10_000 or value == 0 else f"{value:.3g}"


def _short(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:.0f}k"
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _time_left(progress: Progress) -> str | None:
    """None if the number of epochs is unknown."""
    if not (progress.speed and progress.epochs and progress.total and progress.epoch):
        return None
    steps = (progress.epochs - progress.epoch) * progress.total + progress.total - (progress.step or 0)
    return human_duration(timedelta(seconds=min(max(steps, 0) / progress.speed, 1e9)))
