"""Dead nodes: their pods are force-deleted after a time limit."""

import msgspec
import pytest

from tests.support.engine.planning import (
    STARTED,
    all_services,
    created,
    decide,
    deleted,
    events,
    standing_events,
    states,
)
from tests.support.objects.jobs import NOW, JobBuilder, PodBuilder, at
from trainwright.engine import Delete, Patch, Settings, Transition
from trainwright.objects import Object
from trainwright.objects.kinds.nodes import Node
from trainwright.objects.resources import PODS
from trainwright.objects.times import format_time

SECONDS = "trainwright.dev/dead-node-seconds"
SINCE = "trainwright.dev/node-gone-since"
SERVICES = all_services(2, master=False)


def job(seconds: str | None = "60", *, policy: str = "OnFailure", **run_policy: object) -> JobBuilder:
    builder = JobBuilder().workers(2, policy=policy).run_policy(**run_policy).status(STARTED)
    return builder if seconds is None else builder.annotation(SECONDS, seconds)


def on(node: str, pod: PodBuilder) -> PodBuilder:
    return pod.spec(nodeName=node)


def a_pod(index: int = 0) -> PodBuilder:
    return on("far", PodBuilder("Worker", index).running())


def fine(index: int = 1) -> PodBuilder:
    return on("near", PodBuilder("Worker", index).running())


def nodes(far: str | None = "Unknown", *, seconds_ago: float = 60) -> dict[str, Node]:
    """`far` is the status of that node's condition Ready; None: the node does not exist."""
    near = {"near": _node("True", 3600)}
    return near if far is None else {**near, "far": _node(far, seconds_ago)}


def _node(ready: str, seconds_ago: float) -> Node:
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": format_time(at(-seconds_ago))}
    return msgspec.convert({"metadata": {"name": "n"}, "status": {"conditions": [condition]}}, Node)


def removal(index: int = 0) -> Delete:
    name = f"digits-worker-{index}"
    return Delete(PODS, name, f"{name}-uid", force=True)


@pytest.mark.parametrize("readiness", ["Unknown", "False"])
@pytest.mark.parametrize(
    "pod",
    [
        PodBuilder().running(),
        PodBuilder(),
        PodBuilder().running().terminating(),
        PodBuilder().failed(1).terminating(),
        PodBuilder().succeeded(finished=at(-99)).terminating(),
    ],
)
def test_pod_on_a_dead_node_is_force_deleted(pod: PodBuilder, readiness: str) -> None:
    made = decide(job(backoffLimit=1), on("far", pod), fine(), services=SERVICES, nodes=nodes(readiness))
    assert removal() in made.deletes
    assert (
        "Warning",
        "DeadNode",
        "Pod digits-worker-0 is force-deleted because its node far has not been ready since 2026-11-15T03:59:00Z",
    ) in events(made)


def test_rank_of_a_force_deleted_pod_is_created_again_and_not_counted() -> None:
    first = decide(job(backoffLimit=0), a_pod(), fine(), services=SERVICES, nodes=nodes())
    assert (first.deletes, first.requeue_at) == ((removal(),), None)
    assert first.transitions == ()
    second = decide(job(backoffLimit=0).status(first.status), fine(), services=SERVICES, nodes=nodes())
    assert created(second) == ["digits-worker-0"]
    assert second.status is not None
    assert "restarts" not in second.status


def test_pod_is_kept_before_the_limit_and_the_job_is_requeued_for_it() -> None:
    made = decide(job(), a_pod(), fine(), services=SERVICES, nodes=nodes(seconds_ago=59))
    assert (made.deletes, made.requeue_at) == ((), at(1))


@pytest.mark.parametrize(("deadline", "first"), [(30, 30), (90, 60)])
def test_job_is_requeued_for_the_earliest_of_several_limits(deadline: int, first: int) -> None:
    builder = job(activeDeadlineSeconds=deadline)
    made = decide(builder, a_pod(), fine(), services=SERVICES, nodes=nodes(seconds_ago=0))
    assert made.requeue_at == at(first)


