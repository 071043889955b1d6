"""Gang scheduling: a PodGroup tells the scheduler to start all pods of a job or none.

Which scheduler it is, the operator's flag says, for all jobs alike.
"""

from contextlib import suppress
from fractions import Fraction

from trainwright.api.types import SchedulingPolicy
from trainwright.engine.draft import Draft
from trainwright.engine.policies import companions
from trainwright.engine.settings import Gang
from trainwright.objects import Object
from trainwright.objects.quantities import QuantityError, add_amounts, format_quantity, parse_quantity

_POD_GROUP_OF_VOLCANO = "scheduling.k8s.io/group-name"
_TASK_OF_VOLCANO = "volcano.sh/task-spec"
_POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
_NOT_FOR_COPIES = ("kubectl.kubernetes.io/last-applied-configuration", "trainwright.dev/")
_UNDECIDED = ("", "Pending")


def keep(draft: Draft) -> None:
    """Keeps the PodGroup in line with the job."""
    gang = draft.settings.gang
    if gang is not None:
        companions.keep(draft, gang.resource, _spec(draft, gang), annotations=_annotations(draft))


def admits(draft: Draft) -> bool:
    """Whether pods may be created yet."""
    gang = draft.settings.gang
    if gang is None:
        return True
    group = companions.find(draft, gang.resource)
    if group is None or group.metadata.terminating:
        return False
    return not gang.is_volcano or group.status.get("phase", "") not in _UNDECIDED


def disband(draft: Draft) -> None:
    gang = draft.settings.gang
    if gang is not None and companions.remove(draft, gang.resource):
        draft.tell("Normal", "JobTerminated", "Job has been terminated. Deleting PodGroup")


def decorate(draft: Draft, role: str, pod: Object) -> None:
    """Marks a new pod as a member of the group; a scheduler that the user chose is kept."""
    gang = draft.settings.gang
    if gang is None:
        return
    if not pod["spec"].get("schedulerName"):
        pod["spec"]["schedulerName"] = gang.scheduler
    if gang.is_volcano:
        marks = {_POD_GROUP_OF_VOLCANO: draft.job.name, _TASK_OF_VOLCANO: role.lower()}
        pod["metadata"]["annotations"] = {**pod["metadata"].get("annotations", {}), **marks}
    else:
        pod["metadata"]["labels"][_POD_GROUP_LABEL] = draft.job.name
    if has_other_scheduler(draft, gang):
        draft.tell(
            "Warning",
            "SetPodTemplateSchedulerName",
            "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten",
        )


def has_other_scheduler(draft: Draft, gang: Gang) -> bool:
    chosen = {replica.template["spec"].get("schedulerName") for replica in draft.replicas.values()}
    return bool(chosen - {None, "", gang.scheduler})


def _spec(draft: Draft, gang: Gang) -> Object:
    policy = draft.job.run_policy.scheduling_policy or SchedulingPolicy()
    members = draft.job.total_replicas if policy.min_available is None else policy.min_available
    spec: Object = {"minMember": members}
    resources = _least_resources(draft, members) if policy.min_resources is None else policy.min_resources
    present = companions.find(draft, gang.resource)
    if resources or gang.is_volcano:
        # A patch keeps what it does not name, and the group would wait for what nobody asks for any more.
        asked_before = present.spec.get("minResources") if present else None
        spec["minResources"] = {**dict.fromkeys(asked_before or ()), **resources}
    if gang.is_volcano:
        # Volcano's queues may be changed by who runs the cluster, on the group itself.
        spec["queue"] = (present.spec.get("queue") if present else None) or policy.queue or "default"
        if policy.priority_class:
            spec["priorityClassName"] = policy.priority_class
    elif policy.schedule_timeout_seconds is not None:
        spec["scheduleTimeoutSeconds"] = policy.schedule_timeout_seconds
    return spec


def _least_resources(draft: Draft, members: int) -> Object:
    """What the first `members` pods ask for together, those of the highest priority first."""
    ordered = sorted(draft.replicas.values(), key=lambda replica: -_priority(draft, replica.template))
    total: dict[str, Fraction] = {}
    for replica in ordered:
        counted = min(replica.count, max(members, 0))
        members -= counted
        asked = _requests(replica.template)
        total = add_amounts([total, {name: amount * counted for name, amount in asked.items()}])
    return {name: format_quantity(amount) for name, amount in total.items() if amount}


def _priority(draft: Draft, template: Object) -> int:
    return draft.observed.priorities.get(template["spec"].get("priorityClassName"), 0)


def _requests(template: Object) -> dict[str, Fraction]:
    """Where a container names a limit alone, that is what it requests, as the API server would fill in."""
    resources = [container.get("resources") or {} for container in template["spec"]["containers"]]
    return add_amounts(_amounts({**(one.get("limits") or {}), **(one.get("requests") or {})}) for one in resources)


def _amounts(asked: Object) -> dict[str, Fraction]:
    """What is no quantity counts for nothing here: the API server refuses the pod for it, and says so."""
    amounts = {}
    for name, value in asked.items():
        with suppress(QuantityError):
            amounts[name] = parse_quantity(value)
    return amounts


def _annotations(draft: Draft) -> dict[str, str]:
    """The job's, as schedulers read some of them; not what other tools keep there for themselves."""
    annotations = draft.job.metadata.annotations
    return {key: value for key, value in annotations.items() if not key.startswith(_NOT_FOR_COPIES)}
