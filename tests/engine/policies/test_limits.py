"""backoffLimit and activeDeadlineSeconds."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.engine.planning import STARTED, all_services, conditions, created, decide, deleted, events, states
from tests.support.engine.world import World
from tests.support.objects.jobs import NOW, JobBuilder, PodBuilder, at
from trainwright.engine import Plan, Settings
from trainwright.objects.conditions import is_condition_true

BACKOFF = "Job digits has failed because it has reached the specified backoff limit"
DEADLINE = "Job digits has failed because it was active longer than specified deadline"


def job(policy: str = "OnFailure", *, counted: int = 0, **run_policy: object) -> JobBuilder:
    status = {**STARTED, "restarts": {"Worker": counted}} if counted else STARTED
    return JobBuilder().workers(2, policy=policy).run_policy(**run_policy).status(status)


def failed_with(made: Plan, message: str) -> bool:
    if made.status is None or states(made)[-1] != ("Failed", "True"):
        return False
    assert conditions(made)[-1] == ("Failed", "True", "PyTorchJobFailed", message)
    assert ("Normal", "PyTorchJobFailed", message) in events(made)
    assert made.status["completionTime"] == made.status["conditions"][-1]["lastTransitionTime"]
    return True


@pytest.mark.parametrize(
    ("limit", "restarts", "fails"),
    [(0, 0, False), (0, 1, True), (1, 1, True), (3, 2, False), (3, 3, True), (-1, 0, False)],
)
def test_restarts_by_the_kubelet_count(limit: int, restarts: int, fails: bool) -> None:
    made = decide(job(backoffLimit=limit), PodBuilder("Worker", 0).running(restarts=restarts))
    assert failed_with(made, BACKOFF) is fails


def test_restarts_of_all_pods_are_added_up() -> None:
    pods = [PodBuilder("Worker", index).running(restarts=2) for index in range(2)]
    assert failed_with(decide(job(backoffLimit=4), *pods), BACKOFF)


@pytest.mark.parametrize(
    ("limit", "counted", "fails"), [(0, 0, True), (1, 0, True), (2, 0, False), (3, 2, True), (4, 2, False)]
)
def test_replaced_pods_count(limit: int, counted: int, fails: bool) -> None:
    made = decide(job("ExitCode", backoffLimit=limit, counted=counted), PodBuilder("Worker", 0).failed(137))
    assert failed_with(made, BACKOFF) is fails
    if fails:
        assert deleted(made) == []
        assert created(made) == []


@pytest.mark.parametrize("policy", ["Never", "ExitCode"])
def test_backoff_limit_0_fails_the_job_at_the_first_failure_under_any_policy(policy: str) -> None:
    assert failed_with(decide(job(policy, backoffLimit=0), PodBuilder("Worker", 0).failed(1)), BACKOFF)


def test_backoff_limit_0_fails_the_job_at_an_eviction_under_policy_never() -> None:
    evicted = PodBuilder("Worker", 0).failed(None).reason("Evicted")
    assert failed_with(decide(job("Never", backoffLimit=0), evicted), BACKOFF)


def test_with_a_limit_a_permanent_failure_keeps_its_own_message() -> None:
    made = decide(job("Never", backoffLimit=1), PodBuilder("Worker", 0).failed(1))
    assert failed_with(made, "PyTorchJob digits is failed because 1 Worker replica(s) failed.")


def test_eviction_does_not_count_against_the_limit() -> None:
    made = decide(job(backoffLimit=0), PodBuilder("Worker", 0).failed(None).reason("Evicted"))
    assert states(made)[-1] == ("Restarting", "True")


def test_restarts_under_policy_never_and_of_terminating_pods_do_not_count() -> None:
    never = decide(job("Never", backoffLimit=1), PodBuilder("Worker", 0).running(restarts=5))
    assert states(never)[-1] == ("Running", "True")
    terminating = decide(job(backoffLimit=1), PodBuilder("Worker", 0).running(restarts=5).terminating())
    assert states(terminating)[-1] == ("Created", "True")


def test_job_without_limit_never_reaches_it() -> None:
    assert states(decide(job(counted=1000), PodBuilder("Worker", 0).running(restarts=1000)))[-1] == ("Running", "True")


@pytest.mark.parametrize("policy", ["All", "Running"])
def test_pods_of_a_job_that_reached_the_limit_are_deleted_by_the_clean_pod_policy(policy: str) -> None:
    builder = job(backoffLimit=1, cleanPodPolicy=policy)
    made = decide(builder, PodBuilder("Worker", 0).running(restarts=1), services=all_services(master=False))
    assert deleted(made) == ["digits-worker-0"]
    assert deleted(made, "services") == ["digits-worker-0", "digits-worker-1"]


@pytest.mark.parametrize(("now", "fails"), [(at(59), False), (at(60), True), (at(-60), False)])
def test_deadline_counts_from_the_start_time(now: datetime, fails: bool) -> None:
    made = decide(job(activeDeadlineSeconds=60), PodBuilder("Worker", 0).running(), now=now)
    assert failed_with(made, DEADLINE) is fails
    assert made.requeue_at == (None if fails else at(60))


def test_deadline_of_0_creates_no_pods() -> None:
    made = decide(JobBuilder().workers(2).run_policy(activeDeadlineSeconds=0))
    assert failed_with(made, DEADLINE)
    assert made.creates == ()


def test_deadline_that_is_too_far_to_represent_means_never() -> None:
    made = decide(job(activeDeadlineSeconds=2**62), now=NOW)
    assert made.requeue_at is None
    assert created(made) == ["digits-worker-0", "digits-worker-1"]


# From creation to failure

HAPPENINGS = ["fails", "is evicted", "is preempted", "loses its node", "is deleted", "restarts", "fails late"]


@given(
    group=st.booleans(),
    policy=st.sampled_from(["Always", "OnFailure", "ExitCode"]),
    limit=st.none() | st.integers(0, 6),
    life=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(HAPPENINGS)), max_size=12),
)
def test_the_job_fails_exactly_when_its_own_failures_reach_the_limit(
    group: bool, policy: str, limit: int | None, life: list[tuple[int, str]]
) -> None:
    world = World(Settings(group_restart=group))
    world.put_job(JobBuilder().workers(3, policy=policy).run_policy(backoffLimit=limit).raw())
    counted, living = 0, [0, 0, 0]
    for index, happening in life:
        world.settle("digits")
        if enough(counted, living, limit):
            break
        happen(world, f"digits-worker-{index}", happening)
        by_kubelet = not group and policy != "ExitCode"
        if happening == "restarts":
            living[index] += int(by_kubelet)
            continue
        if happening.startswith("fails"):
            counted += living[index] + 1
        living[index] = 0
    world.settle("digits")
    assert is_condition_true(world.jobs["digits"]["status"], "Failed") is enough(counted, living, limit)
    if not enough(counted, living, limit):
        assert sum((world.jobs["digits"]["status"].get("restarts") or {}).values()) == counted


def enough(counted: int, living: list[int], limit: int | None) -> bool:
    return limit is not None and counted + sum(living) >= max(limit, 1)


def happen(world: World, pod: str, happening: str) -> None:
    seen = world.pods[pod]
    match happening:
        case "fails":
            world.end_pod(pod, 137)
        case "fails late":
            world.end_pod(pod, 137)
            world.now += timedelta(hours=1)
            world.delete("pods", pod, seen["metadata"]["uid"])
        case "is evicted":
            world.evict_pod(pod)
        case "is preempted":
            condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
            world.pods[pod] = {**seen, "status": {"phase": "Failed", "conditions": [condition]}}
            world.catch_up()
            world.delete("pods", pod, seen["metadata"]["uid"])
        case "loses its node":
            world.pods[pod] = {**seen, "status": {"phase": "Failed", "reason": "NodeLost"}}
            world.delete("pods", pod, seen["metadata"]["uid"])
        case "is deleted":
            world.delete("pods", pod, seen["metadata"]["uid"])
            world.end_pod(pod, 143)
        case _ if seen["spec"]["restartPolicy"] != "Never":
            world.restart_container(pod)
