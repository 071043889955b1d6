"""A pod that fails again and again: replaced at once at first, then after longer and longer pauses."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from tests.support.objects.jobs import JobBuilder, PodBuilder, at
from trainwright.engine import Settings, Transition

SERVICES = all_services(2)


def job(restarts: int, *, role: str = "Worker", **run_policy: object) -> JobBuilder:
    """A job whose pods were restarted so often."""
    counted = {"restarts": {role: restarts}} if restarts else {}
    builder = JobBuilder().master(policy="ExitCode").workers(2, policy="ExitCode")
    return builder.run_policy(**run_policy).status({**STARTED, **counted})


def pods(code: int | None = 137) -> tuple[PodBuilder, ...]:
    """They were born when the test began; the first worker has failed since."""
    return PodBuilder("Master").running(), PodBuilder("Worker", 0).failed(code), PodBuilder("Worker", 1).running()


def first_replacement(restarts: int, *, settings: Settings | None = None) -> datetime:
    """When the failed worker is replaced, found by following the plans' own moments."""
    now = at(0)
    for _ in range(3):
        made = decide(job(restarts), *pods(), services=SERVICES, now=now, settings=settings or Settings())
        if "digits-worker-0" in deleted(made):
            return now
        assert made.requeue_at is not None
        now = made.requeue_at
    raise AssertionError("never")


@pytest.mark.parametrize(
    ("restarts", "seconds"),
    [(0, 0), (1, 0), (9, 0), (10, 10), (11, 10), (12, 20), (14, 40), (16, 80), (18, 160), (20, 300), (9999, 300)],
)
def test_the_pause_grows_with_the_restarts_of_a_rank(restarts: int, seconds: int) -> None:
    """Two workers share the count."""
    assert first_replacement(restarts) == at(seconds)


@pytest.mark.parametrize(("restarts", "seconds"), [(4, 0), (5, 10), (6, 20), (50, 300)])
def test_a_group_that_restarts_as_one_counts_its_own_restarts(restarts: int, seconds: int) -> None:
    assert first_replacement(restarts, settings=Settings(group_restart=True)) == at(seconds)


@given(restarts=st.integers(0, 100_000))
def test_nobody_waits_longer_than_five_minutes_from_its_birth(restarts: int) -> None:
    assert at(0) <= first_replacement(restarts) <= at(300)


def test_a_pod_that_lived_for_long_is_replaced_at_once() -> None:
    made = decide(job(9999), *pods(), services=SERVICES, now=at(300))
    assert deleted(made) == ["digits-worker-0"]


def test_while_it_waits_the_job_says_so_and_nothing_is_written_again() -> None:
    first = decide(job(10), *pods(), services=SERVICES)
    assert states(first)[-1] == ("Restarting", "True")
    assert first.transitions == ()
    assert first.status is not None
    assert first.status["restarts"] == {"Worker": 10}, "it is counted when it is replaced"
    told = (
        "Pod digits-worker-0 failed with exit code 137 soon after its start, and not for the first time: "
        "it is replaced at 2026-11-15T04:00:10Z"
    )
    assert standing_events(first) == [("RestartBackOff", told)]
    second = decide(job(10).status(first.status), *pods(), services=SERVICES, now=at(5))
    assert second.empty
    assert second.requeue_at == at(10)
    third = decide(job(10).status(first.status), *pods(), services=SERVICES, now=at(10))
    assert deleted(third) == ["digits-worker-0"]
    assert third.transitions == (Transition.RESTARTED,)
    assert third.status is not None
    assert third.status["restarts"] == {"Worker": 11}
    assert ("Normal", "ExitedWithCode", "Pod: team.digits-worker-0 exited with code 137") in events(third)


def test_a_pod_that_left_no_exit_code_waits_too() -> None:
    made = decide(job(10), *pods(None), services=SERVICES)
    assert standing_events(made)[0][1].startswith("Pod digits-worker-0 failed soon after its start")


def test_the_limit_does_not_wait() -> None:
    made = decide(job(10, backoffLimit=11), *pods(), services=SERVICES)
    assert states(made)[-1] == ("Failed", "True")
    assert standing_events(made) == []
    assert ("Normal", "ExitedWithCode", "Pod: team.digits-worker-0 exited with code 137") in events(made)


def test_a_permanent_failure_does_not_wait() -> None:
    made = decide(job(10), *pods(1), services=SERVICES)
    assert states(made)[-1] == ("Failed", "True")


@pytest.mark.parametrize("group", [False, True])
def test_a_pod_that_the_cluster_evicts_does_not_wait(group: bool) -> None:
    master, _, other = pods()
    evicted = PodBuilder("Worker", 0).failed(143).reason("Evicted")
    settings = Settings(group_restart=group)
    made = decide(job(9999), master, evicted, other, services=SERVICES, settings=settings)
    assert "digits-worker-0" in deleted(made)
    assert standing_events(made) == []


def test_roles_wait_by_themselves() -> None:
    made = decide(job(10, role="Master"), *pods(), services=SERVICES)
    assert deleted(made) == ["digits-worker-0"]


def test_a_pod_that_was_taken_away_is_not_waited_for() -> None:
    running, _, other = pods()
    gone = decide(job(9999), running, other, services=SERVICES)
    assert created(gone) == ["digits-worker-0"]


def test_a_group_goes_at_once_when_somebody_was_taken_from_it() -> None:
    group = Settings(group_restart=True)
    master, failed, other = pods()
    made = decide(job(9999), master, failed, other.terminating(), services=SERVICES, settings=group)
    assert deleted(made) == ["digits-master-0", "digits-worker-0"]
    old = PodBuilder("Worker", 1).failed(137).metadata(creationTimestamp="2026-11-15T03:00:00Z")
    due = decide(job(9999), master, failed, old, services=SERVICES, settings=group)
    assert len(deleted(due)) == 3
    assert standing_events(due) == []
