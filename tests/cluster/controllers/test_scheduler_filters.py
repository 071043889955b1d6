from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.controllers.scheduler_filters import (
    Bind,
    Claim,
    NodeUsage,
    SchedulableNode,
    SchedulablePod,
    Unschedulable,
    Usage,
    pod_requests,
    pod_usage,
    schedule,
)
from trainwright.kube.controller.object_key import ObjectKey

NOT_HELPFUL = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
NO_VICTIMS = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."


def pod(name: str = "p", *, requests: dict[str, Any] | None = None, **spec: Any) -> SchedulablePod:
    containers = [{"name": "main", "resources": {"requests": requests or {}}}]
    raw = {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"containers": containers, **spec}}
    return msgspec.convert(raw, SchedulablePod)


def node(
    *, ready: str = "True", allocatable: dict[str, Any] | None = None, labels: dict[str, str] | None = None, **spec: Any
) -> SchedulableNode:
    raw = {
        "metadata": {"name": "local", "labels": {"kubernetes.io/hostname": "local", "cores": "2", **(labels or {})}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "2", "memory": "4Gi", "pods": "110", **(allocatable or {})},
            "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}],
        },
    }
    return msgspec.convert(raw, SchedulableNode)


def claim(phase: str, **metadata: Any) -> dict[str, Claim]:
    return {
        "data": msgspec.convert({"metadata": {"name": "data", **metadata}, "status": {"phase": phase}}, Claim),
    }


def decide(
    wanted: SchedulablePod,
    on: SchedulableNode | None = None,
    *others: SchedulablePod,
    claims: dict[str, Claim] | None = None,
) -> Bind | Unschedulable:
    usage = NodeUsage()
    for other in others:
        usage.add(key(other.metadata.name), "local", other)
    return schedule(wanted, nodes=[on or node()], used=usage.totals, claims=claims or {})


def key(name: str) -> ObjectKey:
    return ObjectKey("Pod", "default", name)


def advice(decision: Bind | Unschedulable) -> str:
    assert isinstance(decision, Unschedulable)
    assert decision.text == f"{decision.message} {decision.advice}".strip()
    return decision.advice


def message(decision: Bind | Unschedulable) -> str:
    assert isinstance(decision, Unschedulable)
    return decision.message


def test_plain_pod_is_bound_without_warnings() -> None:
    assert decide(pod()) == Bind("local")


def test_without_a_node_pods_wait() -> None:
    assert schedule(pod(), nodes=[], used={}, claims={}) == Unschedulable(
        "Unschedulable", "no nodes available to schedule pods"
    )


def test_gates_hold_a_pod_back() -> None:
    gated = pod(schedulingGates=[{"name": "quota"}])
    assert decide(gated) == Unschedulable("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")


@pytest.mark.parametrize(
    ("on", "complaint"),
    [
        (node(unschedulable=True), "1 node(s) were unschedulable"),
        (node(ready="False"), "1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }"),
        (node(ready="Unknown"), "1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }"),
        (
            node(taints=[{"key": "team", "value": "vision", "effect": "NoSchedule"}]),
            "1 node(s) had untolerated taint {team: vision}",
        ),
    ],
)
def test_a_node_that_takes_no_pods_is_described_as_the_real_scheduler_does(on: SchedulableNode, complaint: str) -> None:
    assert message(decide(pod(), on)) == f"0/1 nodes are available: {complaint}. {NOT_HELPFUL}"


