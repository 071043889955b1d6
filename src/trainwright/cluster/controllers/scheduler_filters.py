"""The filters of kube-scheduler as pure functions, with its messages.

One rule is softer than upstream's: CPU and memory may be overcommitted. On one machine a job that trains slowly is
better than one that never starts. An event of the pod reports it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import msgspec

from trainwright.cluster.controllers.persistentvolume_binding import PodVolume, claim_names
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.objects.kinds.pods import PodAddressStatus
from trainwright.objects.metadata import ObjectMeta, View
from trainwright.objects.quantities import (
    SIDECAR,
    Amounts,
    QuantityError,
    add_amounts,
    format_quantity,
    parse_amounts,
    peak_amounts,
)

SHARED_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
"""These may be overcommitted; all others (GPUs, pods) may not."""

DEFAULT_SCHEDULER = "default-scheduler"
SCHEDULING_GATED = "SchedulingGated"

_SLOT = "pods"
_ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 - compared with, never bound
_NO_FREE_PORTS = "node(s) didn't have free ports for the requested pod ports"


class Requirements(View, frozen=True):
    requests: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None


class HostPort(View, frozen=True):
    """A port of a container; it takes a port of the node if `host_port` is not 0."""

    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"

    def conflicts_with(self, other: "HostPort") -> bool:
        addresses = {self.host_ip or _ALL_ADDRESSES, other.host_ip or _ALL_ADDRESSES}
        same_port = (self.host_port, self.protocol) == (other.host_port, other.protocol)
        return same_port and (len(addresses) == 1 or _ALL_ADDRESSES in addresses)


class Container(View, frozen=True):
    name: str = ""
    resources: Requirements = Requirements()
    restart_policy: str = ""
    ports: tuple[HostPort, ...] = ()


class Toleration(View, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Taint(View, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class Gate(View, frozen=True):
    name: str = ""


class SchedulablePodSpec(View, frozen=True):
    node_name: str = ""
    scheduler_name: str = DEFAULT_SCHEDULER
    scheduling_gates: tuple[Gate, ...] = ()
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: dict[str, Any] | None = None
    tolerations: tuple[Toleration, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: dict[str, Any] | None = None
    volumes: tuple[PodVolume, ...] = ()


class SchedulablePodStatus(PodAddressStatus, frozen=True):
    conditions: tuple[dict[str, Any], ...] = ()


class SchedulablePod(View, frozen=True):
    metadata: ObjectMeta
    spec: SchedulablePodSpec = SchedulablePodSpec()
    status: SchedulablePodStatus = SchedulablePodStatus()

    @property
    def is_pending(self) -> bool:
        return not self.spec.node_name and not self.finished and not self.metadata.terminating

    @property
    def finished(self) -> bool:
        return self.status.finished


class NodeCondition(View, frozen=True):
    type: str = ""
    status: str = ""


class NodeSpec(View, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(View, frozen=True):
    allocatable: dict[str, Any] = msgspec.field(default_factory=dict)
    conditions: tuple[NodeCondition, ...] = ()


class SchedulableNode(View, frozen=True):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ClaimStatus(View, frozen=True):
    phase: str = "Pending"


class Claim(View, frozen=True):
    metadata: ObjectMeta
    status: ClaimStatus = ClaimStatus()


@dataclass(frozen=True, slots=True)
class PlacementWarning:
    """A Warning event about the placement of a pod."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Bind:
    """The pod is bound to `node`."""

    node: str
    warnings: tuple[PlacementWarning, ...] = ()


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """The pod stays pending; its PodScheduled condition shows reason and message."""

    reason: str
    message: str
    """kube-scheduler's."""
    advice: str = ""
    """Which object is missing, and what to do."""

    @property
    def text(self) -> str:
        return f"{self.message} {self.advice}" if self.advice else self.message


@dataclass(frozen=True, slots=True)
class Shortage:
    """A resource that the pods of a node, including this one, request more of than is allocatable."""

    wanted: Fraction
    total: Fraction
    allocatable: Fraction


