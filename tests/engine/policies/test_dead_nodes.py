"""Dead-node recovery: pods that nobody looks after any more are removed by force, after the time that was asked for."""

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
from trainwright.objects.nodes import Node
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
    """`far` is what the cluster says about that node's readiness; None: it does not exist."""
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
def test_a_pod_on_a_dead_node_is_removed_by_force(pod: PodBuilder, readiness: str) -> None:
    made = decide(job(backoffLimit=1), on("far", pod), fine(), services=SERVICES, nodes=nodes(readiness))
    assert removal() in made.deletes
    assert (
        "Warning",
        "DeadNode",
        "Pod digits-worker-0 is force-deleted because its node far has not been ready since 2026-11-15T03:59:00Z",
    ) in events(made)


def test_its_rank_is_filled_again_and_nothing_is_counted() -> None:
    first = decide(job(backoffLimit=0), a_pod(), fine(), services=SERVICES, nodes=nodes())
    assert (first.deletes, first.requeue_at) == ((removal(),), None)
    assert first.transitions == ()
    second = decide(job(backoffLimit=0).status(first.status), fine(), services=SERVICES, nodes=nodes())
    assert created(second) == ["digits-worker-0"]
    assert second.status is not None
    assert "restarts" not in second.status


def test_before_its_time_it_is_left_and_the_moment_is_known() -> None:
    made = decide(job(), a_pod(), fine(), services=SERVICES, nodes=nodes(seconds_ago=59))
    assert (made.deletes, made.requeue_at) == ((), at(1))


@pytest.mark.parametrize(("deadline", "first"), [(30, 30), (90, 60)])
def test_of_several_moments_the_earliest_is_the_one_to_wake_at(deadline: int, first: int) -> None:
    builder = job(activeDeadlineSeconds=deadline)
    made = decide(builder, a_pod(), fine(), services=SERVICES, nodes=nodes(seconds_ago=0))
    assert made.requeue_at == at(first)


@pytest.mark.parametrize("seconds_ago", [0, 60, 10_000])
def test_a_pod_on_a_node_that_is_ready_is_never_removed(seconds_ago: float) -> None:
    for pod in (a_pod(), a_pod().terminating()):
        made = decide(job(), pod, fine(), services=SERVICES, nodes=nodes("True", seconds_ago=seconds_ago))
        assert (made.deletes, made.patches, made.requeue_at) == ((), (), None)


def test_a_pod_that_has_ended_or_has_no_node_yet_needs_none() -> None:
    ended = on("far", PodBuilder("Worker", 0).succeeded())
    made = decide(job(), ended, PodBuilder("Worker", 1), services=SERVICES, nodes=nodes())
    assert (made.deletes, made.patches) == ((), ())


def test_since_when_a_node_does_not_exist_is_written_on_its_pods() -> None:
    made = decide(job(), a_pod(), fine(), services=SERVICES, nodes=nodes(None))
    note = {"metadata": {"annotations": {SINCE: "2026-11-15T04:00:00Z"}}}
    assert made.patches == (Patch(PODS, "digits-worker-0", "digits-worker-0-uid", note),)
    assert (made.deletes, made.requeue_at) == ((), at(60))


@pytest.mark.parametrize(("now", "removed"), [(at(59), False), (at(60), True)])
def test_a_node_that_stays_away_is_dead_after_the_same_time(now: object, removed: bool) -> None:
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


def test_a_node_that_comes_back_is_forgiven() -> None:
    noted = a_pod().annotation(SINCE, format_time(at(-59)))
    made = decide(job(), noted, fine(), services=SERVICES, nodes=nodes("True"))
    forgotten = {"metadata": {"annotations": {SINCE: None}}}
    assert made.patches == (Patch(PODS, "digits-worker-0", "digits-worker-0-uid", forgotten),)
    assert made.deletes == ()


def test_a_note_that_makes_no_sense_is_written_again() -> None:
    made = decide(job(), a_pod().annotation(SINCE, "yesterday"), services=SERVICES, nodes=nodes(None))
    assert len(made.patches) == 1
    assert not any(delete.force for delete in made.deletes)


def test_a_node_of_which_nobody_says_since_when_is_not_dead() -> None:
    silent = {"far": msgspec.convert({"metadata": {"name": "far"}}, Node)}
    assert decide(job(), a_pod(), services=SERVICES, nodes=silent).deletes == ()