@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists"},
        {"key": "team", "operator": "Exists"},
        {"key": "team", "value": "vision"},
        {"key": "team", "operator": "Equal", "value": "vision", "effect": "NoSchedule"},
    ],
)
def test_tolerated_taint_is_ignored(toleration: dict[str, str]) -> None:
    tainted = node(taints=[{"key": "team", "value": "vision", "effect": "NoSchedule"}])
    assert decide(pod(tolerations=[toleration]), tainted) == Bind("local")


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "team", "value": "speech"},
        {"key": "other", "operator": "Exists"},
        {"key": "team", "operator": "Exists", "effect": "NoExecute"},
        {"value": "vision"},
    ],
)
def test_a_toleration_of_something_else_does_not_help(toleration: dict[str, str]) -> None:
    tainted = node(taints=[{"key": "team", "value": "vision", "effect": "NoSchedule"}])
    assert "untolerated taint" in message(decide(pod(tolerations=[toleration]), tainted))


def test_a_preference_against_the_node_does_not_matter_when_it_is_the_only_one() -> None:
    assert decide(pod(), node(taints=[{"key": "slow", "effect": "PreferNoSchedule"}])) == Bind("local")


def affinity(*expressions: dict[str, Any], fields: bool = False) -> dict[str, Any]:
    terms = [{"matchFields" if fields else "matchExpressions": list(expressions)}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({"nodeSelector": {"kubernetes.io/hostname": "local"}}, True),
        ({"nodeSelector": {"gpu": "a100"}}, False),
        ({"affinity": affinity({"key": "cores", "operator": "In", "values": ["1", "2"]})}, True),
        ({"affinity": affinity({"key": "cores", "operator": "NotIn", "values": ["2"]})}, False),
        ({"affinity": affinity({"key": "gpu", "operator": "NotIn", "values": ["a100"]})}, True),
        ({"affinity": affinity({"key": "gpu", "operator": "Exists"})}, False),
        ({"affinity": affinity({"key": "gpu", "operator": "DoesNotExist"})}, True),
        ({"affinity": affinity({"key": "cores", "operator": "Gt", "values": ["1"]})}, True),
        ({"affinity": affinity({"key": "cores", "operator": "Lt", "values": ["2"]})}, False),
        ({"affinity": affinity({"key": "gpu", "operator": "Gt", "values": ["1"]})}, False),
        ({"affinity": affinity()}, False),
        ({"affinity": affinity({"key": "metadata.name", "operator": "In", "values": ["local"]}, fields=True)}, True),
        ({"affinity": affinity({"key": "metadata.name", "operator": "In", "values": ["other"]}, fields=True)}, False),
        ({"affinity": {"nodeAffinity": {}}}, True),
    ],
)
def test_selectors_and_required_node_affinity_are_obeyed(spec: dict[str, Any], fits: bool) -> None:
    decision = decide(pod(**spec))
    if fits:
        assert decision == Bind("local")
    else:
        expected = f"0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. {NOT_HELPFUL}"
        assert message(decision) == expected


def test_gpus_are_never_overcommitted() -> None:
    machine = node(allocatable={"nvidia.com/gpu": "2"})
    one, two = pod("a", requests={"nvidia.com/gpu": "1"}), pod("b", requests={"nvidia.com/gpu": 2})
    assert decide(one, machine, pod("c", requests={"nvidia.com/gpu": 1})) == Bind("local")
    assert message(decide(two, machine, one)) == f"0/1 nodes are available: 1 Insufficient nvidia.com/gpu. {NO_VICTIMS}"
    # More than the machine has at all: no other pod's end would help.
    three = pod(requests={"nvidia.com/gpu": "3"})
    expected = f"0/1 nodes are available: 1 Insufficient nvidia.com/gpu. {NOT_HELPFUL}"
    assert message(decide(three, machine)) == expected
    assert message(decide(one, node())) == expected


def test_a_missing_resource_comes_with_what_to_do() -> None:
    machine = node(allocatable={"nvidia.com/gpu": "2"})
    one, two = pod("a", requests={"nvidia.com/gpu": "1"}), pod("b", requests={"nvidia.com/gpu": "2"})
    assert advice(decide(one)) == (
        "No node has nvidia.com/gpu: remove it from resources.limits and resources.requests, or select a cluster that "
        "has it with --context."
    )
    assert advice(decide(pod(requests={"nvidia.com/gpu": "3"}), machine)) == (
        "The pod requests 3 nvidia.com/gpu, the node has 2."
    )
    assert advice(decide(two, machine, one)) == "Other pods use nvidia.com/gpu: the pod starts when they have ended."
    assert advice(decide(pod(), node(unschedulable=True))) == ""


