"""The conditions of a job. Their order matters: `kubectl get` shows the last one as the state."""

from datetime import datetime

from trainwright.objects import Object
from trainwright.objects.conditions import find_condition, is_condition_true
from trainwright.objects.times import format_time

CREATED = "Created"
RUNNING = "Running"
RESTARTING = "Restarting"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
SUSPENDED = "Suspended"

_EXCLUDES = {RESTARTING: RUNNING, RUNNING: RESTARTING}


def is_finished(status: Object) -> bool:
    return is_condition_true(status, SUCCEEDED) or is_condition_true(status, FAILED)


def set_condition(status: Object, type_: str, *, reason: str, message: str, now: datetime, value: bool) -> bool:
    """Sets a condition in `status`; False if nothing changed. The conditions of a finished job no longer change.

    The new condition comes last, except Created, which is always first.
    """
    if is_finished(status):
        return False
    text = str(value)
    old = find_condition(status, type_)
    same_status = old is not None and old["status"] == text
    if old is not None and same_status and old.get("reason") == reason:
        return False
    stamp = format_time(now)
    new = {
        "type": type_,
        "status": text,
        "reason": reason,
        "message": message,
        "lastUpdateTime": stamp,
        "lastTransitionTime": old.get("lastTransitionTime", stamp) if old is not None and same_status else stamp,
    }
    replaced = {type_, _EXCLUDES.get(type_)}
    others = [condition for condition in status.get("conditions") or () if condition["type"] not in replaced]
    if type_ in {SUCCEEDED, FAILED}:
        others = [{**other, "status": "False"} if other["type"] == RUNNING else other for other in others]
    status["conditions"] = [new, *others] if type_ == CREATED else [*others, new]
    return True
