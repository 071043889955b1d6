"""How far a pod got: the one place that says what counts as success, as failure, and as neither."""

from datetime import timedelta
from enum import Enum

from trainwright.objects.pods import Pod
from trainwright.objects.times import parse_time

PORT_TAKEN = "PortTaken"
"""The reason by which the embedded node says that somebody else has the port that the pod was given."""

_DISRUPTIONS = frozenset(
    {"Evicted", "Preempting", "NodeLost", "NodeShutdown", "NodeAffinity", "Shutdown", "Terminated"}
)


class End(Enum):
    NOT_YET = "not yet"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TAKEN_AWAY = "taken away"
    """Somebody deleted it before it had ended by itself: neither success nor failure, whatever its exit code says."""


_ENDS = {"Succeeded": End.SUCCEEDED, "Failed": End.FAILED}


def end_of(pod: Pod) -> End:
    if pod.metadata.terminating and not _ended_before_deletion(pod):
        return End.TAKEN_AWAY
    return _ENDS.get(pod.status.phase, End.NOT_YET)


def is_active(pod: Pod) -> bool:
    return pod.phase == "Running" and not pod.metadata.terminating


def is_disrupted(pod: Pod) -> bool:
    """The cluster took the pod away (eviction, preemption, a node that went): the program is not to blame."""
    return pod.status.reason in _DISRUPTIONS or any(
        condition.type == "DisruptionTarget" and condition.status == "True" for condition in pod.status.conditions
    )


def exit_code(pod: Pod, container: str) -> int | None:
    """The exit code of the container that trains; None when nobody saw it."""
    terminated = pod.terminated(container)
    return None if terminated is None else terminated.exit_code


def _ended_before_deletion(pod: Pod) -> bool:
    """Whether all containers had ended before the deletion was asked for.

    The deletion's time stamp is the end of the grace period. A pod that stops in the very second of the request was
    most likely stopped by it.
    """
    ends = [status.state.terminated for status in pod.status.container_statuses]
    finished = [end.finished_at for end in ends if end is not None and end.finished_at is not None]
    if not pod.finished or not finished or pod.metadata.deletion_timestamp is None:
        return False
    grace = timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
    return max(map(parse_time, finished)) < parse_time(pod.metadata.deletion_timestamp) - grace
