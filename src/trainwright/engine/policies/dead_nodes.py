"""Pods on dead nodes: no kubelet terminates them, so their ranks would never be replaced.

If the job or the operator asks for it, such pods are force-deleted after a time limit. This does not count against
backoffLimit. The Ready condition of a Node has the time of its last change. The cluster does not record when a Node was
deleted, so an annotation of its pods does.
"""

from collections.abc import Mapping

from trainwright.engine.derived_facts import Facts
from trainwright.engine.job_annotations import dead_node_seconds
from trainwright.engine.plan_builder import PlanBuilder
from trainwright.objects.kinds.nodes import Node
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.resources import PODS
from trainwright.objects.times import format_time, parse_time, seconds_after

NODE_GONE_SINCE = "trainwright.dev/node-gone-since"
"""On pods: the time at which their Node was first found deleted."""


def remove_stranded(facts: Facts, builder: PlanBuilder) -> frozenset[str]:
    """Force-deletes pods that are stranded for too long, and returns their UIDs."""
    seconds = dead_node_seconds(facts.job, facts.settings)
    if seconds is None:
        return frozenset()
    dependent = [pod for pod in facts.children.pods.controlled if _needs_its_node(pod)]
    nodes = facts.observed.nodes
    if nodes is None:
        if dependent:
            _warn_of_invisible_nodes(builder)
        return frozenset()
    stranded = [
        pod for pod in dependent if _is_overdue(facts, builder, _dead_since(facts, builder, pod, nodes), seconds)
    ]
    for pod in stranded:
        _remove(builder, pod, nodes)
    return frozenset(pod.metadata.uid for pod in stranded)


def _needs_its_node(pod: Pod) -> bool:
    """A finished pod needs its node only if it is terminating: the kubelet has to confirm the deletion."""
    return bool(pod.spec.node_name) and (pod.metadata.terminating or not pod.finished)


def _dead_since(facts: Facts, builder: PlanBuilder, pod: Pod, nodes: Mapping[str, Node]) -> str | None:
    node = nodes.get(pod.spec.node_name)
    since = pod.metadata.annotations.get(NODE_GONE_SINCE)
    if node is not None:
        if since is not None:
            _annotate(builder, pod, None)
        return node.unready_since
    if since is None or not _is_time(since):
        since = format_time(facts.now)
        _annotate(builder, pod, since)
    return since


def _annotate(builder: PlanBuilder, pod: Pod, since: str | None) -> None:
    builder.patch(PODS, pod.metadata, {"metadata": {"annotations": {NODE_GONE_SINCE: since}}})


def _is_time(text: str) -> bool:
    try:
        parse_time(text)
    except ValueError:
        return False
    return True


def _is_overdue(facts: Facts, builder: PlanBuilder, since: str | None, seconds: int) -> bool:
    end = None if since is None else seconds_after(since, seconds)
    if end is None:
        return False
    if facts.now < end:
        builder.requeue_at(end)
    return facts.now >= end


def _remove(builder: PlanBuilder, pod: Pod, nodes: Mapping[str, Node]) -> None:
    name, node = pod.spec.node_name, nodes.get(pod.spec.node_name)
    if pod.metadata.terminating and pod.metadata.deletion_grace_period_seconds == 0:
        finalizers = ", ".join(pod.metadata.finalizers) or "its finalizers"
        builder.warn(
            "DeadNode", f"Pod {pod.name} on the dead node {name} cannot be deleted because of {finalizers}: remove them"
        )
        return
    builder.force_delete(PODS, pod.metadata)
    state = "was deleted" if node is None else f"has not been ready since {node.unready_since}"
    builder.record_event("Warning", "DeadNode", f"Pod {pod.name} is force-deleted because its node {name} {state}")


def _warn_of_invisible_nodes(builder: PlanBuilder) -> None:
    builder.warn(
        "NodesNotVisible",
        "Pods on dead nodes cannot be replaced: the operator is not allowed to list and watch nodes; add these verbs "
        "to its ClusterRole",
    )