@pytest.mark.parametrize("seconds_ago", [0, 60, 10_000])
def test_pod_on_a_ready_node_is_never_deleted(seconds_ago: float) -> None:
    for pod in (a_pod(), a_pod().terminating()):
        made = decide(job(), pod, fine(), services=SERVICES, nodes=nodes("True", seconds_ago=seconds_ago))
        assert (made.deletes, made.patches, made.requeue_at) == ((), (), None)


def test_finished_and_unscheduled_pods_need_no_node() -> None:
    ended = on("far", PodBuilder("Worker", 0).succeeded())
    made = decide(job(), ended, PodBuilder("Worker", 1), services=SERVICES, nodes=nodes())
    assert (made.deletes, made.patches) == ((), ())


def test_time_of_the_deletion_of_a_node_is_kept_in_an_annotation_of_its_pods() -> None:
    made = decide(job(), a_pod(), fine(), services=SERVICES, nodes=nodes(None))
    note = {"metadata": {"annotations": {SINCE: "2026-11-15T04:00:00Z"}}}
    assert made.patches == (Patch(PODS, "digits-worker-0", "digits-worker-0-uid", note),)
    assert (made.deletes, made.requeue_at) == ((), at(60))


@pytest.mark.parametrize(("now", "removed"), [(at(59), False), (at(60), True)])
def test_deleted_node_is_dead_after_the_same_time(now: object, removed: bool) -> None:
    noted = a_pod().annotation(SINCE, format_time(NOW))
    made = decide(job(), noted, fine(), services=SERVICES, nodes=nodes(None), now=at(60) if removed else at(59))
    assert (removal() in made.deletes) is removed
    assert made.patches == ()
    if removed:
        assert events(made)[-1] == (
            "Warning",
            "DeadNode",
            "Pod digits-worker-0 is force-deleted because its node far was deleted",
        )
    else:
        assert made.requeue_at == at(60)


def test_annotation_is_removed_when_the_node_returns() -> None:
    noted = a_pod().annotation(SINCE, format_time(at(-59)))
    made = decide(job(), noted, fine(), services=SERVICES, nodes=nodes("True"))
    removed = {"metadata": {"annotations": {SINCE: None}}}
    assert made.patches == (Patch(PODS, "digits-worker-0", "digits-worker-0-uid", removed),)
    assert made.deletes == ()


def test_malformed_annotation_is_replaced() -> None:
    made = decide(job(), a_pod().annotation(SINCE, "yesterday"), services=SERVICES, nodes=nodes(None))
    assert len(made.patches) == 1
    assert not any(delete.force for delete in made.deletes)


def test_unready_node_without_any_time_is_not_dead() -> None:
    silent = {"far": msgspec.convert({"metadata": {"name": "far"}}, Node)}
    assert decide(job(), a_pod(), services=SERVICES, nodes=silent).deletes == ()


@pytest.mark.parametrize(
    ("finalizers", "named"),
    [(["a.io/x"], "a.io/x"), (["a.io/x", "a.io/y"], "a.io/x, a.io/y"), ([], "its finalizers")],
)
def test_pod_with_finalizers_is_reported_and_not_deleted_again(finalizers: list[str], named: str) -> None:
    held = a_pod().terminating(grace=0).metadata(finalizers=finalizers)
    made = decide(job(), held, fine(), services=SERVICES, nodes=nodes())
    assert made.deletes == ()
    message = f"Pod digits-worker-0 on the dead node far cannot be deleted because of {named}: remove them"
    assert standing_events(made) == [("DeadNode", message)]


def test_surplus_pods_on_dead_nodes_are_force_deleted() -> None:
    made = decide(job(), fine(0), fine(1), a_pod(7).terminating(), services=SERVICES, nodes=nodes())
    assert made.deletes == (removal(7),)


def test_pods_of_a_suspended_job_on_dead_nodes_are_force_deleted() -> None:
    made = decide(job().suspend(), a_pod().terminating(), fine(), nodes=nodes())
    assert removal() in made.deletes
    assert deleted(made) == ["digits-worker-1", "digits-worker-0"]


