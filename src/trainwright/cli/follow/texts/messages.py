"""The texts of `run` about a job: its result, why it failed, what is left and what to do next. Pure functions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainwright.api.kinds.mpi import MPI
from trainwright.cli.follow.state.job_state import JobState
from trainwright.cli.follow.state.loss_curve import sparkline
from trainwright.cli.follow.state.rank_troubles import LateRank, RepeatedFailure, Silence
from trainwright.cli.follow.texts.status_line import seconds, shown_metrics
from trainwright.cli.history import metric_text, metrics_text
from trainwright.cli.jobs.summary import elapsed
from trainwright.cli.output.console import plain_text
from trainwright.cli.targets import Target
from trainwright.insight.first_failing_rank import Diagnosis
from trainwright.insight.log_progress import Progress
from trainwright.insight.process_end import Cause
from trainwright.objects import Object
from trainwright.objects.conditions import find_condition
from trainwright.objects.kinds.pods import Waiting
from trainwright.objects.paths import value_at
from trainwright.objects.times import format_time

EXIT_CODES = {"Succeeded": 0, "Failed": 1, "Deleted": 1, "Stuck": 1, "Stopped": 130}
_NAMED_RANKS = 4


@dataclass(frozen=True, slots=True)
class Suggestions:
    """The commands that are suggested, with the flags that select the same cluster and namespace again.

    `namespace` is that of the context: jobs in another one need a flag.
    """

    flags: str = ""
    namespace: str = "default"

    @classmethod
    def of(cls, target: Target) -> "Suggestions":
        namespace = "" if target.namespace_flag else target.config.namespace
        return cls(target.flags, namespace)

    def command(self, verb: str, state: JobState) -> str:
        """`trainwright stop digits -n team`"""
        return f"trainwright {verb} {state.name}{self._all_flags(state)}"

    def cp(self, state: JobState) -> str:
        """The command that fetches files of the job's pods, without its arguments."""
        return f"trainwright cp{self._all_flags(state)}"

    def _all_flags(self, state: JobState) -> str:
        return (f" -n {state.namespace}" if state.namespace != self.namespace else "") + self.flags


# While a job runs


def phases_text(state: JobState, *, suggest: Suggestions) -> str:
    if state.waits_for_resume:
        return f"suspended; resume it with: {suggest.command('resume', state)}"
    return state.phases()


def repeated_failure_lines(state: JobState, repeated: RepeatedFailure, *, suggest: Suggestions) -> list[str]:
    """A program that fails the same way after every start: why, and how to stop it."""
    found = repeated.diagnosis
    again = f"{repeated.times} times in the same way, each time {repeated.seconds:.1f} s after its start"
    lines = [f"{repeated.rank} has failed {again}: {plain_text(found.summary)}"]
    if found.cause in {Cause.EXIT_CODE, Cause.UNKNOWN} and found.evidence:
        lines.append(f"  its last line: {plain_text(found.evidence[-1])}")
    if found.advice:
        lines.append(f"  {found.advice}")
    return [*lines, f"  it will be started again; to stop the job: {suggest.command('stop', state)}"]


def waiting_lines(waiting: Iterable[tuple[str, Waiting]]) -> list[str]:
    return [f"{rank} is waiting: {one.reason}: {plain_text(one.message)}" for rank, one in waiting]


def late_rank_line(late: LateRank, now: float, stop: str) -> str:
    """`stop` is the command that ends the job."""
    why = "" if late.exit_code is None else f" after exit code {late.exit_code}"
    gone = f"{late.first}, which succeeded {seconds(now - late.succeeded_at)} ago and does not come back"
    return f"{late.rank} was started again{why} and waits for {gone}; to end it: {stop}"


def silence_lines(state: JobState, silence: Silence | None, *, suggest: Suggestions) -> list[str]:
    if silence is None:
        return []
    stack = suggest.command("stack", state)
    ranks = _some(silence.ranks)
    if silence.everyone:
        line = f"no output for {seconds(silence.seconds)}; running: {ranks}; to see where they are: {stack}"
        return [line, *_exception_lines(state)]
    verb = "print" if len(silence.ranks) > 1 else "prints"
    return [f"{ranks} {verb} nothing for {seconds(silence.seconds)} while other ranks do; to see where: {stack}"]


