"""Extra objects of a job: creates them, corrects them, and deletes them if the operator is allowed to."""

from collections.abc import Iterator, Mapping

from trainwright.api.labels import JOB_NAME, OPERATOR_NAME
from trainwright.engine.derived_facts import Facts
from trainwright.engine.framework import Correction, ExtraObject, ExtraResource, RoleState
from trainwright.engine.observed_state import ExtraView
from trainwright.engine.plan import PODS_WAVE, Create
from trainwright.engine.plan_builder import PlanBuilder
from trainwright.engine.policies import gang
from trainwright.engine.policies.name_conflicts import wait_for
from trainwright.engine.settings import Settings
from trainwright.objects import Object
from trainwright.objects.metadata import controller_reference
from trainwright.objects.resources import AUTOSCALERS
from trainwright.objects.subset import covers


def ensure(facts: Facts, builder: PlanBuilder, states: Mapping[str, RoleState]) -> bool:
    """Ensures the objects that the job needs, and deletes others. False if the name of a needed object is taken."""
    declared = facts.framework.extra_objects(facts.job, states)
    wanted = [extra for extra in declared if _is_available(extra.of, facts.settings)]
    group = gang.pod_group(facts)
    if group is not None:
        wanted.append(group)
    blocked = [extra for extra in wanted if not _ensure(facts, builder, extra) and extra.needed_by_pods]
    names = {(extra.of.resource.kind, extra.name) for extra in wanted}
    for present, resource in _controlled(facts):
        if (present.kind, present.metadata.name) not in names and resource.deletable:
            _delete(builder, resource, present)
    return not blocked


def remove(facts: Facts, builder: PlanBuilder, *, suspended: bool) -> None:
    """For a suspended or finished job."""
    for present, resource in _controlled(facts):
        if resource.deleted_on_suspend if suspended else resource.deleted_on_finish:
            gang.report_removal(facts, builder, present)
            _delete(builder, resource, present)


def unavailable(facts: Facts) -> Iterator[str]:
    """Warnings about objects that the job specifies and this cluster does not serve."""
    states = {role: RoleState() for role in facts.job.replicas}
    for extra in facts.framework.extra_objects(facts.job, states):
        if not _is_available(extra.of, facts.settings):
            yield extra.where_missing


def available_resources(resources: tuple[ExtraResource, ...], settings: Settings) -> tuple[ExtraResource, ...]:
    """The resources that the cluster serves, and the gang scheduler's PodGroups."""
    served = tuple(resource for resource in resources if _is_available(resource, settings))
    return (*served, gang.group_resource(settings.gang)) if settings.gang else served


def _is_available(extra: ExtraResource, settings: Settings) -> bool:
    return settings.autoscaling or extra.resource != AUTOSCALERS


def _controlled(facts: Facts) -> list[tuple[ExtraView, ExtraResource]]:
    if not facts.observed.extras:
        return []
    resources = available_resources(facts.framework.extra_resources, facts.settings)
    by_kind = {extra.resource.kind: extra for extra in resources}
    return [
        (present, by_kind[present.kind])
        for present in facts.observed.extras
        if present.kind in by_kind and facts.controls(present)
    ]


def _ensure(facts: Facts, builder: PlanBuilder, wanted: ExtraObject) -> bool:
    """False if the name is taken."""
    resource = wanted.of.resource
    present = facts.find_extra(resource.kind, wanted.name)
    if present is None:
        builder.create(
            Create(
                resource,
                wanted.name,
                wanted.job_field,
                lambda: _render(facts, wanted),
                wave=wanted.of.wave if wanted.needed_by_pods else PODS_WAVE,
                needed=wanted.needed_by_pods,
                with_event="create" in wanted.of.events_for,
                shared=wanted.shared,
            )
        )
        return True
    if wanted.shared and not facts.controls(present):
        return True
    if present.metadata.terminating or not facts.controls(present):
        wait_for(facts, builder, resource.kind, present.metadata)
        return False
    match wanted.of.correction:
        case Correction.PATCH:
            _patch(builder, wanted, present)
        case Correction.UPDATE:
            _update(facts, builder, wanted, present)
    return True


def _delete(builder: PlanBuilder, extra: ExtraResource, present: ExtraView) -> None:
    builder.delete(extra.resource, present.metadata, with_event="delete" in extra.events_for)


def _render(facts: Facts, wanted: ExtraObject) -> Object:
    job, resource = facts.job, wanted.of.resource
    metadata: Object = {
        "name": wanted.name,
        "namespace": job.namespace,
        "labels": _labels(facts, wanted),
        "ownerReferences": [controller_reference(job.raw)],
    }
    if wanted.annotations:
        metadata["annotations"] = dict(wanted.annotations)
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **wanted.content}


def _labels(facts: Facts, wanted: ExtraObject) -> dict[str, str]:
    """Includes the labels that the operator's watch selects."""
    return {**wanted.labels, OPERATOR_NAME: facts.job.kind.controller, JOB_NAME: facts.job.name}


def _differing(wanted: ExtraObject, present: ExtraView) -> Object:
    """The fields in which the existing object differs. The API server omits empty fields and fills in defaults."""
    body: Object = {
        field: value
        for field, value in wanted.content.items()
        if value and not covers(present.content.get(field), value)
    }
    if not covers(present.metadata.annotations, dict(wanted.annotations)):
        body["metadata"] = {"annotations": dict(wanted.annotations)}
    return body


def _patch(builder: PlanBuilder, wanted: ExtraObject, present: ExtraView) -> None:
    if body := _differing(wanted, present):
        builder.patch(wanted.of.resource, present.metadata, body)


def _update(facts: Facts, builder: PlanBuilder, wanted: ExtraObject, present: ExtraView) -> None:
    """An update replaces the whole object, so the body has all its other fields too."""
    if not _differing(wanted, present):
        return
    rendered, metadata = _render(facts, wanted), present.metadata
    body = {
        **present.content,
        **rendered,
        "metadata": {
            **rendered["metadata"],
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
            "labels": {**metadata.labels, **rendered["metadata"]["labels"]},
            "annotations": {**metadata.annotations, **wanted.annotations},
            "ownerReferences": [owner.to_object() for owner in metadata.owner_references],
            "finalizers": list(metadata.finalizers),
        },
    }
    builder.replace(wanted.of.resource, wanted.name, body)
