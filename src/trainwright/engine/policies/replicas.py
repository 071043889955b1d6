"""Every rank has one pod and one service: makes those that are missing, removes those that are too many or outdated."""

from trainwright.engine.conditions import is_finished
from trainwright.engine.draft import Draft
from trainwright.engine.pod_outcome import End, end_of
from trainwright.engine.policies import ports
from trainwright.engine.policies.name_conflicts import wait_for
from trainwright.engine.ranks import Rank
from trainwright.engine.rendering.pods import render_pod
from trainwright.engine.rendering.services import render_service


def bring_up(draft: Draft, *, admitted: bool) -> None:
    """`admitted`: whether new children may be created yet."""
    if is_finished(draft.status):
        return
    _remove(draft)
    if not admitted or not ports.are_chosen(draft):
        return
    for role, replica in draft.replicas.items():
        completed = draft.completed(role)
        open_ranks = [Rank(role, index) for index in range(replica.count) if index not in completed]
        if not draft.group_goes:
            _create_pods(draft, [rank for rank in open_ranks if rank not in draft.children.pods])
        _create_services(draft, [rank for rank in open_ranks if rank not in draft.children.services])


def _remove(draft: Draft) -> None:
    for pod in draft.children.surplus_pods:
        draft.delete_pod(pod)
    for service in draft.children.surplus_services:
        draft.delete_service(service)
    for pod in draft.children.pods.values():
        outdated = draft.is_outdated(pod.metadata) and end_of(pod) is not End.SUCCEEDED
        if outdated or draft.is_replaced(pod) or draft.group_goes:
            draft.delete_pod(pod)
    for service in draft.children.services.values():
        if draft.is_outdated(service.metadata):
            draft.delete_service(service)


def _create_pods(draft: Draft, missing: list[Rank]) -> None:
    for rank in missing:
        name = draft.name_of(rank)
        if name in draft.children.of_pods.orphans:
            continue  # it is being adopted
        if blocker := draft.children.of_pods.foreign.get(name):
            wait_for(draft, "Pod", blocker)
            continue
        draft.creates.append(render_pod(draft, rank))
        if draft.replicas[rank.role].template["spec"].get("restartPolicy"):
            draft.tell(
                "Warning",
                "SetPodTemplateRestartPolicy",
                "Restart policy in pod template will be overwritten by restart policy in replica spec",
            )


def _create_services(draft: Draft, missing: list[Rank]) -> None:
    for rank in missing:
        name = draft.name_of(rank)
        if name in draft.children.of_services.orphans:
            continue
        if blocker := draft.children.of_services.foreign.get(name):
            wait_for(draft, "Service", blocker)
        else:
            draft.creates.append(render_service(draft, rank))