def _exception_lines(state: JobState) -> list[str]:
    """What a process printed that has failed but not ended: the others wait for it."""
    found = state.diagnosis()
    if found is None or found.exit_code is not None:
        return []
    lines = [f"  {found.rank or 'one of them'} has printed: {plain_text(found.summary)}"]
    if state.kind is MPI:
        lines.append("  `python -m mpi4py PROGRAM` ends all processes after an exception in one of them")
    return lines


# The end


def final_metrics(progress: Progress) -> str:
    return metrics_text(dict(shown_metrics(progress.metrics)))


def result_lines(
    state: JobState, *, now: datetime, suggest: Suggestions, ends_ranks: bool = False, removed: bool = False
) -> list[str]:
    """The last lines about a job: its result and duration, then the cause of a failure and what to do.

    `ends_ranks`: the caller ends the ranks that outlive a failed job, so they are not named. `removed`: the caller
    deletes the job, so no command about it is suggested.
    """
    outcome = state.outcome or "Unfinished"
    match outcome:
        case "Succeeded":
            left = [] if removed else leftover_lines(state, suggest=suggest)
            return [*_succeeded_lines(state, now=now), *left]
        case "Failed":
            left = [] if ends_ranks or removed else leftover_lines(state, suggest=suggest)
            return [*_failed_lines(state, now=now, suggest=suggest, removed=removed), *left]
        case "Stuck":
            return _stuck_lines(state, suggest=suggest, removed=removed)
        case "Stopped":
            return [
                f"{state.name} is stopped after {_duration(state.object, now)}; its files are kept",
                f"  start it again: {suggest.command('resume', state)}",
                f"  delete it: {suggest.command('delete', state)}",
            ]
        case "Deleted":
            return [f"{state.name} was deleted while it was running"]
        case _:
            return [f"{state.name} has not finished after {_duration(state.object, now)}"]


def still_running_lines(state: JobState, *, suggest: Suggestions, up: str = "") -> list[str]:
    """What to do with a job that keeps running, or waits, when `run` stops following it.

    `up`: its cluster is not running, and this command starts it.
    """
    if up:
        return [
            f"{state.name} has not finished",
            f"  start the cluster: {up}",
            f"  then follow it: {suggest.command('logs -f', state)}",
        ]
    if state.waits_for_resume:
        return [f"{state.name} is suspended", f"  start it: {suggest.command('resume', state)}"]
    if state.running_since():
        first = "is still running"
    elif state.has_started:
        first = "has not finished"  # its phases may be old: the cluster may be down
    else:
        phases = state.phases()
        first = f"has not started: {phases}" if phases else "is still running"
    return [
        f"{state.name} {first}",
        f"  follow it: {suggest.command('logs -f', state)}",
        f"  stop it: {suggest.command('stop', state)}",
    ]


def volume_lines(volumes: Iterable[tuple[str, str, str]]) -> list[str]:
    """`Volume digits (mounted at /models): /path/on/this/machine`, each once."""
    lines = (f"Volume {name} (mounted at {mount}): {path}" for name, mount, path in volumes)
    return list(dict.fromkeys(lines))


def leftover_lines(state: JobState, *, suggest: Suggestions) -> list[str]:
    """The pods that outlive the job and hold their resources: peers that wait for a failed one, parameter servers."""
    left = state.leftover_pods()
    if not left:
        return []
    runs, them = ("runs", "it") if len(left) == 1 else ("run", "them")
    return [
        f"  {_some(left)} still {runs}: cleanPodPolicy is None, Kubeflow's default, which leaves pods for debugging",
        f"  end {them}: {suggest.command('stop', state)}; `cleanPodPolicy: Running` ends {them} with the job",
    ]