def test_pods_of_a_finished_job_on_dead_nodes_are_kept() -> None:
    late = job(activeDeadlineSeconds=0, cleanPodPolicy="All")
    made = decide(late, a_pod().terminating(), services=SERVICES, nodes=nodes())
    assert states(made)[-1] == ("Failed", "True")
    assert not any(delete.force for delete in made.deletes)
    assert [event for event in events(made) if event[1] == "DeadNode"] == []


def test_dead_node_restarts_the_group_without_being_counted() -> None:
    builder = job(backoffLimit=0).annotation("trainwright.dev/restart-scope", "group")
    made = decide(builder, a_pod(), fine(), services=SERVICES, nodes=nodes())
    assert set(made.deletes) == {removal(), Delete(PODS, "digits-worker-1", "digits-worker-1-uid")}
    assert created(made) == []
    assert made.status is not None
    assert "restarts" not in made.status
    assert made.status["replacedPods"] == ["digits-worker-0-uid"]
    assert made.transitions == (Transition.RESTARTED,)
    assert states(made)[-1] == ("Restarting", "True")


@pytest.mark.parametrize(
    ("far", "counts"), [("Unknown", False), ("False", False), (None, False), ("True", True)], ids=str
)
def test_failure_in_a_group_with_an_unreachable_peer_is_not_counted(far: str | None, counts: bool) -> None:
    """Its peers fail long before the node is dead."""
    builder = job(backoffLimit=5).annotation("trainwright.dev/restart-scope", "group")
    failed = on("near", PodBuilder("Worker", 1).failed(1))
    made = decide(builder, a_pod(), failed, services=SERVICES, nodes=nodes(far, seconds_ago=1))
    assert states(made)[-1] == ("Restarting", "True")
    assert made.status is not None
    assert made.status.get("restarts", {}) == ({"Worker": 1} if counts else {})
    blind = decide(builder, a_pod(), failed, services=SERVICES)
    assert blind.status is not None
    assert blind.status["restarts"] == {"Worker": 1}


@pytest.mark.parametrize(
    ("seconds", "for_all", "expected"),
    [(None, None, None), (None, 60, 60), ("30", 60, 30), ("off", 60, None), ("30", None, 30), ("soon", 60, 60)],
)
def test_annotation_overrides_the_operators_flag(
    seconds: str | None, for_all: int | None, expected: int | None
) -> None:
    settings = Settings(dead_node_seconds=for_all)
    made = decide(job(seconds), a_pod(), fine(), services=SERVICES, nodes=nodes(seconds_ago=0), settings=settings)
    assert made.requeue_at == (None if expected is None else at(expected))


def test_missing_permission_for_nodes_is_reported() -> None:
    message = (
        "Pods on dead nodes cannot be replaced: the operator is not allowed to list and watch nodes; add these verbs "
        "to its ClusterRole"
    )
    assert standing_events(decide(job(), a_pod(), services=SERVICES)) == [("NodesNotVisible", message)]
    assert standing_events(decide(job(), services=SERVICES)) == [], "no pod has a node yet"
    assert standing_events(decide(job(None), a_pod(), services=SERVICES)) == [], "it is switched off"


def test_patch_keeps_other_annotations() -> None:
    """The patch has only one annotation."""
    made = decide(job(), a_pod().annotation("mine", "1"), services=SERVICES, nodes=nodes(None))
    body: Object = made.patches[0].body
    assert list(body["metadata"]["annotations"]) == [SINCE]


def test_dead_node_ends_the_back_off_of_a_group() -> None:
    builder = job().annotation("trainwright.dev/restart-scope", "group")
    builder.status({**STARTED, "restarts": {"Worker": 50}})
    failed = on("near", PodBuilder("Worker", 1).failed(1))
    assert deleted(decide(builder, fine(0), failed, services=SERVICES, nodes=nodes())) == []
    made = decide(builder, a_pod(), failed, services=SERVICES, nodes=nodes())
    assert sorted(deleted(made)) == ["digits-worker-0", "digits-worker-1"]
    assert standing_events(made) == []