@pytest.mark.parametrize(
    ("finalizers", "named"),
    [(["a.io/x"], "a.io/x"), (["a.io/x", "a.io/y"], "a.io/x, a.io/y"), ([], "its finalizers")],
)
def test_a_pod_that_its_finalizers_keep_is_reported_and_not_removed_again(finalizers: list[str], named: str) -> None:
    held = a_pod().terminating(grace=0).metadata(finalizers=finalizers)
    made = decide(job(), held, fine(), services=SERVICES, nodes=nodes())
    assert made.deletes == ()
    message = f"Pod digits-worker-0 on the dead node far cannot be deleted because of {named}: remove them"
    assert standing_events(made) == [("DeadNode", message)]


def test_surplus_pods_do_not_stay_on_dead_nodes_either() -> None:
    made = decide(job(), fine(0), fine(1), a_pod(7).terminating(), services=SERVICES, nodes=nodes())
    assert made.deletes == (removal(7),)


def test_a_suspended_job_gets_rid_of_them_too() -> None:
    made = decide(job().suspend(), a_pod().terminating(), fine(), nodes=nodes())
    assert removal() in made.deletes
    assert deleted(made) == ["digits-worker-1", "digits-worker-0"]


def test_a_job_that_has_finished_leaves_them_to_the_cluster() -> None:
    late = job(activeDeadlineSeconds=0, cleanPodPolicy="All")
    made = decide(late, a_pod().terminating(), services=SERVICES, nodes=nodes())
    assert states(made)[-1] == ("Failed", "True")
    assert not any(delete.force for delete in made.deletes)
    assert [event for event in events(made) if event[1] == "DeadNode"] == []


def test_in_a_group_that_restarts_as_one_a_dead_node_restarts_all_uncounted() -> None:
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
    ("far", "to_blame"), [("Unknown", False), ("False", False), (None, False), ("True", True)], ids=str
)
def test_in_such_a_group_nobody_is_to_blame_who_fails_while_a_peer_is_cut_off(far: str | None, to_blame: bool) -> None:
    """The collective breaks long before the node counts as dead."""
    builder = job(backoffLimit=5).annotation("trainwright.dev/restart-scope", "group")
    failed = on("near", PodBuilder("Worker", 1).failed(1))
    made = decide(builder, a_pod(), failed, services=SERVICES, nodes=nodes(far, seconds_ago=1))
    assert states(made)[-1] == ("Restarting", "True")
    assert made.status is not None
    assert made.status.get("restarts", {}) == ({"Worker": 1} if to_blame else {})
    blind = decide(builder, a_pod(), failed, services=SERVICES)
    assert blind.status is not None
    assert blind.status["restarts"] == {"Worker": 1}


@pytest.mark.parametrize(
    ("seconds", "for_all", "expected"),
    [(None, None, None), (None, 60, 60), ("30", 60, 30), ("off", 60, None), ("30", None, 30), ("soon", 60, 60)],
)
def test_the_annotation_wins_over_the_operators_flag(
    seconds: str | None, for_all: int | None, expected: int | None
) -> None:
    settings = Settings(dead_node_seconds=for_all)
    made = decide(job(seconds), a_pod(), fine(), services=SERVICES, nodes=nodes(seconds_ago=0), settings=settings)
    assert made.requeue_at == (None if expected is None else at(expected))


def test_an_operator_that_may_not_see_nodes_says_so() -> None:
    message = (
        "Pods on dead nodes cannot be replaced: the operator is not allowed to list and watch nodes; add these verbs "
        "to its ClusterRole"
    )
    assert standing_events(decide(job(), a_pod(), services=SERVICES)) == [("NodesNotVisible", message)]
    assert standing_events(decide(job(), services=SERVICES)) == [], "nobody needs a node yet"
    assert standing_events(decide(job(None), a_pod(), services=SERVICES)) == [], "nobody asked"


def test_notes_about_other_things_are_not_lost() -> None:
    """The patch names one annotation alone."""
    made = decide(job(), a_pod().annotation("mine", "1"), services=SERVICES, nodes=nodes(None))
    body: Object = made.patches[0].body
    assert list(body["metadata"]["annotations"]) == [SINCE]


def test_a_dead_node_ends_the_pause_of_a_group_that_fails_again_and_again() -> None:
    builder = job().annotation("trainwright.dev/restart-scope", "group")
    builder.status({**STARTED, "restarts": {"Worker": 50}})
    failed = on("near", PodBuilder("Worker", 1).failed(1))
    assert deleted(decide(builder, fine(0), failed, services=SERVICES, nodes=nodes())) == []
    made = decide(builder, a_pod(), failed, services=SERVICES, nodes=nodes())
    assert sorted(deleted(made)) == ["digits-worker-0", "digits-worker-1"]
    assert standing_events(made) == []