def ended_lines(ranks: Sequence[str]) -> list[str]:
    """The ranks that `run` ended after the failure of another one."""
    return [f"  ended {_some(ranks)}, which waited for it"] if ranks else []


def _succeeded_lines(state: JobState, *, now: datetime) -> list[str]:
    metrics = final_metrics(state.progress)
    line = f"{state.name} succeeded in {_duration(state.object, now)}" + (f": {metrics}" if metrics else "")
    return [line, *_curve_lines(state)]


def _failed_lines(state: JobState, *, now: datetime, suggest: Suggestions, removed: bool) -> list[str]:
    found = state.diagnosis()
    after = f"{state.name} failed after {_duration(state.object, now)}"
    reason = plain_text(_condition_message(state.object, "Failed"))
    if found is None:
        lines = [f"{after}: {reason}" if reason else after]
        see = "" if removed else f"; see its events: {suggest.command('events', state)}"
        lines.append(f"  no failed pod was seen{see}")
    else:
        lines = [f"{after}: {plain_text(found.headline)}"]
        lines += _limit_lines(state, reason)
        lines += _explanation(state, found, suggest=suggest, removed=removed)
    return [*lines, *_curve_lines(state)]


def _limit_lines(state: JobState, reason: str) -> list[str]:
    """The limit that ended the job, unless the first failure ended it."""
    if not reason or "replica(s) failed" in reason:
        return []
    if not reason.endswith("reached the specified backoff limit"):
        return [f"  {reason}"]
    limit = state.backoff_limit or 0
    if limit < 2:
        return []
    return [f"  it had failed {limit} times, and runPolicy.backoffLimit (--max-restarts) allows no more"]


def _explanation(state: JobState, found: Diagnosis, *, suggest: Suggestions, removed: bool) -> list[str]:
    lines = [f"  {found.advice}"] if found.advice else []
    if found.alike:
        lines.append(f"  the same happened in {_some(found.alike)}")
    if found.followers:
        verb = "failed because of it, or was" if len(found.followers) == 1 else "failed because of it, or were"
        lines.append(f"  {_some(found.followers)} {verb} ended by clean-up")
    if found.evidence:
        everything = suggest.command(f"logs --rank {found.rank}" if found.rank else "logs", state)
        lines.append("  what it printed last:" if removed else f"  what it printed last (all of it: {everything}):")
        lines += [f"    {plain_text(line)}" for line in found.evidence]
    return lines


def _curve_lines(state: JobState) -> list[str]:
    """`  loss ██▆▄▃▂▁▁ 2.3010 → 0.0177`"""
    points = state.losses.points
    curve = sparkline(points)
    return [f"  loss {curve} {metric_text(points[0][1])} → {metric_text(points[-1][1])}"] if curve else []


def _stuck_lines(state: JobState, *, suggest: Suggestions, removed: bool) -> list[str]:
    if state.stuck is None:
        return [f"{state.name} cannot start"]
    rank, waiting = state.stuck
    cause = f"{state.name} cannot start: {rank} is waiting: {waiting.reason}: {plain_text(waiting.message)}"
    if removed:
        return [cause, "  change the manifest and run it again"]
    delete = suggest.command("delete", state)
    return [cause, f"  change the manifest and run it again with --replace, or delete the job: {delete}"]


def _some(ranks: Iterable[str]) -> str:
    """`worker-0, worker-1 and 30 more`"""
    names = list(ranks)
    if len(names) <= _NAMED_RANKS:
        return ", ".join(names)
    return f"{', '.join(names[: _NAMED_RANKS - 1])} and {len(names) - _NAMED_RANKS + 1} more"


def _condition_message(job: Object, kind: str) -> str:
    condition = find_condition(job.get("status") or {}, kind)
    return str(condition.get("message") or "") if condition else ""


def _duration(job: Object, now: datetime) -> str:
    created = job["metadata"].get("creationTimestamp") or format_time(now)
    return elapsed(job, value_at(job, "status", "startTime", default=created), now)
