"""What has become of a pod: the one place that decides what counts as success, as failure, and as neither."""

from datetime import timedelta
from enum import Enum

from trainwright.objects.pods import Pod
from trainwright.objects.times import parse_time

PORT_TAKEN = "PortTaken"
"""The pod's reason if, on the embedded node, another program listens on the port that the pod was given."""

_DISRUPTIONS = frozenset(
    {"Evicted", "Preempting", "NodeLost", "NodeShutdown", "NodeAffinity", "Shutdown", "Terminated"}
)


class PodOutcome(Enum):
    NONE = "none"
    """It has not finished."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DELETED = "deleted"
    """It is being deleted and had not finished before: neither success nor failure, whatever its exit code."""


_OUTCOMES = {"Succeeded": PodOutcome.SUCCEEDED, "Failed": PodOutcome.FAILED}


def outcome_of(pod: Pod) -> PodOutcome:
    if pod.metadata.terminating and not _finished_before_deletion(pod):
        return PodOutcome.DELETED
    return _OUTCOMES.get(pod.status.phase, PodOutcome.NONE)


def is_active(pod: Pod) -> bool:
    return pod.status.phase == "Running" and not pod.metadata.terminating


def is_ready(pod: Pod) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)


def is_disrupted(pod: Pod) -> bool:
    """True if the cluster ended the pod (eviction, preemption, a lost node): the program is not to blame."""
    return pod.status.reason in _DISRUPTIONS or any(
        condition.type == "DisruptionTarget" and condition.status == "True" for condition in pod.status.conditions
    )


def exit_code(pod: Pod, container: str) -> int | None:
    """The exit code of the container; None if the pod's status does not have it."""
    terminated = pod.terminated(container)
    return None if terminated is None else terminated.exit_code


def _finished_before_deletion(pod: Pod) -> bool:
    """True if all containers had terminated before the deletion was requested.

    The deletion's time stamp is the end of the grace period. A pod that stops in the very second of the request was
    most likely stopped by it.
    """
    ends = [status.state.terminated for status in pod.status.container_statuses]
    finished = [end.finished_at for end in ends if end is not None and end.finished_at is not None]
    if not pod.finished or not finished or pod.metadata.deletion_timestamp is None:
        return False
    grace = timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
    return max(map(parse_time, finished)) < parse_time(pod.metadata.deletion_timestamp) - grace
