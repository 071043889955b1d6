"""Back-off of a pod that fails again and again: the first restarts are immediate, then the delay grows."""

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
    """A job with this number of restarts."""
    counted = {"restarts": {role: restarts}} if restarts else {}
    builder = JobBuilder().master(policy="ExitCode").workers(2, policy="ExitCode")
    return builder.run_policy(**run_policy).status({**STARTED, **counted})


def pods(code: int | None = 137) -> tuple[PodBuilder, ...]:
    """The pods were created when the test began; the first worker has failed since."""
    return PodBuilder("Master").running(), PodBuilder("Worker", 0).failed(code), PodBuilder("Worker", 1).running()


def first_replacement(restarts: int, *, settings: Settings | None = None) -> datetime:
    """The time at which the failed worker is replaced, found by following `requeue_at`."""
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
def test_delay_grows_with_the_restarts_of_a_rank(restarts: int, seconds: int) -> None:
    """The count is for both workers."""
    assert first_replacement(restarts) == at(seconds)


@pytest.mark.parametrize(("restarts", "seconds"), [(4, 0), (5, 10), (6, 20), (50, 300)])
def test_delay_of_a_group_depends_on_its_group_restarts(restarts: int, seconds: int) -> None:
    assert first_replacement(restarts, settings=Settings(group_restart=True)) == at(seconds)


@given(restarts=st.integers(0, 100_000))
def test_delay_is_at_most_five_minutes_from_the_creation_of_the_pod(restarts: int) -> None:
    assert at(0) <= first_replacement(restarts) <= at(300)


def test_pod_that_ran_for_long_is_replaced_at_once() -> None:
    made = decide(job(9999), *pods(), services=SERVICES, now=at(300))
    assert deleted(made) == ["digits-worker-0"]


def test_postponed_replacement_is_reported_once_and_writes_nothing_more() -> None:
    first = decide(job(10), *pods(), services=SERVICES)
    assert states(first)[-1] == ("Restarting", "True")
    assert first.transitions == ()
    assert first.status is not None
    assert first.status["restarts"] == {"Worker": 10}, "it is counted when it is replaced"
    message = (
        "Back-off after repeated failures: pod digits-worker-0 failed with exit code 137 and is replaced at "
        "2026-11-15T04:00:10Z"
    )
    assert standing_events(first) == [("RestartBackOff", message)]
    second = decide(job(10).status(first.status), *pods(), services=SERVICES, now=at(5))
    assert second.empty
    assert second.requeue_at == at(10)
    third = decide(job(10).status(first.status), *pods(), services=SERVICES, now=at(10))
    assert deleted(third) == ["digits-worker-0"]
    assert third.transitions == (Transition.RESTARTED,)
    assert third.status is not None
    assert third.status["restarts"] == {"Worker": 11}
    assert ("Normal", "ExitedWithCode", "Pod: team.digits-worker-0 exited with code 137") in events(third)


def test_pod_without_exit_code_is_postponed_too() -> None:
    made = decide(job(10), *pods(None), services=SERVICES)
    message = standing_events(made)[0][1]
    assert message.startswith("Back-off after repeated failures: pod digits-worker-0 failed and is replaced at ")


def test_backoff_limit_is_not_postponed() -> None:
    made = decide(job(10, backoffLimit=11), *pods(), services=SERVICES)
    assert states(made)[-1] == ("Failed", "True")
    assert standing_events(made) == []
    assert ("Normal", "ExitedWithCode", "Pod: team.digits-worker-0 exited with code 137") in events(made)


def test_permanent_failure_is_not_postponed() -> None:
    made = decide(job(10), *pods(1), services=SERVICES)
    assert states(made)[-1] == ("Failed", "True")


@pytest.mark.parametrize("group", [False, True])
def test_evicted_pod_is_not_postponed(group: bool) -> None:
    master, _, other = pods()
    evicted = PodBuilder("Worker", 0).failed(143).reason("Evicted")
    settings = Settings(group_restart=group)
    made = decide(job(9999), master, evicted, other, services=SERVICES, settings=settings)
    assert "digits-worker-0" in deleted(made)
    assert standing_events(made) == []


def test_each_role_has_its_own_delay() -> None:
    made = decide(job(10, role="Master"), *pods(), services=SERVICES)
    assert deleted(made) == ["digits-worker-0"]


def test_deleted_pod_is_not_postponed() -> None:
    running, _, other = pods()
    gone = decide(job(9999), running, other, services=SERVICES)
    assert created(gone) == ["digits-worker-0"]


def test_group_restarts_at_once_if_a_pod_was_deleted() -> None:
    group = Settings(group_restart=True)
    master, failed, other = pods()
    made = decide(job(9999), master, failed, other.terminating(), services=SERVICES, settings=group)
    assert deleted(made) == ["digits-master-0", "digits-worker-0"]
    old = PodBuilder("Worker", 1).failed(137).metadata(creationTimestamp="2026-11-15T03:00:00Z")
    due = decide(job(9999), master, failed, old, services=SERVICES, settings=group)
    assert len(deleted(due)) == 3
    assert standing_events(due) == []