def test_a_gpu_that_is_only_limited_is_requested_as_well() -> None:
    limited = pod(containers=[{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}])
    assert "Insufficient nvidia.com/gpu" in message(decide(limited))


def test_cpu_and_memory_are_shared_with_a_warning_that_says_so() -> None:
    slow = pod("slow", requests={"cpu": "1500m", "memory": "3Gi"})
    assert decide(slow) == Bind("local")
    shared = decide(slow, node(), pod("other", requests={"cpu": 1, "memory": "2Gi"}))
    assert isinstance(shared, Bind)
    [caution] = shared.warnings
    assert caution.reason == "Overcommitted"
    assert "node local request 2500m cpu of 2, 5Gi memory of 4Gi" in caution.message


def test_a_full_node_takes_no_more_pods() -> None:
    full = node(allocatable={"pods": "1"})
    assert message(decide(pod(), full, pod("other"))) == f"0/1 nodes are available: 1 Too many pods. {NO_VICTIMS}"


def test_another_scheduler_and_required_pod_affinity_are_named_as_not_honoured() -> None:
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}
    decision = decide(pod(schedulerName="volcano", affinity=rules))
    assert isinstance(decision, Bind)
    assert [caution.reason for caution in decision.warnings] == ["UnknownScheduler", "IgnoredAffinity"]
    assert 'spec.schedulerName "volcano"' in decision.warnings[0].message
    assert "spec.affinity.podAntiAffinity" in decision.warnings[1].message