@dataclass(frozen=True, slots=True)
class Usage:
    """What pods use of a node."""

    amounts: Amounts = field(default_factory=dict)
    host_ports: tuple[HostPort, ...] = ()

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(add_amounts([self.amounts, other.amounts]), self.host_ports + other.host_ports)

    def __sub__(self, other: "Usage") -> "Usage":
        released = {name: -amount for name, amount in other.amounts.items()}
        ports = list(self.host_ports)
        for port in other.host_ports:
            ports.remove(port)
        return Usage(add_amounts([self.amounts, released]), tuple(ports))


class NodeUsage:
    """The resources and ports that the pods of each node request, as sums."""

    def __init__(self) -> None:
        self._pods: dict[ObjectKey, tuple[str, Usage]] = {}
        self._totals: dict[str, Usage] = {}

    @property
    def totals(self) -> Mapping[str, Usage]:
        """By node."""
        return self._totals

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._pods

    def add(self, key: ObjectKey, node: str, pod: SchedulablePod) -> None:
        """Adds the pod to the node, and removes it from any other."""
        self.remove(key)
        try:
            usage = pod_usage(pod)
        except QuantityError:
            # A pod with spec.nodeName was not checked by the scheduler. It must not keep others from starting.
            usage = Usage()
        self._pods[key] = (node, usage)
        self._totals[node] = self._totals.get(node, Usage()) + usage

    def remove(self, key: ObjectKey) -> None:
        if found := self._pods.pop(key, None):
            node, usage = found
            self._totals[node] -= usage


def schedule(
    pod: SchedulablePod,
    *,
    nodes: Sequence[SchedulableNode],
    used: Mapping[str, Usage],
    claims: Mapping[str, Claim],
) -> Bind | Unschedulable:
    """Chooses a node. `used` is by node, `claims` are those of the pod's namespace."""
    if pod.spec.scheduling_gates:
        return Unschedulable(SCHEDULING_GATED, "Scheduling is blocked due to non-empty scheduling gates")
    if not nodes:
        return Unschedulable("Unschedulable", "no nodes available to schedule pods")
    try:
        wanted = pod_usage(pod)
    except QuantityError as error:
        return Unschedulable("Unschedulable", f"resources of pod {pod.metadata.name}: {error}")
    if problem := _claim_problem(pod, claims):
        return _fit_error(len(nodes), [problem[0]], unresolvable=len(nodes), advice=problem[1])
    problems: dict[str, int] = {}
    unresolvable, advice = 0, ""
    for node in nodes:
        there = used.get(node.metadata.name, Usage())
        short = shortages(wanted.amounts, parse_amounts(node.status.allocatable), there.amounts)
        taken = [port for port in wanted.host_ports if any(port.conflicts_with(other) for other in there.host_ports)]
        found, preemptible = _node_problems(pod, node, short, taken)
        if not found:
            return Bind(node.metadata.name, _warnings(pod, node, short))
        unresolvable += not preemptible
        advice = _port_advice(found, taken) or _shortage_advice(found, short) or advice
        for text in found:
            problems[text] = problems.get(text, 0) + 1
    lines = sorted(f"{count} {text}" for text, count in problems.items())
    return _fit_error(len(nodes), lines, unresolvable=unresolvable, advice=advice)


def pod_usage(pod: SchedulablePod) -> Usage:
    """The requests of the pod, one of the node's pods, and its host ports."""
    sidecars = (container for container in pod.spec.init_containers if container.restart_policy == SIDECAR)
    ports = [port for container in (*pod.spec.containers, *sidecars) for port in container.ports if port.host_port > 0]
    return Usage({**pod_requests(pod), _SLOT: Fraction(1)}, tuple(ports))


def pod_requests(pod: SchedulablePod) -> Amounts:
    """What the pod requests at once, plus overhead."""
    inits = [(container.restart_policy, _requests(container)) for container in pod.spec.init_containers]
    return add_amounts(
        [peak_amounts(map(_requests, pod.spec.containers), inits), parse_amounts(pod.spec.overhead or {})]
    )


