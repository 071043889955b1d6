"""`trainwright describe`: everything about one job that a person needs, and what to do next."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import click

from trainwright.cli.commands.jobs.events import event_rows, events_of
from trainwright.cli.history import metrics_text
from trainwright.cli.jobs.failure import diagnose_pods, diagnosis_lines, evidence_lines, recorded_failure
from trainwright.cli.jobs.pods.pod_states import listener_line, listening_addresses, pod_state
from trainwright.cli.jobs.pods.ranks import RankPod, latest_of_each_rank, local_time, rank_pods
from trainwright.cli.jobs.recorded_runs import recorded_progress
from trainwright.cli.jobs.references import FoundJob, find_job, job_argument
from trainwright.cli.jobs.session import Session, cluster_command
from trainwright.cli.jobs.summary import duration, finished_state, human_age, job_state
from trainwright.cli.output.console import Console, plain_text
from trainwright.cli.output.tables import table_lines, terminal_width
from trainwright.insight.first_failing_rank import Diagnosis
from trainwright.insight.log_progress import Progress
from trainwright.insight.process_end import Cause
from trainwright.objects import Object
from trainwright.objects.kinds.container_runs import ContainerRun
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.paths import value_at
from trainwright.objects.times import human_duration, parse_time

_SHOWN_EVENTS = 10
_INDENT = "  "


@click.command(name="describe")
@job_argument
@cluster_command
def command(session: Session, job: tuple[str, ...]) -> None:
    """Show a job: state, ranks, why it failed, events, files, and what to do next."""
    found = find_job(session, job)
    pods = rank_pods(session, found)
    diagnosis = diagnose_pods(session, found, pods)
    now = datetime.now(UTC)
    console = Console.of()
    for title, lines in _sections(session, found, pods, diagnosis, now):
        if title and lines:
            console.print("")
            console.print(f"{title}:", colour="bright_white")
        for line in lines:
            console.print(plain_text(f"{_INDENT}{line}" if title else line))


def _sections(
    session: Session, job: FoundJob, pods: list[RankPod], diagnosis: Diagnosis | None, now: datetime
) -> Iterator[tuple[str, list[str]]]:
    yield "", _head(session, job, now)
    if diagnosis and not _was_stopped(job, diagnosis):
        title = "Why it failed" if finished_state(job.object) == "Failed" else "Last failure"
        evidence = [f"  {line}" for line in evidence_lines(diagnosis)]
        yield title, [*diagnosis_lines(diagnosis), *evidence]
    else:
        yield "Why it failed", recorded_failure(job.object)
    yield "Ranks", _ranks(pods, now)
    yield "Listening", _listening(pods)
    yield "Waiting", [*_waiting(pods), *_late(session, job, pods, now)]
    yield "Conditions", _conditions(job, now)
    yield "Files", _files(session, job, pods)
    events = events_of(session, job)
    yield "Events", _event_lines(events[-_SHOWN_EVENTS:], now)
    yield "Next", _next(session, job, pods, diagnosis, more_events=len(events) > _SHOWN_EVENTS)


def _was_stopped(job: FoundJob, diagnosis: Diagnosis) -> bool:
    """True if the user suspended the job, which ended its pods."""
    return job_state(job.object) == "Suspended" and diagnosis.cause is Cause.TERMINATED


def _head(session: Session, job: FoundJob, now: datetime) -> list[str]:
    created = job.object["metadata"].get("creationTimestamp")
    data = session.target.data
    rows = {
        "Name": job.name,
        "Namespace": job.namespace,
        "Kind": job.kind.name,
        "State": _state(job),
        "Created": f"{local_time(parse_time(created).timestamp())} ({human_age(created, now)} ago)" if created else "",
        "Duration": duration(job.object, now),
        "Progress": _progress(recorded_progress(data, job.uid, job.kind)) if data else "",
    }
    return [f"{name + ':':<12}{value}" for name, value in rows.items() if value]


def _state(job: FoundJob) -> str:
    conditions = value_at(job.object, "status", "conditions", default=())
    state = job_state(job.object)
    message = next(
        (str(condition.get("message") or "") for condition in conditions if condition.get("type") == state), ""
    )
    if state != "Suspended" and job.is_suspended and not finished_state(job.object):
        return f"{state}, to be suspended"
    return f"{state}: {message}" if message and state not in {"Running", "Created"} else state


def _progress(progress: Progress) -> str:
    parts = []
    if progress.epoch is not None:
        parts.append(f"epoch {progress.epoch}/{progress.epochs}" if progress.epochs else f"epoch {progress.epoch}")
    if progress.step is not None:
        parts.append(f"step {progress.step}/{progress.total}" if progress.total else f"step {progress.step}")
    if progress.metrics:
        parts.append(metrics_text(progress.metrics))
    return "  ".join(parts)


def _ranks(pods: list[RankPod], now: datetime) -> list[str]:
    """One row for each rank: its last pod, and how often it was started before."""
    if not pods:
        return ["none yet"]
    rows = []
    latest = latest_of_each_rank(pods)
    live = [pod.pod for pod in latest if pod.pod]
    for pod in latest:
        earlier = sum(other.rank == pod.rank for other in pods) - 1
        rows.append(
            [pod.rank, _pod_state(pod, live), _restarts(pod, earlier), _exit_code(pod), _ran(pod, now), pod.name]
        )
    return table_lines(["RANK", "STATE", "RESTARTS", "EXIT CODE", "RAN", "POD"], rows, width=_width(), drop=("POD",))


def _listening(pods: list[RankPod]) -> list[str]:
    return [
        listener_line(pod.rank, address)
        for pod in latest_of_each_rank(pods)
        if pod.pod
        for address in listening_addresses(pod.pod)
    ]


def _pod_state(pod: RankPod, job_pods: list[Pod]) -> str:
    if pod.pod is None:
        # SIGTERM is how clean-up, `stop` and scaling down end a pod.
        ended = {"": "Deleted", "0": "Succeeded, cleaned up", "143": "Stopped, cleaned up"}
        return ended.get(_exit_code(pod), "Failed, cleaned up")
    return pod_state(pod.pod, job_pods)


def _restarts(pod: RankPod, earlier: int) -> str:
    last = _last_run(pod)
    in_pod = pod.pod.restarts if pod.pod else last.number if last else 0
    return str(in_pod + earlier)


def _exit_code(pod: RankPod) -> str:
    """The exit code of the last run of the main container; empty while it runs."""
    last = _last_run(pod)
    return str(last.exit_code) if last and last.exit_code is not None else ""


def _ran(pod: RankPod, now: datetime) -> str:
    """How long its last run took, or takes until now."""
    last = _last_run(pod)
    if last is None or not last.started_at:
        return ""
    return human_duration(timedelta(seconds=(last.finished_at or now.timestamp()) - last.started_at))


def _last_run(pod: RankPod) -> ContainerRun | None:
    """The last run of the main container, which is the first one of the pod."""
    runs = [run for run in pod.runs if not run.init]
    return next((run for run in reversed(runs) if run.container == runs[0].container), None)


def _waiting(pods: list[RankPod]) -> Iterator[str]:
    """What ranks wait for that have not started."""
    for pod in latest_of_each_rank(pods):
        if pod.pod is None:
            continue
        for condition in pod.pod.status.conditions:
            if condition.type == "PodScheduled" and condition.status == "False":
                yield f"{pod.rank}: {condition.reason}: {condition.message}"
        for status in pod.pod.status.init_container_statuses + pod.pod.status.container_statuses:
            if status.state.waiting and status.state.waiting.message:
                yield f"{pod.rank}: {status.state.waiting.reason}: {status.state.waiting.message}"
                break


def _late(session: Session, job: FoundJob, pods: list[RankPod], now: datetime) -> list[str]:
    """Ranks that wait for a peer that has succeeded."""
    from trainwright.cli.follow.state.rank_troubles import late_ranks
    from trainwright.cli.follow.texts.messages import late_rank_line

    present = [(pod.rank, pod.pod) for pod in latest_of_each_rank(pods) if pod.pod]
    stop, at = f"trainwright stop {job.name}{session.flags}", now.timestamp()
    return [late_rank_line(late, at, stop) for late in late_ranks(present, at)]


def _conditions(job: FoundJob, now: datetime) -> list[str]:
    conditions = value_at(job.object, "status", "conditions", default=())
    rows = [
        [
            str(condition.get("type") or ""),
            str(condition.get("status") or ""),
            human_age(condition.get("lastTransitionTime"), now),
            str(condition.get("reason") or ""),
            " ".join(str(condition.get("message") or "").split()),
        ]
        for condition in conditions
    ]
    return table_lines(["TYPE", "STATUS", "AGE", "REASON", "MESSAGE"], rows, width=_width(), wrap=True) if rows else []


def _files(session: Session, job: FoundJob, pods: list[RankPod]) -> list[str]:
    """Volumes, files that the job has written, and those that only its pods can see; as `run` names them in the end."""
    from trainwright.api.errors import InvalidJob
    from trainwright.api.job import read_job
    from trainwright.cli.follow.report import file_lines
    from trainwright.cli.follow.state.job_state import JobState
    from trainwright.cli.follow.texts.messages import Suggestions

    try:
        state = JobState(read_job(job.object), job.uid)
    except InvalidJob:
        return []
    state.update_records(pod.record for pod in pods if pod.record)
    return list(file_lines(state, session.client, session.target, Suggestions.of(session.target)))


def _next(
    session: Session, job: FoundJob, pods: list[RankPod], diagnosis: Diagnosis | None, *, more_events: bool
) -> list[str]:
    """The commands that make sense now."""
    state = finished_state(job.object)
    name = job.name
    commands = []
    if diagnosis and diagnosis.rank:
        commands.append((f"logs {name} --rank {diagnosis.rank}", f"the whole log of {diagnosis.rank}"))
    else:
        commands.append((f"logs {name}" if state else f"logs -f {name}", "the logs of all ranks"))
    if any(pod.record and pod.record.private_files for pod in pods):
        commands.append((f"cp {name}:PATH .", "fetch a private file"))
    if more_events:
        commands.append((f"events {name}", "all events"))
    if not state:
        stop = ("resume", "start it") if job.is_suspended else ("stop", "end its pods, keep the job and its files")
        commands.append((f"{stop[0]} {name}", stop[1]))
    elif any(pod.pod and pod.pod.phase == "Running" for pod in pods):
        commands.append((f"stop {name}", "end the ranks that are still running"))
    commands.append((f"delete {name}", "delete the job with its logs"))
    width = max(len(command) for command, _ in commands)
    return [f"trainwright {command:<{width}}{session.flags}  # {why}" for command, why in commands]


def _event_lines(events: list[Object], now: datetime) -> list[str]:
    head, *rows = event_rows(events, now)
    return table_lines(head, rows, width=_width(), wrap=True) if rows else []


def _width() -> int | None:
    """For the lines of a section, which are indented."""
    width = terminal_width()
    return width - len(_INDENT) if width else None
