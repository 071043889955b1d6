"""The status of a Deployment: counts, and the conditions Available, Progressing and ReplicaFailure."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from trainwright.cluster.controllers.workloads.plans.rollout_sizes import max_unavailable, replicas_of
from trainwright.objects import Object
from trainwright.objects.conditions import find_condition
from trainwright.objects.times import format_time, parse_time

NEW_SET_AVAILABLE = "NewReplicaSetAvailable"
TIMED_OUT = "ProgressDeadlineExceeded"
_UPDATED = "ReplicaSetUpdated"
_NEVER = 2**31 - 1


def has_progress_deadline(deployment: Object) -> bool:
    return bool(deployment["spec"].get("progressDeadlineSeconds", _NEVER) != _NEVER)


def deployment_status(
    deployment: Object, current: Object, sets: Sequence[Object], new: Object | None, now: datetime
) -> Object:
    """The status without an estimate of progress; `current` has the conditions so far."""
    available = _sum(sets, "availableReplicas")
    counts = {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": _sum(sets, "replicas"),
        "updatedReplicas": _sum([new] if new is not None else [], "replicas"),
        "readyReplicas": _sum(sets, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(sum(map(replicas_of, sets)) - available, 0),
    }
    status: Object = {name: count for name, count in counts.items() if count}
    status["terminatingReplicas"] = _sum(sets, "terminatingReplicas")
    if "collisionCount" in current:
        status["collisionCount"] = current["collisionCount"]
    status["conditions"] = list(current.get("conditions") or ())
    if available >= replicas_of(deployment) - max_unavailable(deployment):
        text = "Deployment has minimum availability."
        set_condition(status, "Available", "True", "MinimumReplicasAvailable", text, now)
    else:
        text = "Deployment does not have minimum availability."
        set_condition(status, "Available", "False", "MinimumReplicasUnavailable", text, now)
    return status


def rollout_status(
    deployment: Object, before: Object, status: Object, sets: Sequence[Object], new: Object | None, now: datetime
) -> Object:
    """The status with its progress since `before`, and with the failures of the ReplicaSets."""
    if not has_progress_deadline(deployment):
        _remove_condition(status, "Progressing")
    elif not _was_complete(before, status):
        _set_progress(deployment, before, status, new, now)
    failures = [
        condition
        for replica_set in ([new] if new is not None else []) + list(sets)
        if (condition := find_condition(replica_set.get("status") or {}, "ReplicaFailure")) is not None
    ]
    if failures:
        _copy_failure(status, failures[0])
    else:
        _remove_condition(status, "ReplicaFailure")
    return status


def _was_complete(before: Object, status: Object) -> bool:
    """Afterwards a resynchronization does not estimate progress again."""
    known = find_condition(before, "Progressing") or {}
    all_updated = status.get("replicas", 0) == status.get("updatedReplicas", 0)
    return all_updated and known.get("reason") == NEW_SET_AVAILABLE


def _set_progress(deployment: Object, before: Object, status: Object, new: Object | None, now: datetime) -> None:
    name = f'Deployment "{deployment["metadata"]["name"]}"'
    if new is not None:
        name = f'ReplicaSet "{new["metadata"]["name"]}"'
    if is_complete(deployment, status):
        text = f"{name} has successfully progressed."
        set_condition(status, "Progressing", "True", NEW_SET_AVAILABLE, text, now)
    elif _has_progressed(before, status):
        # Its lastUpdateTime is when the deadline starts, so it changes with every progress.
        known = find_condition(status, "Progressing") or {}
        condition = _condition("Progressing", "True", _UPDATED, f"{name} is progressing.", now)
        if known.get("status") == "True":
            condition["lastTransitionTime"] = known["lastTransitionTime"]
        _remove_condition(status, "Progressing")
        status["conditions"].append(condition)
    elif _has_timed_out(deployment, status, now):
        text = f"{name} has timed out progressing."
        set_condition(status, "Progressing", "False", TIMED_OUT, text, now)


def is_complete(deployment: Object, status: Object) -> bool:
    wanted = replicas_of(deployment)
    counts = (status.get(name, 0) for name in ("updatedReplicas", "replicas", "availableReplicas"))
    observed = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    return observed and all(count == wanted for count in counts)


def progress_check_after(deployment: Object, now: datetime) -> float | None:
    """Seconds until the progress deadline has to be checked; None if there is nothing to check."""
    status = deployment["status"]
    condition = find_condition(status, "Progressing")
    if not has_progress_deadline(deployment) or condition is None or deployment["spec"].get("paused"):
        return None
    if condition.get("reason") in {TIMED_OUT, NEW_SET_AVAILABLE} or is_complete(deployment, status):
        return None
    due = parse_time(condition["lastUpdateTime"]) + timedelta(seconds=deployment["spec"]["progressDeadlineSeconds"])
    return max((due - now).total_seconds(), 0.0) + 1.0


def set_condition(status: Object, type_: str, value: str, reason: str, message: str, now: datetime) -> None:
    """Keeps a condition of the same status and reason; keeps the time of transition of one of the same status."""
    known = find_condition(status, type_)
    if known is not None and (known["status"], known.get("reason")) == (value, reason):
        return
    condition = _condition(type_, value, reason, message, now)
    if known is not None and known["status"] == value:
        condition["lastTransitionTime"] = known["lastTransitionTime"]
    _remove_condition(status, type_)
    status["conditions"].append(condition)


def _copy_failure(status: Object, failure: Object) -> None:
    known = find_condition(status, "ReplicaFailure")
    if known is not None and (known["status"], known.get("reason")) == (failure["status"], failure.get("reason")):
        return
    _remove_condition(status, "ReplicaFailure")
    status["conditions"].append(failure | {"lastUpdateTime": failure["lastTransitionTime"]})


def _condition(type_: str, value: str, reason: str, message: str, now: datetime) -> Object:
    moment = format_time(now)
    return {
        "type": type_,
        "status": value,
        "lastUpdateTime": moment,
        "lastTransitionTime": moment,
        "reason": reason,
        "message": message,
    }


def _remove_condition(status: Object, type_: str) -> None:
    status["conditions"] = [condition for condition in status.get("conditions") or () if condition["type"] != type_]


def _has_progressed(before: Object, status: Object) -> bool:
    def old(counts: Object) -> int:
        return int(counts.get("replicas", 0) - counts.get("updatedReplicas", 0))

    return old(status) < old(before) or any(
        status.get(name, 0) > before.get(name, 0) for name in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )


def _has_timed_out(deployment: Object, status: Object, now: datetime) -> bool:
    condition = find_condition(status, "Progressing")
    if condition is None or condition.get("reason") == NEW_SET_AVAILABLE:
        return False
    deadline = timedelta(seconds=deployment["spec"]["progressDeadlineSeconds"])
    return condition.get("reason") == TIMED_OUT or parse_time(condition["lastUpdateTime"]) + deadline < now


def _sum(sets: Sequence[Object], name: str) -> int:
    return sum((replica_set.get("status") or {}).get(name, 0) for replica_set in sets)
