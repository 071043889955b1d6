"""The list of conditions and the rule by which it changes. Its order is visible: `kubectl get` shows the last one."""

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


def set_condition(status: Object, kind: str, *, reason: str, message: str, now: datetime, truth: bool) -> bool:
    """Changes `status` and says whether it did. Nothing changes any more once the job has finished.

    What is new comes last; only that the job was created never does, should another operator have lost it.
    """
    if is_finished(status):
        return False
    truth_text = str(truth)
    old = find_condition(status, kind)
    same_truth = old is not None and old["status"] == truth_text
    if old is not None and same_truth and old.get("reason") == reason:
        return False
    stamp = format_time(now)
    new = {
        "type": kind,
        "status": truth_text,
        "reason": reason,
        "message": message,
        "lastUpdateTime": stamp,
        "lastTransitionTime": old.get("lastTransitionTime", stamp) if old is not None and same_truth else stamp,
    }
    gone = {kind, _EXCLUDES.get(kind)}
    kept = [condition for condition in status.get("conditions") or () if condition["type"] not in gone]
    if kind in {SUCCEEDED, FAILED}:
        kept = [{**condition, "status": "False"} if condition["type"] == RUNNING else condition for condition in kept]
    status["conditions"] = [new, *kept] if kind == CREATED else [*kept, new]
    return True
