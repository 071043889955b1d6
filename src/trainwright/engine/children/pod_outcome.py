"""The outcome of a pod: the only module that decides what counts as success and as failure."""

from datetime import timedelta
from enum import Enum

from trainwright.objects.kinds.pods import Pod
from trainwright.objects.times import parse_time

_DISRUPTIONS = frozenset(
    {"Evicted", "Preempting", "NodeLost", "NodeShutdown", "NodeAffinity", "Shutdown", "Terminated"}
)


class PodOutcome(Enum):
    NONE = "none"
    """The pod has not finished."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DELETED = "deleted"
    """The pod was deleted before it finished: neither success nor failure, regardless of its exit code."""


_OUTCOMES = {"Succeeded": PodOutcome.SUCCEEDED, "Failed": PodOutcome.FAILED}


def outcome_of(pod: Pod) -> PodOutcome:
    if pod.metadata.terminating and not _finished_before_deletion(pod):
        return PodOutcome.DELETED
    return _OUTCOMES.get(pod.status.phase, PodOutcome.NONE)


def is_active(pod: Pod) -> bool:
    return pod.status.phase == "Running" and not pod.metadata.terminating


def is_disrupted(pod: Pod) -> bool:
    """True if the cluster ended the pod by eviction, preemption or the loss of a node."""
    return pod.status.reason in _DISRUPTIONS or pod.status.is_true("DisruptionTarget")


def exit_code(pod: Pod, container: str) -> int | None:
    """The exit code of the container; None if it is unknown."""
    terminated = pod.terminated(container)
    return None if terminated is None else terminated.exit_code


def _finished_before_deletion(pod: Pod) -> bool:
    """True if all containers had terminated before the deletion was requested.

    The deletion timestamp is the end of the grace period. A pod that stopped in the same second as the request was most
    likely stopped by that request.
    """
    ends = [status.state.terminated for status in pod.status.container_statuses]
    finished = [end.finished_at for end in ends if end is not None and end.finished_at is not None]
    if not pod.finished or not finished or pod.metadata.deletion_timestamp is None:
        return False
    grace = timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
    return max(map(parse_time, finished)) < parse_time(pod.metadata.deletion_timestamp) - grace