@pytest.mark.parametrize(
    ("claims", "complaint"),
    [
        ({}, 'persistentvolumeclaim "data" not found'),
        (claim("Pending"), "pod has unbound immediate PersistentVolumeClaims"),
        (claim("Lost"), 'persistentvolumeclaim "data" bound to non-existent persistentvolume'),
        (
            claim("Bound", deletionTimestamp="2026-11-15T04:00:00Z"),
            'persistentvolumeclaim "data" is being deleted',
        ),
    ],
)
def test_a_pod_waits_for_its_claims(claims: dict[str, Claim], complaint: str) -> None:
    user = pod(volumes=[{"name": "tmp", "emptyDir": {}}, {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    assert message(decide(user, claims=claims)) == f"0/1 nodes are available: {complaint}. {NOT_HELPFUL}"
    assert advice(decide(user, claims=claims))
    assert decide(user, claims=claim("Bound")) == Bind("local")


def test_a_quantity_that_cannot_be_read_keeps_only_its_own_pod_waiting() -> None:
    broken = pod("broken", requests={"cpu": "two"})
    assert message(decide(broken)).startswith("resources of pod broken: 'two' is not a quantity")
    assert decide(pod(), node(), broken) == Bind("local")


def test_init_containers_need_their_peak_and_sidecars_stay() -> None:
    def container(name: str, cpu: str, **more: str) -> dict[str, Any]:
        return {"name": name, "resources": {"requests": {"cpu": cpu}}, **more}

    both = pod(
        initContainers=[
            container("early", "3"),
            container("sidecar", "1", restartPolicy="Always"),
            container("late", "4"),
        ],
        containers=[container("a", "1"), container("b", "500m")],
        overhead={"cpu": "100m"},
    )
    assert pod_requests(both)["cpu"] * 10 == 51  # late (4) beside the sidecar (1), plus overhead


@given(st.lists(st.integers(min_value=0, max_value=4), max_size=8), st.integers(min_value=0, max_value=8))
def test_however_pods_come_the_gpus_that_are_handed_out_never_exceed_those_there_are(
    wanted: list[int], there: int
) -> None:
    machine = node(allocatable={"nvidia.com/gpu": str(there)})
    bound: list[SchedulablePod] = []
    for number, count in enumerate(wanted):
        candidate = pod(f"p{number}", requests={"nvidia.com/gpu": count})
        if isinstance(decide(candidate, machine, *bound), Bind):
            bound.append(candidate)
        else:
            assert sum(pod_requests(one)["nvidia.com/gpu"] for one in bound) + count > there
    assert sum(pod_requests(one)["nvidia.com/gpu"] for one in bound) <= there


def with_ports(name: str, *ports: dict[str, Any], sidecar: bool = False, **spec: Any) -> SchedulablePod:
    container = {"name": "c", "ports": [{"containerPort": 80, **port} for port in ports]}
    if sidecar:
        return pod(name, initContainers=[container | {"restartPolicy": "Always"}], **spec)
    return pod(name, containers=[container], **spec)


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ({"hostPort": 8080}, {"hostPort": 8080}, False),
        ({"hostPort": 8080}, {"hostPort": 8081}, True),
        ({"hostPort": 8080}, {"hostPort": 8080, "protocol": "UDP"}, True),
        ({"hostPort": 8080}, {"hostPort": 8080, "hostIP": "127.0.0.1"}, False),
        ({"hostPort": 8080, "hostIP": "0.0.0.0"}, {"hostPort": 8080, "hostIP": "127.0.0.1"}, False),  # noqa: S104
        ({"hostPort": 8080, "hostIP": "127.0.0.1"}, {"hostPort": 8080, "hostIP": "127.0.0.2"}, True),
        ({"hostPort": 8080, "hostIP": "127.0.0.1"}, {"hostPort": 8080, "hostIP": "127.0.0.1"}, False),
        ({}, {}, True),
    ],
)
def test_a_host_port_is_given_to_one_pod_of_the_node(
    one: dict[str, Any], other: dict[str, Any], *, together: bool
) -> None:
    decision = decide(with_ports("p", one), None, with_ports("q", other))
    assert isinstance(decision, Bind) == together
    if not together:
        complaint = "1 node(s) didn't have free ports for the requested pod ports"
        assert message(decision) == f"0/1 nodes are available: {complaint}. {NO_VICTIMS}"
        assert advice(decision) == (
            "Another pod of the node has 8080/TCP, by hostPort or hostNetwork: the pod starts when that one has ended. "
            "Without both fields every pod has its own ports."
        )


def test_host_ports_of_sidecars_count() -> None:
    sidecar = with_ports("q", {"hostPort": 8080}, sidecar=True)
    assert isinstance(decide(with_ports("p", {"hostPort": 8080}), None, sidecar), Unschedulable)


STEPS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "n1", "n2"]), st.integers(min_value=0, max_value=5)),
    max_size=30,
)


@given(STEPS)
def test_sums_stay_those_of_the_pods_that_are_there(steps: list[tuple[str, str, int]]) -> None:
    usage = NodeUsage()
    there: dict[str, tuple[str, SchedulablePod]] = {}
    for name, where, amount in steps:
        if where:
            ports = [{"containerPort": 1, "hostPort": amount}]
            containers = [{"name": "main", "resources": {"requests": {"cpu": f"{amount}00m"}}, "ports": ports}]
            there[name] = (where, pod(name, containers=containers))
            usage.add(key(name), *there[name])
        else:
            there.pop(name, None)
            usage.remove(key(name))
    assert all(key(name) in usage for name in there)
    for where in ("n1", "n2"):
        expected = sum((pod_usage(one) for at, one in there.values() if at == where), Usage())
        found = usage.totals.get(where, Usage())
        assert sorted(found.host_ports, key=str) == sorted(expected.host_ports, key=str)
        assert {name: found.amounts.get(name, 0) for name in ("cpu", "pods")} == {
            name: expected.amounts.get(name, 0) for name in ("cpu", "pods")
        }
