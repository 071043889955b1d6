"""How long a job took to start: the moments are in the job itself, so any process can tell."""

from datetime import datetime
from typing import Any

from trainwright.objects import Object
from trainwright.objects.times import parse_time


def is_launching(job: Object) -> bool:
    """Whether the job has not run yet since its creation or since it was resumed."""
    running = _condition(job, "Running")
    # Suspending sets Running to False with a reason of its own; a restart replaces or lowers the condition too.
    return _condition(job, "Restarting") is None and (running is None or _suspended(running))


def first_running(before: Object, after: Object) -> bool:
    """Whether the job began to run between these two: after its creation or after a resume, not after a restart."""
    running = _condition(after, "Running")
    return running is not None and running.get("status") == "True" and is_launching(before)


def launch_began(job: Object) -> datetime | None:
    """When somebody wanted the job to run: its creation, or the moment at which it was resumed."""
    resumed = _condition(job, "Suspended")
    if resumed is not None and resumed.get("status") != "True":
        return _moment(resumed.get("lastTransitionTime"))
    return _moment(job["metadata"].get("creationTimestamp"))


def _suspended(condition: Object) -> bool:
    return condition.get("status") != "True" and str(condition.get("reason", "")).endswith("Suspended")


def _condition(job: Object, kind: str) -> Object | None:
    conditions: list[Any] = (job.get("status") or {}).get("conditions") or []
    return next((one for one in conditions if isinstance(one, dict) and one.get("type") == kind), None)


def _moment(text: Any) -> datetime | None:
    try:
        return parse_time(text) if isinstance(text, str) else None
    except ValueError:
        return None  # a status that somebody wrote by hand
