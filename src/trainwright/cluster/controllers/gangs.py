"""Gang scheduling: all pods of a PodGroup start, or none.

PodGroups are those of volcano, or those of the coscheduling plugin under any other scheduler name, and so are the
messages. Decisions are pure functions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import msgspec

from trainwright.cluster.controllers.scheduler_filters import (
    SHARED_RESOURCES,
    Bind,
    Claim,
    SchedulableNode,
    SchedulablePod,
    Unschedulable,
    Usage,
    pod_usage,
    schedule,
)
from trainwright.objects import Object
from trainwright.objects.kinds.gangs import GROUP_LABEL, VOLCANO_GROUP_ANNOTATION, GangScheduler
from trainwright.objects.metadata import ObjectMeta, View
from trainwright.objects.quantities import QuantityError, add_amounts, parse_amounts


class PodGroupSpec(View, frozen=True):
    min_member: int = 0
    min_resources: dict[str, object] = msgspec.field(default_factory=dict)


class PodGroup(View, frozen=True):
    metadata: ObjectMeta
    spec: PodGroupSpec = PodGroupSpec()
    status: dict[str, object] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Members:
    """The pods of a group. `placed` have a node or get one; those that failed do not count."""

    pending: Sequence[SchedulablePod]
    placed: int

    @property
    def total(self) -> int:
        return len(self.pending) + self.placed


def group_of(gang: GangScheduler, pod: SchedulablePod) -> str | None:
    """The NAMESPACE/NAME of the pod's group; None if another scheduler places the pod, or without a group."""
    if pod.spec.scheduler_name != gang.scheduler:
        return None
    metadata = pod.metadata
    name = metadata.annotations.get(VOLCANO_GROUP_ANNOTATION) if gang.is_volcano else metadata.labels.get(GROUP_LABEL)
    return f"{metadata.namespace}/{name}" if name else None


def schedule_gang(
    gang: GangScheduler,
    group: PodGroup,
    members: Members,
    *,
    nodes: Sequence[SchedulableNode],
    used: Mapping[str, Usage],
    claims: Mapping[str, Claim],
) -> dict[str, Bind] | dict[str, Unschedulable]:
    """By the name of each pending pod: its node, or why the group has to wait."""
    least = group.spec.min_member
    totals = dict(used)
    bindings: dict[str, Bind] = {}
    problems: dict[str, Unschedulable] = {}
    for pod in members.pending:
        decision = schedule(pod, nodes=nodes, used=totals, claims=claims)
        if isinstance(decision, Bind):
            bindings[pod.metadata.name] = decision
            totals[decision.node] = totals.get(decision.node, Usage()) + pod_usage(pod)
        else:
            problems[pod.metadata.name] = decision
    if members.placed + len(bindings) >= least:
        return bindings
    return {pod.metadata.name: _waiting(gang, group, members, len(bindings), problems, pod) for pod in members.pending}


def _waiting(
    gang: GangScheduler,
    group: PodGroup,
    members: Members,
    placeable: int,
    problems: Mapping[str, Unschedulable],
    pod: SchedulablePod,
) -> Unschedulable:
    least, pending = group.spec.min_member, len(members.pending)
    first = problems.get(pod.metadata.name) or next(iter(problems.values()), None)
    if gang.is_volcano:
        states = {"Unschedulable": pending - placeable, "Schedulable": placeable}
        counted = ", ".join(f"{count} {name}" for name, count in states.items() if count)
        text = f"pod group is not ready, {pending} Pending, {least} minAvailable; Pending: {counted}"
        message = f"{pending}/{members.total} tasks in gang unschedulable: {text}"
    elif members.total < least:
        message = (
            f"pre-filter pod {pod.metadata.name} cannot find enough sibling pods, current pods number: "
            f"{members.total}, minMember of group: {least}"
        )
    else:
        name = next(iter(problems), pod.metadata.name)
        message = (
            f"PodGroup {group.metadata.namespaced_name} gets rejected due to Pod({name}) is unschedulable even after "
            "PostFilter"
        )
    return Unschedulable("Unschedulable", message, first.text if first is not None else "")


def group_status(
    gang: GangScheduler, group: PodGroup, members: Members, running: int, nodes: Sequence[SchedulableNode]
) -> Object:
    """The fields of the group's status that depend on its pods."""
    is_placed = members.placed >= group.spec.min_member and members.placed > 0
    if gang.is_volcano:
        waiting = "Inqueue" if _can_ever_fit(group, nodes) else "Pending"
        return {"phase": "Running" if is_placed else waiting, **({"running": running} if running else {})}
    phase = "Running" if is_placed and running >= group.spec.min_member else "Scheduled" if is_placed else "Scheduling"
    if not members.total:
        phase = "Pending"
    return {"phase": phase, **({"running": running} if running else {})}


def _can_ever_fit(group: PodGroup, nodes: Sequence[SchedulableNode]) -> bool:
    """Whether the nodes have the group's minResources at all; the processors and the memory can be shared."""
    try:
        wanted = parse_amounts(group.spec.min_resources)
    except QuantityError:
        return True
    have = add_amounts(parse_amounts(node.status.allocatable) for node in nodes)
    return all(amount <= have.get(name, Fraction(0)) for name, amount in wanted.items() if name not in SHARED_RESOURCES)


def pod_group_crd(gang: GangScheduler) -> Object:
    """The CustomResourceDefinition, with the names and columns of the scheduler's own."""
    resource = gang.resource
    shorts = ["pg", "podgroup-v1beta1"] if gang.is_volcano else ["pg", "pgs"]
    counts = {"type": "integer", "format": "int32"}
    spec = {
        "type": "object",
        "properties": {
            "minMember": counts,
            "minResources": {
                "type": "object",
                "additionalProperties": {
                    "x-kubernetes-int-or-string": True,
                    "anyOf": [{"type": "integer"}, {"type": "string"}],
                },
            },
        },
        "x-kubernetes-preserve-unknown-fields": True,
    }
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": resource.qualified_plural,
            "annotations": {
                "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"
            },
        },
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {
                "kind": "PodGroup",
                "listKind": "PodGroupList",
                "plural": "podgroups",
                "singular": "podgroup",
                "shortNames": shorts,
            },
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
                    "additionalPrinterColumns": _columns(volcano=gang.is_volcano),
                }
            ],
        },
    }


def _columns(*, volcano: bool) -> list[Object]:
    members, running = ".spec.minMember", ".status.running"
    if volcano:
        return [
            {"name": "STATUS", "type": "string", "jsonPath": ".status.phase"},
            {"name": "minMember", "type": "integer", "jsonPath": members},
            {"name": "RUNNINGS", "type": "integer", "jsonPath": running},
            {"name": "AGE", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            {"name": "QUEUE", "type": "string", "jsonPath": ".spec.queue", "priority": 1},
        ]
    return [
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        {"name": "MinMember", "type": "integer", "jsonPath": members},
        {"name": "Running", "type": "integer", "jsonPath": running},
        {"name": "Succeeded", "type": "integer", "jsonPath": ".status.succeeded"},
        {"name": "Failed", "type": "integer", "jsonPath": ".status.failed"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
