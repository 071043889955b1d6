"""What a person wants to know about a job: state, ranks, times. Pure functions of the job object."""

from datetime import datetime, timedelta

from trainwright.api.kinds import Kind
from trainwright.objects import Object
from trainwright.objects.paths import value_at
from trainwright.objects.times import human_duration, parse_time

FINISHED = frozenset({"Succeeded", "Failed"})


def job_state(job: Object) -> str:
    """The job's last condition that is true, as in `kubectl get`; `Terminating` while it is being deleted."""
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    conditions = value_at(job, "status", "conditions", default=())
    true = [str(condition.get("type")) for condition in conditions if condition.get("status") == "True"]
    return true[-1] if true else "New"


def finished_state(job: Object) -> str | None:
    """`Succeeded` or `Failed` if the job has finished, also while it is being deleted."""
    conditions = value_at(job, "status", "conditions", default=())
    true = (str(condition.get("type")) for condition in conditions if condition.get("status") == "True")
    return next((type_ for type_ in true if type_ in FINISHED), None)


def rank_count(job: Object, kind: Kind) -> int:
    """The number of pods that the spec asks for."""
    return sum(role_counts(job, kind).values())


def role_counts(job: Object, kind: Kind) -> dict[str, int]:
    """By the role's name as it is written in the spec."""
    roles = value_at(job, "spec", kind.replicas_field, default={})
    return {str(name): _count(spec) for name, spec in roles.items()}


def _count(spec: Object) -> int:
    replicas = value_at(spec, "replicas")
    return 1 if replicas is None else int(replicas)


def ranks(job: Object, kind: Kind) -> str:
    """`2/3` if two of three ranks run or have succeeded; `3` once the job has finished."""
    wanted = rank_count(job, kind)
    return str(wanted) if finished_state(job) else f"{present_ranks(job)}/{wanted}"


def present_ranks(job: Object) -> int:
    """The number of ranks that run or have succeeded."""
    statuses = value_at(job, "status", "replicaStatuses", default={})
    return sum(int(status.get(field) or 0) for status in statuses.values() for field in ("active", "succeeded"))


def restart_count(job: Object) -> int:
    """Restarts of pods that were replaced; the kubelet's restarts of containers are in the pods."""
    return sum(int(number) for number in value_at(job, "status", "restarts", default={}).values())


def age(job: Object, now: datetime) -> str:
    return human_age(job["metadata"].get("creationTimestamp"), now)


def human_age(since: str | None, now: datetime) -> str:
    """`2m34s`; `<unknown>` as in kubectl if the time is not known."""
    if not since:
        return "<unknown>"
    return human_duration(max(now - parse_time(since), timedelta(0)))


def duration(job: Object, now: datetime) -> str:
    """How long the job has run or ran; empty if it has not started or is suspended."""
    started = value_at(job, "status", "startTime")
    ended = value_at(job, "status", "completionTime")
    if not started or (not ended and job_state(job) == "Suspended"):
        return ""
    return elapsed(job, started, now)


def elapsed(job: Object, since: str, now: datetime) -> str:
    """From `since` to the end of the job, or to now."""
    ended = value_at(job, "status", "completionTime")
    return human_age(since, parse_time(ended) if ended else now)
