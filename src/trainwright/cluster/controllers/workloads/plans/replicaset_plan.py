"""Decides about one ReplicaSet: how many pods to create, which ones to delete, and its status."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from trainwright.cluster.controllers.workloads.plans.owned_pods import is_active, is_available
from trainwright.objects import Object
from trainwright.objects.conditions import find_condition
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.times import format_time, unix_seconds

BURST = 500
"""The most pods that one reconciliation creates or deletes."""

_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


@dataclass(frozen=True, slots=True)
class ReplicaSetPlan:
    create: int = 0
    delete: tuple[Pod, ...] = ()


def plan_replica_set(replica_set: Object, pods: Sequence[Pod]) -> ReplicaSetPlan:
    """`pods` are those that the ReplicaSet owns. Pods that have finished or are being deleted do not count."""
    if "deletionTimestamp" in replica_set["metadata"]:
        return ReplicaSetPlan()
    active = [pod for pod in pods if is_active(pod)]
    surplus = len(active) - replica_set["spec"].get("replicas", 1)
    if surplus < 0:
        return ReplicaSetPlan(create=min(-surplus, BURST))
    return ReplicaSetPlan(delete=tuple(sorted(active, key=deletion_order)[: min(surplus, BURST)]))


def deletion_order(pod: Pod) -> tuple[object, ...]:
    """Pods that have come less far are deleted first, then the cheaper, the younger, those that restarted more."""
    ready = pod.ready
    condition = pod.status.condition("Ready")
    since = unix_seconds(condition.last_transition_time) if condition is not None and ready else None
    return (
        bool(pod.spec.node_name),
        _PHASES.get(pod.phase, 0),
        ready,
        _deletion_cost(pod),
        -(since or 0.0),
        -max((status.restart_count for status in pod.status.container_statuses), default=0),
        -(unix_seconds(pod.metadata.creation_timestamp) or 0.0),
        pod.metadata.uid,
    )


def _deletion_cost(pod: Pod) -> int:
    try:
        return int(pod.metadata.annotations.get(_DELETION_COST, "0"))
    except ValueError:
        return 0


def replica_set_status(
    replica_set: Object, pods: Sequence[Pod], failure: tuple[str, str] | None, now: datetime
) -> Object:
    """`failure` is the reason and the message of what could not be created or deleted."""
    spec, old = replica_set["spec"], replica_set.get("status") or {}
    active = [pod for pod in pods if is_active(pod)]
    labels = (spec["template"]["metadata"].get("labels") or {}).items()
    counts = {
        "fullyLabeledReplicas": sum(labels <= pod.metadata.labels.items() for pod in active),
        "readyReplicas": sum(pod.ready for pod in active),
        "availableReplicas": sum(is_available(replica_set, pod, now) for pod in active),
        "observedGeneration": replica_set["metadata"].get("generation", 0),
    }
    status: Object = {"replicas": len(active), **{name: count for name, count in counts.items() if count}}
    status["terminatingReplicas"] = sum(pod.metadata.terminating and not pod.finished for pod in pods)
    known = find_condition(old, "ReplicaFailure")
    conditions = [condition for condition in old.get("conditions") or () if condition != known]
    if failure is not None:
        reason, message = failure
        failed = {"type": "ReplicaFailure", "status": "True", "lastTransitionTime": format_time(now)}
        conditions.append(known or failed | {"reason": reason, "message": message})
    if conditions:
        status["conditions"] = conditions
    return status
