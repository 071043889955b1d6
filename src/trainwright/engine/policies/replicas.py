"""Pods and Services of the ranks: creates missing ones, deletes surplus and outdated ones."""

from collections.abc import Callable
from functools import partial

from trainwright.engine.children.classification import Classified
from trainwright.engine.children.ranks import Rank
from trainwright.engine.conditions import is_finished
from trainwright.engine.derived_facts import Facts
from trainwright.engine.inherited_ports import has_outdated_port
from trainwright.engine.observed_state import ServiceView
from trainwright.engine.plan import FOLLOWERS_WAVE, PODS_WAVE, Create
from trainwright.engine.plan_builder import PlanBuilder
from trainwright.engine.policies import gang
from trainwright.engine.policies.name_conflicts import wait_for
from trainwright.engine.rendering.pods import PodRenderer
from trainwright.engine.rendering.services import render_service
from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.resources import PODS, SERVICES, Resource


def bring_up(facts: Facts, builder: PlanBuilder, *, admitted: bool) -> None:
    """`admitted`: whether new children can be created yet."""
    if is_finished(builder.status):
        return
    _delete(facts, builder)
    if not admitted:
        return
    renderer = PodRenderer(facts)
    for role, replica in facts.job.replicas.items():
        completed = facts.pods.completed[role]
        unfinished = [Rank(role, index) for index in range(replica.count) if index not in completed]
        if not builder.group_restarting:
            missing = [rank for rank in unfinished if rank not in facts.children.pods.ranked]
            _create_pods(facts, builder, missing, renderer)
        if replica.role.has_service:
            _bring_up_services(facts, builder, unfinished)


def _delete(facts: Facts, builder: PlanBuilder) -> None:
    for resource, children in facts.children.by_resource:
        for child in children.surplus.values():
            builder.delete(resource, child.metadata)
    if builder.replaced:
        for pod in facts.children.pods.ranked.values():
            if builder.group_restarting or pod.metadata.uid in builder.replaced:
                builder.delete(PODS, pod.metadata)


def _bring_up_services(facts: Facts, builder: PlanBuilder, unfinished: list[Rank]) -> None:
    """Deletes Services of earlier versions when no pod uses their ports; the next reconcile creates them again."""
    services = facts.children.services
    for rank in unfinished:
        service = services.ranked.get(rank)
        if service is None:
            _create(facts, builder, services, SERVICES, rank, partial(render_service, facts, rank))
        elif not facts.inherited_ports and has_outdated_port(facts.job, rank, service.metadata):
            builder.delete(SERVICES, service.metadata)


def _create_pods(facts: Facts, builder: PlanBuilder, missing: list[Rank], renderer: PodRenderer) -> None:
    for rank in missing:
        if _create(
            facts,
            builder,
            facts.children.pods,
            PODS,
            rank,
            partial(_render_pod, facts, rank, renderer.render_later(rank)),
        ):
            gang.warn_of_other_scheduler(facts, builder)
            if facts.job.replicas[rank.role].template["spec"].get("restartPolicy"):
                builder.record_event(
                    "Warning",
                    "SetPodTemplateRestartPolicy",
                    "Restart policy in pod template will be overwritten by restart policy in replica spec",
                )


def _render_pod(facts: Facts, rank: Rank, render: Callable[[], Object]) -> Object:
    pod = render()
    gang.mark_member(facts, rank.role, pod)
    return pod


def _create(
    facts: Facts,
    builder: PlanBuilder,
    children: Classified[Pod] | Classified[ServiceView],
    resource: Resource,
    rank: Rank,
    render: Callable[[], Object],
) -> bool:
    """False if the name is taken by an orphan that is being adopted, or by another object."""
    name = facts.job.child_name(rank.role, rank.index)
    if name in children.orphans:
        return False
    if blocker := children.foreign.get(name):
        wait_for(facts, builder, resource.kind, blocker)
        return False
    follows = facts.framework.uses_other_pods(rank)
    if follows and _is_name_taken(facts, children):
        return False
    job_field = f"spec.{facts.job.kind.replicas_field}[{rank.role}].template"
    builder.create(Create(resource, name, job_field, render, wave=FOLLOWERS_WAVE if follows else PODS_WAVE))
    return True


def _is_name_taken(facts: Facts, children: Classified[Pod] | Classified[ServiceView]) -> bool:
    """Whether an object of another owner has the name of one of the job's children."""
    return bool(children.foreign) and any(
        facts.job.child_name(role, index) in children.foreign
        for role, replica in facts.job.replicas.items()
        for index in range(replica.count)
    )
