"""A job that cannot be run as it is written: it fails at once, and says on itself which field is wrong."""

import copy
from datetime import datetime

from trainwright.api.errors import InvalidJob
from trainwright.api.job import is_managed_elsewhere
from trainwright.api.kinds import Kind
from trainwright.api.shape import is_readable_status
from trainwright.engine.conditions import CREATED, FAILED, is_finished, set_condition
from trainwright.engine.plan import JobEvent, Plan
from trainwright.objects import Object
from trainwright.objects.times import format_time


def refuse(raw: Object, kind: Kind, invalid: InvalidJob, now: datetime) -> Plan:
    """The plan for a job that `read_job` refused; empty if it says so already, or is not ours to judge."""
    status: Object = copy.deepcopy(raw.get("status") or {}) if is_readable_status(raw) else {}
    if raw["metadata"].get("deletionTimestamp") or is_managed_elsewhere(raw) or is_finished(status):
        return Plan()
    name, message = raw["metadata"]["name"], f"{kind.name} failed validation because {invalid}"
    reason = f"{kind.name}FailedValidation"
    set_condition(status, CREATED, reason=f"{kind.name}Created", message=f"{kind.name} {name} is created.", now=now)
    set_condition(status, FAILED, reason=reason, message=message, now=now)
    status.setdefault("completionTime", format_time(now))
    return Plan(status=status, events=(JobEvent("Warning", reason, message),))
