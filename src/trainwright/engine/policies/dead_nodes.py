"""Pods whose node is gone: nobody ends them, nobody removes them, and their ranks would stay empty for ever.

Where the job or the operator asks for it, they are removed by force after a bounded time. It is not their fault and
counts against no limit. The cluster says since when a node is not ready; since when a node does not exist at all is
written on its pods, as nobody else remembers it.
"""

from collections.abc import Mapping

from trainwright.engine.draft import Draft
from trainwright.engine.job_annotations import dead_node_seconds
from trainwright.engine.moments import after
from trainwright.objects.nodes import Node
from trainwright.objects.pods import Pod
from trainwright.objects.resources import PODS
from trainwright.objects.times import format_time, parse_time

NODE_GONE_SINCE = "trainwright.dev/node-gone-since"
"""On pods: when their node was first found missing."""


def remove_stranded(draft: Draft) -> frozenset[str]:
    """Removes what is stranded for too long; answers with the uids of those pods."""
    seconds = dead_node_seconds(draft.job, draft.settings)
    if seconds is None:
        return frozenset()
    dependent = [pod for pod in draft.children.all_pods if _needs_its_node(pod)]
    nodes = draft.observed.nodes
    if nodes is None:
        if dependent:
            _report_blindness(draft)
        return frozenset()
    stranded = [pod for pod in dependent if _is_over(draft, _gone_since(draft, pod, nodes), seconds)]
    for pod in stranded:
        _remove(draft, pod, nodes)
    return frozenset(pod.metadata.uid for pod in stranded)


def _needs_its_node(pod: Pod) -> bool:
    """A pod that has ended needs nobody, until it shall be removed: then its node must agree."""
    return bool(pod.spec.node_name) and (pod.metadata.terminating or not pod.finished)


def _gone_since(draft: Draft, pod: Pod, nodes: Mapping[str, Node]) -> str | None:
    node = nodes.get(pod.spec.node_name)
    noted = pod.metadata.annotations.get(NODE_GONE_SINCE)
    if node is not None:
        if noted is not None:
            _note(draft, pod, None)
        return node.unready_since
    if noted is None or not _is_time(noted):
        noted = format_time(draft.now)
        _note(draft, pod, noted)
    return noted


def _note(draft: Draft, pod: Pod, since: str | None) -> None:
    draft.patch(PODS, pod.metadata, {"metadata": {"annotations": {NODE_GONE_SINCE: since}}})


def _is_time(text: str) -> bool:
    try:
        parse_time(text)
    except ValueError:
        return False
    return True


def _is_over(draft: Draft, since: str | None, seconds: int) -> bool:
    end = None if since is None else after(since, seconds)
    if end is None:
        return False
    if draft.now < end:
        draft.wake(end)
    return draft.now >= end


def _remove(draft: Draft, pod: Pod, nodes: Mapping[str, Node]) -> None:
    name, node = pod.spec.node_name, nodes.get(pod.spec.node_name)
    if pod.metadata.terminating and pod.metadata.deletion_grace_period_seconds == 0:
        kept_by = ", ".join(pod.metadata.finalizers) or "its finalizers"
        draft.notice("DeadNode", f"Pod {pod.name} of the dead node {name} is kept by {kept_by}: remove them from it")
        return
    draft.delete_pod(pod, force=True)
    fate = "is gone" if node is None else f"has not been ready since {node.unready_since}"
    draft.tell("Warning", "DeadNode", f"Pod {pod.name} is removed by force because its node {name} {fate}")


def _report_blindness(draft: Draft) -> None:
    draft.notice(
        "NodesNotVisible",
        "Pods on dead nodes cannot be replaced because the operator may not see nodes: allow it to list and watch them",
    )
