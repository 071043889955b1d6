"""Scaling of elastic jobs while they run: only the last ranks change."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.engine.planning import STARTED, all_services, child, created, decide, deleted, env, states
from tests.support.engine.world import World
from tests.support.objects.jobs import JobBuilder, PodBuilder, at
from trainwright.engine import Settings
from trainwright.objects import Object


def job(workers: int) -> JobBuilder:
    elastic = {"minReplicas": 1, "maxReplicas": 8, "rdzvBackend": "c10d"}
    return JobBuilder().workers(workers).spec(elasticPolicy=elastic).status(STARTED)


def workers(count: int) -> list[PodBuilder]:
    return [PodBuilder("Worker", index).running() for index in range(count)]


def test_the_environment_of_an_elastic_pod_does_not_depend_on_the_size() -> None:
    small, large = (env(child(decide(job(size)), "digits-worker-0")) for size in (2, 8))
    assert small == large
    assert dict(small)["PET_NNODES"] == "1:8"


def test_scaling_changes_only_the_last_ranks() -> None:
    up = decide(job(4), *workers(2), services=all_services(2, master=False))
    assert created(up) == ["digits-worker-2", "digits-worker-3"]
    assert (up.deletes, up.patches) == ((), ())
    down = decide(job(1), *workers(3), services=all_services(3, master=False))
    assert deleted(down) == ["digits-worker-1", "digits-worker-2"]
    assert (down.creates, down.patches) == ((), ())


def test_rank_that_is_scaled_away_during_its_replacement_is_not_created_again() -> None:
    first = decide(job(3), *workers(2), PodBuilder("Worker", 2).failed(1), services=all_services(3, master=False))
    assert first.status is not None
    assert first.status["restarts"] == {"Worker": 1}
    terminating = PodBuilder("Worker", 2).failed(1, finished=at(-9)).terminating()
    smaller = job(2).status(first.status)
    second = decide(smaller, *workers(2), terminating, services=all_services(3, master=False))
    assert created(second) == []
    assert second.status is not None
    assert second.status["replacedPods"] == ["digits-worker-2-uid"], (
        "the rank may be scaled up again before its pod is gone"
    )
    third = decide(job(2).status(second.status), *workers(2), services=all_services(2, master=False))
    assert created(third) == []
    assert third.status is not None
    assert "replacedPods" not in third.status
    assert third.status["restarts"] == {"Worker": 1}, "the count does not change"
    again = decide(job(3).status(third.status), *workers(2), services=all_services(2, master=False))
    assert created(again) == ["digits-worker-2"]


def test_rank_is_created_again_when_its_old_pod_is_gone() -> None:
    leaving = PodBuilder("Worker", 2).running().terminating()
    made = decide(job(3), *workers(2), leaving, services=all_services(3, master=False))
    assert (created(made), deleted(made)) == ([], [])
    assert states(made)[-1] == ("Running", "True")


@given(sizes=st.lists(st.integers(0, 6), min_size=1, max_size=8), group=st.booleans())
def test_ranks_that_stay_desired_are_never_deleted(sizes: list[int], group: bool) -> None:
    world = World(Settings(group_restart=group))
    world.put_job(JobBuilder().workers(6).spec(elasticPolicy={"minReplicas": 1, "maxReplicas": 8}).raw())
    world.settle("digits")
    before = dict(world.pods)
    for size in sizes:
        spec: Object = world.jobs["digits"]["spec"]
        replicas = {"Worker": {**spec["pytorchReplicaSpecs"]["Worker"], "replicas": size}}
        world.edit_job("digits", {**spec, "pytorchReplicaSpecs": replicas})
        world.settle("digits")
        assert set(world.pods) == set(world.services) == {f"digits-worker-{index}" for index in range(size)}
    for index in range(min(sizes)):
        assert world.pods[f"digits-worker-{index}"] is before[f"digits-worker-{index}"]