def _requests(container: Container) -> Amounts:
    """A limit without a request is the request, as kube-apiserver defaults it."""
    return parse_amounts({**(container.resources.limits or {}), **(container.resources.requests or {})})


def _claim_problem(pod: SchedulablePod, claims: Mapping[str, Claim]) -> tuple[str, str] | None:
    """The message and the advice."""
    for name in claim_names(pod.metadata.name, pod.spec.volumes):
        claim = claims.get(name)
        if claim is None:
            advice = f"Create the claim in namespace {pod.metadata.namespace}, or correct claimName."
            return f'persistentvolumeclaim "{name}" not found', advice
        if claim.metadata.terminating:
            return f'persistentvolumeclaim "{name}" is being deleted', "Create it again when it is gone."
        if claim.status.phase == "Lost":
            advice = "Delete the claim and create it again."
            return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume', advice
        if claim.status.phase != "Bound":
            advice = f'persistentvolumeclaim "{name}" is not bound yet: its events say what it waits for.'
            return "pod has unbound immediate PersistentVolumeClaims", advice
    return None


def _node_problems(
    pod: SchedulablePod, node: SchedulableNode, short: Mapping[str, Shortage], taken: Sequence[HostPort]
) -> tuple[list[str], bool]:
    """The messages of the first filter that fails, as in kube-scheduler, and whether preemption could help."""
    cordon = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
    if node.spec.unschedulable and not _tolerates(pod, cordon):
        return ["node(s) were unschedulable"], False
    for taint in _taints(node):
        if not _tolerates(pod, taint):
            return [f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"], False
    if not _selects(pod, node):
        return ["node(s) didn't match Pod's node affinity/selector"], False
    if taken:
        return [_NO_FREE_PORTS], True
    strict = {name: shortage for name, shortage in short.items() if name not in SHARED_RESOURCES}
    problems = ["Too many pods" if name == _SLOT else f"Insufficient {name}" for name in strict]
    return problems, all(shortage.wanted <= shortage.allocatable for shortage in strict.values())


def accepts_daemon(pod: SchedulablePod, node: SchedulableNode) -> bool:
    """Whether a DaemonSet wants a pod on this node; one that is not ready or cordoned counts."""
    taints = [taint for taint in node.spec.taints if taint.effect in {"NoSchedule", "NoExecute"}]
    return _selects(pod, node) and all(_tolerates(pod, taint) for taint in taints)


def _port_advice(problems: Sequence[str], taken: Sequence[HostPort]) -> str:
    if _NO_FREE_PORTS not in problems:
        return ""
    numbers = ", ".join(dict.fromkeys(f"{port.host_port}/{port.protocol}" for port in taken))
    return (
        f"Another pod of the node has {numbers}, by hostPort or hostNetwork: the pod starts when that one has ended. "
        "Without both fields every pod has its own ports."
    )


def _shortage_advice(problems: Sequence[str], short: Mapping[str, Shortage]) -> str:
    """For the first resource that a node has too little of."""
    name = next((name for name in short if f"Insufficient {name}" in problems), None)
    if name is None:
        return ""
    shortage = short[name]
    if not shortage.allocatable:
        return (
            f"No node has {name}: remove it from resources.limits and resources.requests, or select a cluster that has "
            "it with --context."
        )
    if shortage.wanted > shortage.allocatable:
        return f"The pod requests {_number(shortage.wanted)} {name}, the node has {_number(shortage.allocatable)}."
    return f"Other pods use {name}: the pod starts when they have ended."


def _number(amount: Fraction) -> str:
    return f"{float(amount):g}"


def _taints(node: SchedulableNode) -> Iterable[Taint]:
    """The taints of the node, and the one that the node lifecycle controller adds if it is not ready."""
    yield from (taint for taint in node.spec.taints if taint.effect in {"NoSchedule", "NoExecute"})
    ready = next((condition.status for condition in node.status.conditions if condition.type == "Ready"), "Unknown")
    if ready != "True":
        key = "node.kubernetes.io/not-ready" if ready == "False" else "node.kubernetes.io/unreachable"
        yield Taint(key=key, effect="NoSchedule")


def _tolerates(pod: SchedulablePod, taint: Taint) -> bool:
    return any(_tolerated_by(taint, toleration) for toleration in pod.spec.tolerations)


def _tolerated_by(taint: Taint, toleration: Toleration) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def _selects(pod: SchedulablePod, node: SchedulableNode) -> bool:
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    required = ((pod.spec.affinity or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if not required:
        return True
    fields = {"metadata.name": node.metadata.name}
    return any(_term_matches(term, labels, fields) for term in required.get("nodeSelectorTerms") or ())


def _term_matches(term: Mapping[str, Any], labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    expressions, field_expressions = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not field_expressions:
        return False  # as upstream, an empty term matches nothing
    return all(_expression_matches(expression, labels) for expression in expressions) and all(
        _expression_matches(expression, fields) for expression in field_expressions
    )


def _expression_matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(expression["key"])
    values: Sequence[str] = expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as comparison:
            try:
                difference = int(value or "") - int(values[0])
            except (ValueError, IndexError):
                return False
            return difference > 0 if comparison == "Gt" else difference < 0
        case _:
            return False


def shortages(wanted: Amounts, allocatable: Amounts, used: Amounts) -> dict[str, Shortage]:
    """The resources that the node has too little of. The number of pods is not limited if `pods` is not in
    allocatable."""
    nothing = Fraction(0)
    return {
        name: Shortage(amount, total, limit)
        for name, amount in wanted.items()
        if amount and (name != _SLOT or name in allocatable)
        if (total := used.get(name, nothing) + amount) > (limit := allocatable.get(name, nothing))
    }


def _warnings(
    pod: SchedulablePod, node: SchedulableNode, short: Mapping[str, Shortage]
) -> tuple[PlacementWarning, ...]:
    return (*_overcommitment(node, short), *_ignored_scheduler(pod), *_ignored_affinity(pod))


def _overcommitment(node: SchedulableNode, short: Mapping[str, Shortage]) -> Iterable[PlacementWarning]:
    amounts = ", ".join(
        f"{format_quantity(shortage.total)} {name} of {format_quantity(shortage.allocatable)}"
        for name, shortage in sorted(short.items())
    )
    if amounts:
        text = (
            f"With this pod the pods on node {node.metadata.name} request {amounts}: they share the machine, and may "
            "be slow or run out of memory. Lower the requests, or run fewer pods at a time."
        )
        yield PlacementWarning("Overcommitted", text)


def _ignored_scheduler(pod: SchedulablePod) -> Iterable[PlacementWarning]:
    if pod.spec.scheduler_name not in {"", DEFAULT_SCHEDULER}:
        text = (
            f'spec.schedulerName "{pod.spec.scheduler_name}" does not run on this cluster: {DEFAULT_SCHEDULER} placed '
            "the pod, without that scheduler's rules (gangs, queues)."
        )
        yield PlacementWarning("UnknownScheduler", text)


def _ignored_affinity(pod: SchedulablePod) -> Iterable[PlacementWarning]:
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = (pod.spec.affinity or {}).get(kind) or {}
        if rules.get("requiredDuringSchedulingIgnoredDuringExecution"):
            text = f"spec.affinity.{kind} is not honoured: this cluster is one machine, so all pods share its node."
            yield PlacementWarning("IgnoredAffinity", text)


def _fit_error(nodes: int, problems: Sequence[str], *, unresolvable: int, advice: str = "") -> Unschedulable:
    """kube-scheduler's message. This cluster has no preemption, but the message includes its result."""
    outcome = []
    if nodes - unresolvable:
        outcome.append(f"{nodes - unresolvable} No preemption victims found for incoming pod.")
    if unresolvable:
        outcome.append(f"{unresolvable} Preemption is not helpful for scheduling.")
    available = f"0/{nodes} nodes are available: "
    message = f"{available}{', '.join(problems)}. preemption: {available}{' '.join(outcome)}"
    return Unschedulable("Unschedulable", message, advice)
