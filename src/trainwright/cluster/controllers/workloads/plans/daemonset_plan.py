"""Decides about one DaemonSet: on which nodes a pod is missing, which pods to delete, and its status."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from trainwright.cluster.controllers.scheduler_filters import (
    SchedulableNode,
    SchedulablePod,
    SchedulablePodSpec,
    accepts_daemon,
)
from trainwright.cluster.controllers.workloads.plans.owned_pods import is_active, is_available
from trainwright.cluster.controllers.workloads.plans.pod_template import REVISION_HASH, render_pod
from trainwright.cluster.controllers.workloads.plans.rollout_sizes import scaled
from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.metadata import ObjectMeta

_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_GENERATION = "pod-template-generation"
_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


@dataclass(frozen=True, slots=True)
class DaemonSetPlan:
    create: tuple[str, ...] = ()
    """Names of nodes."""
    delete: tuple[Pod, ...] = ()


def target_of(pod: Pod) -> str:
    """The node that a pod of a DaemonSet runs on or waits for."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = (pod.spec.affinity or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name" and len(field.get("values") or ()) == 1:
                return str(field["values"][0])
    return ""


def eligible_nodes(daemon_set: Object, nodes: Iterable[SchedulableNode]) -> list[str]:
    spec = daemon_pod(daemon_set, "", "", daemon_set["spec"]["template"], with_node=False)["spec"]
    pod = SchedulablePod(ObjectMeta(), msgspec.convert(spec, SchedulablePodSpec))
    return sorted(node.metadata.name for node in nodes if accepts_daemon(pod, node))


def plan_daemon_set(
    daemon_set: Object, pods: Sequence[Pod], nodes: Sequence[str], revision: str, now: datetime
) -> DaemonSetPlan:
    """`nodes` are those that should have a pod; `revision` is the hash of the template."""
    if "deletionTimestamp" in daemon_set["metadata"]:
        return DaemonSetPlan()
    by_node: dict[str, list[Pod]] = {}
    for pod in sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.name)):
        if not pod.metadata.terminating:
            by_node.setdefault(target_of(pod), []).append(pod)
    surplus = [pod for node, several in by_node.items() for pod in (several if node not in nodes else several[1:])]
    ended = [several[0] for node, several in by_node.items() if node in nodes and several[0].finished]
    waiting = {target_of(pod) for pod in pods if pod.metadata.terminating}
    missing = tuple(node for node in nodes if node not in by_node and node not in waiting)
    if missing or surplus or ended:
        return DaemonSetPlan(missing, (*surplus, *ended))
    running = [several[0] for several in by_node.values()]
    return DaemonSetPlan(delete=_outdated(daemon_set, running, nodes, revision, now))


def _outdated(
    daemon_set: Object, pods: Sequence[Pod], nodes: Sequence[str], revision: str, now: datetime
) -> tuple[Pod, ...]:
    """The outdated pods that may be deleted now: at most `maxUnavailable` nodes are without an available pod."""
    update = daemon_set["spec"]["updateStrategy"]
    if update["type"] != "RollingUpdate":
        return ()
    most = scaled((update.get("rollingUpdate") or {}).get("maxUnavailable", 1), len(nodes), round_up=True) or 1
    unavailable = len(nodes) - sum(is_available(daemon_set, pod, now) for pod in pods)
    old = [pod for pod in pods if pod.metadata.labels.get(REVISION_HASH) != revision]
    dead = [pod for pod in old if not is_available(daemon_set, pod, now)]
    alive = [pod for pod in old if is_available(daemon_set, pod, now)]
    return (*dead, *alive[: max(0, most - unavailable)])


def daemon_pod(daemon_set: Object, node: str, revision: str, template: Object, *, with_node: bool = True) -> Object:
    """A pod for that node: the scheduler places it there, also if the node is not ready or cordoned."""
    generation = (daemon_set["metadata"].get("annotations") or {}).get(_TEMPLATE_GENERATION, "1")
    pod = render_pod(daemon_set, template, labels={REVISION_HASH: revision, _GENERATION: generation})
    spec = pod["spec"]
    known = {(toleration.get("key"), toleration.get("effect")) for toleration in spec.get("tolerations") or ()}
    added = [
        {"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED if (key, effect) not in known
    ]
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *added]
    if with_node:
        wanted = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [wanted]}
    return pod


def daemon_set_status(
    daemon_set: Object, pods: Sequence[Pod], nodes: Sequence[str], revision: str, now: datetime
) -> Object:
    live = {target_of(pod): pod for pod in pods if is_active(pod)}
    scheduled = [live[node] for node in nodes if node in live]
    available = sum(is_available(daemon_set, pod, now) for pod in scheduled)
    optional = {
        "updatedNumberScheduled": sum(pod.metadata.labels.get(REVISION_HASH) == revision for pod in scheduled),
        "numberAvailable": available,
        "numberUnavailable": len(nodes) - available,
        "observedGeneration": daemon_set["metadata"].get("generation", 0),
    }
    return {
        "currentNumberScheduled": len(scheduled),
        "numberMisscheduled": sum(node not in nodes for node in live),
        "desiredNumberScheduled": len(nodes),
        "numberReady": sum(pod.ready for pod in scheduled),
        **{name: count for name, count in optional.items() if count},
    }
