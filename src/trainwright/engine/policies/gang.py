"""Gang scheduling: a PodGroup makes the scheduler start all pods of a job or none.

The scheduler is a flag of the operator and the same for all jobs.
"""

from contextlib import suppress
from fractions import Fraction

from trainwright.api.types import SchedulingPolicy
from trainwright.engine.derived_facts import Facts
from trainwright.engine.framework import Correction, ExtraObject, ExtraResource
from trainwright.engine.observed_state import ExtraView
from trainwright.engine.plan_builder import PlanBuilder
from trainwright.objects import Object
from trainwright.objects.kinds.gangs import GROUP_LABEL, VOLCANO_GROUP_ANNOTATION, GangScheduler
from trainwright.objects.quantities import QuantityError, add_amounts, format_quantity, parse_quantity

_TASK_OF_VOLCANO = "volcano.sh/task-spec"
_NOT_COPIED = ("kubectl.kubernetes.io/last-applied-configuration", "trainwright.dev/")
_UNDECIDED = ("", "Pending")


def admits(facts: Facts) -> bool:
    """Whether the scheduler has admitted the group, so that pods can be created."""
    gang = facts.settings.gang
    if gang is None:
        return True
    group = _present(facts, gang)
    if group is None or group.metadata.terminating:
        return False
    phase = (group.content.get("status") or {}).get("phase", "")
    return not gang.is_volcano or phase not in _UNDECIDED


def pod_group(facts: Facts) -> ExtraObject | None:
    """The PodGroup of the job; None without a gang scheduler."""
    gang = facts.settings.gang
    if gang is None:
        return None
    return ExtraObject(
        of=group_resource(gang),
        name=facts.job.name,
        content={"spec": _spec(facts, gang)},
        job_field="spec.runPolicy.schedulingPolicy",
        annotations=_annotations(facts),
    )


def group_resource(gang: GangScheduler) -> ExtraResource:
    return ExtraResource(
        resource=gang.resource,
        correction=Correction.PATCH,
        deleted_on_suspend=True,
        deleted_on_finish=True,
        events_for=frozenset({"delete"}),
    )


def report_removal(facts: Facts, builder: PlanBuilder, extra: ExtraView) -> None:
    gang = facts.settings.gang
    if gang is not None and extra.kind == gang.resource.kind and not extra.metadata.terminating:
        builder.record_event("Normal", "JobTerminated", "Job has been terminated. Deleting PodGroup")


def mark_member(facts: Facts, role: str, pod: Object) -> None:
    """Makes a new pod a member of the group. A scheduler in the template is kept."""
    gang = facts.settings.gang
    if gang is None:
        return
    if not pod["spec"].get("schedulerName"):
        pod["spec"]["schedulerName"] = gang.scheduler
    if gang.is_volcano:
        annotations = {VOLCANO_GROUP_ANNOTATION: facts.job.name, _TASK_OF_VOLCANO: role.lower()}
        pod["metadata"]["annotations"] = {**pod["metadata"].get("annotations", {}), **annotations}
    else:
        pod["metadata"]["labels"][GROUP_LABEL] = facts.job.name


def warn_of_other_scheduler(facts: Facts, builder: PlanBuilder) -> None:
    gang = facts.settings.gang
    if gang is not None and _has_other_scheduler(facts, gang):
        builder.record_event(
            "Warning",
            "SetPodTemplateSchedulerName",
            "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten",
        )


def _has_other_scheduler(facts: Facts, gang: GangScheduler) -> bool:
    chosen = {replica.template["spec"].get("schedulerName") for replica in facts.job.replicas.values()}
    return bool(chosen - {None, "", gang.scheduler})


def _present(facts: Facts, gang: GangScheduler) -> ExtraView | None:
    """The job's own PodGroup."""
    group = facts.find_extra(gang.resource.kind, facts.job.name)
    return group if group is not None and facts.controls(group) else None


def _spec(facts: Facts, gang: GangScheduler) -> Object:
    policy = facts.job.run_policy.scheduling_policy or SchedulingPolicy()
    members = facts.job.total_replicas if policy.min_available is None else policy.min_available
    spec: Object = {"minMember": members}
    resources = _least_resources(facts, members) if policy.min_resources is None else policy.min_resources
    group = _present(facts, gang)
    present: Object = (group.content.get("spec") or {}) if group else {}
    if resources or gang.is_volcano:
        # A merge patch keeps the resources that it does not name. Null removes them; otherwise the PodGroup would keep
        # waiting for resources that no replica requests.
        spec["minResources"] = {**dict.fromkeys(present.get("minResources") or ()), **resources}
    if gang.is_volcano:
        # Administrators may move a PodGroup to another queue.
        spec["queue"] = present.get("queue") or policy.queue or "default"
        if policy.priority_class:
            spec["priorityClassName"] = policy.priority_class
    elif policy.schedule_timeout_seconds is not None:
        spec["scheduleTimeoutSeconds"] = policy.schedule_timeout_seconds
    return spec


def _least_resources(facts: Facts, members: int) -> Object:
    """The sum of the requests of the first `members` pods, in the order of priority."""
    ordered = sorted(facts.job.replicas.values(), key=lambda replica: -_priority(facts, replica.template))
    total: dict[str, Fraction] = {}
    for replica in ordered:
        counted = min(replica.count, max(members, 0))
        members -= counted
        asked = _requests(replica.template)
        total = add_amounts([total, {name: amount * counted for name, amount in asked.items()}])
    return {name: format_quantity(amount) for name, amount in total.items() if amount}


def _priority(facts: Facts, template: Object) -> int:
    return facts.observed.priorities.get(template["spec"].get("priorityClassName"), 0)


def _requests(template: Object) -> dict[str, Fraction]:
    """A limit without a request counts as request, as the API server defaults it."""
    stated = [container.get("resources") or {} for container in template["spec"]["containers"]]
    return add_amounts(
        _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})}) for resources in stated
    )


def _amounts(asked: Object) -> dict[str, Fraction]:
    """Invalid quantities are ignored here: the API server rejects the pods."""
    amounts = {}
    for name, value in asked.items():
        with suppress(QuantityError):
            amounts[name] = parse_quantity(value)
    return amounts


def _annotations(facts: Facts) -> dict[str, str]:
    """The job's annotations, which schedulers may read, without those of kubectl and the operator."""
    annotations = facts.job.metadata.annotations
    return {key: value for key, value in annotations.items() if not key.startswith(_NOT_COPIED)}
