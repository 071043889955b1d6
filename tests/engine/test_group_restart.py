"""Whole-group restart: one rank fails, all ranks start again, counted once, and no two generations ever meet."""

from dataclasses import replace

import pytest

from tests.support.engine.planning import (
    STARTED,
    all_services,
    child,
    conditions,
    created,
    decide,
    deleted,
    events,
    states,
)
from tests.support.objects.jobs import JobBuilder, PodBuilder, at
from trainwright.engine import EMBEDDED, Plan, Settings, Transition
from trainwright.objects import Object

SCOPE = "trainwright.dev/restart-scope"
SERVICES = all_services(2)


def job(policy: str = "OnFailure", *, scope: str | None = "group", **run_policy: object) -> JobBuilder:
    builder = JobBuilder().master(policy=policy).workers(2, policy=policy).run_policy(**run_policy).status(STARTED)
    return builder if scope is None else builder.annotation(SCOPE, scope)


def going(builder: JobBuilder, *uids: str, **status: Object) -> JobBuilder:
    """The job while its group goes."""
    return builder.status({**STARTED, "restarts": {"Worker": 1}, "replacedPods": list(uids), **status})


def restarts(made: Plan) -> dict[str, int]:
    assert made.status is not None
    counted: dict[str, int] = made.status.get("restarts", {})
    return counted


MASTER, FIRST, SECOND = PodBuilder("Master"), PodBuilder("Worker", 0), PodBuilder("Worker", 1)


def running(role: str = "Master", index: int = 0) -> PodBuilder:
    return PodBuilder(role, index).running()


@pytest.mark.parametrize(("policy", "code"), [("OnFailure", 1), ("Always", 1), ("ExitCode", 137), ("ExitCode", None)])
def test_a_failed_rank_takes_all_others_with_it(policy: str, code: int | None) -> None:
    pods = (running(), running("Worker", 0), PodBuilder("Worker", 1).failed(code))
    made = decide(job(policy), *pods, services=SERVICES)
    assert deleted(made) == ["digits-master-0", "digits-worker-0", "digits-worker-1"]
    assert made.creates == ()
    message = "job digits is restarting all its replicas because digits-worker-1 failed."
    assert conditions(made)[-1] == ("Restarting", "True", "PyTorchJobRestarting", message)
    assert events(made)[-1] == ("Warning", "PyTorchJobRestarting", message)
    assert restarts(made) == {"Worker": 1}
    assert made.transitions == (Transition.RESTARTED,)
    assert made.status is not None
    assert made.status["replacedPods"] == ["digits-worker-1-uid"]


def test_however_many_ranks_fail_it_is_one_restart() -> None:
    pods = (PodBuilder("Master").failed(1), PodBuilder("Worker", 0).failed(1), PodBuilder("Worker", 1).failed(137))
    made = decide(job(backoffLimit=2), *pods)
    assert restarts(made) == {"Master": 1}
    assert made.transitions == (Transition.RESTARTED,)
    assert [reason for _, reason, _ in events(made)].count("PyTorchJobRestarting") == 1


def test_ranks_that_die_afterwards_belong_to_the_same_restart() -> None:
    builder = going(job(backoffLimit=2), "digits-worker-1-uid")
    dying = PodBuilder("Worker", 0).failed(1, finished=at(-1)).terminating()
    pods = (PodBuilder("Master").running().terminating(), dying, PodBuilder("Worker", 1).failed(1).terminating())
    made = decide(builder, *pods, services=SERVICES)
    assert restarts(made) == {"Worker": 1}
    assert (made.creates, made.deletes, made.transitions) == ((), (), ())
    assert events(made) == []


@pytest.mark.parametrize("left", [MASTER, FIRST, SECOND, PodBuilder("Worker", 5)])
def test_nobody_comes_while_anybody_of_the_old_group_is_left(left: PodBuilder) -> None:
    builder = going(job(), "digits-worker-1-uid")
    made = decide(builder, left)
    assert created(made) == []
    assert created(made, "Service") == ["digits-master-0", "digits-worker-0", "digits-worker-1"]
    assert len(deleted(made)) == 1, "and who was overlooked goes too"


def test_when_the_last_is_gone_all_ranks_start_even_those_that_had_finished() -> None:
    builder = going(job(), "digits-worker-1-uid", completedIndexes={"Worker": "0"})
    made = decide(builder, services=SERVICES)
    assert created(made) == ["digits-master-0", "digits-worker-0", "digits-worker-1"]
    assert made.status is not None
    assert "replacedPods" not in made.status
    assert "completedIndexes" not in made.status
    assert restarts(made) == {"Worker": 1}


def test_a_pod_without_an_owner_is_waited_for_too() -> None:
    made = decide(going(job(), "digits-worker-1-uid"), PodBuilder("Worker", 0).owner(None), services=SERVICES)
    assert created(made) == []
    assert [patch.name for patch in made.patches] == ["digits-worker-0"]


def test_the_masters_success_still_counts_while_the_group_goes() -> None:
    builder = going(job(), "digits-worker-1-uid")
    made = decide(builder, PodBuilder("Master").succeeded(finished=at(-1)).terminating())
    assert states(made)[-1] == ("Succeeded", "True")


def test_a_success_after_the_group_was_told_to_go_does_not_count() -> None:
    builder = going(job(), "digits-worker-1-uid")
    made = decide(builder, PodBuilder("Master").succeeded(finished=at(5)).terminating())
    assert made.status is not None
    assert [one["type"] for one in made.status["conditions"]] == ["Created"]


def test_a_rank_that_has_succeeded_goes_with_the_others() -> None:
    builder = JobBuilder().workers(2).annotation(SCOPE, "group").status(STARTED)
    made = decide(builder, PodBuilder("Worker", 0).succeeded(), PodBuilder("Worker", 1).failed(1))
    assert deleted(made) == ["digits-worker-0", "digits-worker-1"]


def test_the_job_stays_restarting_until_the_new_group_runs() -> None:
    first = decide(job(), running(), PodBuilder("Worker", 0).failed(1))
    second = decide(job().status(first.status), PodBuilder("Master").running().terminating(), services=SERVICES)
    assert states(first)[-1] == ("Restarting", "True")
    assert states(second)[-1] == ("Restarting", "True")
    assert second.status is not None
    assert "active" not in second.status["replicaStatuses"]["Master"]
    third = decide(job().status(second.status), services=SERVICES)
    fourth = decide(job().status(third.status), running(), services=SERVICES)
    assert states(fourth)[-1] == ("Running", "True")


@pytest.mark.parametrize(("limit", "counted", "fails"), [(0, 0, True), (1, 0, True), (2, 0, False), (2, 1, True)])
def test_the_limit_counts_restarts_of_the_group(limit: int, counted: int, fails: bool) -> None:
    builder = job(backoffLimit=limit).status({**STARTED, "restarts": {"Worker": counted}} if counted else STARTED)
    made = decide(builder, *(PodBuilder("Worker", index).failed(1) for index in range(2)))
    assert (states(made)[-1] == ("Failed", "True")) is fails


@pytest.mark.parametrize("policy", ["OnFailure", "Never", "ExitCode"])
def test_a_rank_that_somebody_deletes_takes_the_others_with_it_uncounted(policy: str) -> None:
    pods = (running(), running("Worker", 0).terminating(), running("Worker", 1))
    made = decide(job(policy, backoffLimit=0), *pods, services=SERVICES)
    assert deleted(made) == ["digits-master-0", "digits-worker-1"]
    assert created(made) == []
    assert restarts(made) == {}
    message = "job digits is restarting all its replicas because digits-worker-0 was deleted."
    assert conditions(made)[-1] == ("Restarting", "True", "PyTorchJobRestarting", message)


@pytest.mark.parametrize(
    "taken", [PodBuilder("Worker", 0).running().terminating(), PodBuilder("Worker", 0).failed(None).reason("Evicted")]
)
def test_who_fails_because_a_peer_was_taken_away_is_not_to_blame(taken: PodBuilder) -> None:
    made = decide(job(backoffLimit=0), running(), taken, PodBuilder("Worker", 1).failed(1))
    assert states(made)[-1] == ("Restarting", "True")
    assert restarts(made) == {}


def test_a_rank_that_has_finished_may_be_cleared_away() -> None:
    builder = job().status({**STARTED, "completedIndexes": {"Worker": "0"}})
    cleared = PodBuilder("Worker", 0).succeeded().terminating()
    made = decide(builder, running(), cleared, PodBuilder("Worker", 1).running())
    assert deleted(made) == []
    assert states(made)[-1] == ("Running", "True")


def test_what_the_policy_does_not_forgive_fails_the_job_as_ever() -> None:
    never = decide(job("Never"), running(), PodBuilder("Worker", 0).failed(1))
    assert states(never)[-1] == ("Failed", "True")
    permanent = decide(job("ExitCode"), PodBuilder("Master").failed(137), PodBuilder("Worker", 0).failed(1))
    assert states(permanent)[-1] == ("Failed", "True")
    mixed = JobBuilder().master(policy="Never").workers(2).annotation(SCOPE, "group").status(STARTED)
    assert states(decide(mixed, PodBuilder("Master").failed(1), PodBuilder("Worker", 0).failed(1)))[-1] == (
        "Failed",
        "True",
    )


def test_restarts_by_the_kubelet_from_before_are_carried_over() -> None:
    """Pods that were made before the annotation was set may have some."""
    pods = (running().running(restarts=2), running("Worker", 0).running(restarts=1), PodBuilder("Worker", 1))
    made = decide(job(), *pods[:2], pods[2].failed(1, restarts=3))
    assert restarts(made) == {"Master": 2, "Worker": 5}
    followed = decide(going(job(backoffLimit=3), "digits-worker-1-uid"), PodBuilder("Master").running(restarts=7))
    assert restarts(followed) == {"Worker": 1}
    assert states(followed)[-1] == ("Created", "True"), "and not counted a second time"
    assert followed.status is not None
    assert "active" not in followed.status["replicaStatuses"]["Master"]


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never", "ExitCode"])
def test_the_kubelet_restarts_no_container_alone(policy: str) -> None:
    assert child(decide(job(policy)), "digits-worker-0")["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize(
    ("scope", "for_all", "together"),
    [(None, False, False), (None, True, True), ("pod", True, False), ("group", False, True), ("both", True, True)],
)
def test_the_annotation_wins_over_the_operators_flag(scope: str | None, for_all: bool, together: bool) -> None:
    settings = Settings(group_restart=for_all)
    made = decide(job(scope=scope), running(), PodBuilder("Worker", 0).failed(1), settings=settings)
    assert (deleted(made) == ["digits-master-0", "digits-worker-0"]) is together
    assert (deleted(made) == ["digits-worker-0"]) is not together


def test_switched_on_while_a_pod_is_being_replaced_it_takes_the_others_along() -> None:
    builder = going(job(), "digits-worker-1-uid")
    made = decide(builder, running(), running("Worker", 0), PodBuilder("Worker", 1).failed(1).terminating())
    assert deleted(made) == ["digits-master-0", "digits-worker-0"]
    assert restarts(made) == {"Worker": 1}


def test_switched_off_meanwhile_ranks_come_back_one_by_one() -> None:
    builder = going(job(scope="pod"), "digits-worker-1-uid")
    made = decide(builder, running(), running("Worker", 0).terminating(), services=SERVICES)
    assert created(made) == ["digits-worker-1"]


def test_scaling_down_restarts_nobody() -> None:
    pods = (running(), running("Worker", 0), running("Worker", 1), running("Worker", 2).terminating())
    made = decide(job(), *pods, services=SERVICES)
    assert states(made)[-1] == ("Running", "True")
    assert deleted(made) == []


def test_after_a_resume_the_new_group_waits_for_the_one_before() -> None:
    running_job = job()
    suspended = decide(running_job.suspend(), running(), running("Worker", 0), services=SERVICES)
    resumed = job().suspend(False).status(suspended.status)
    made = decide(resumed, PodBuilder("Worker", 0).running().terminating(), services=SERVICES)
    assert created(made) == []
    assert restarts(made) == {}
    assert created(decide(job().status(made.status), services=SERVICES)) == [
        "digits-master-0",
        "digits-worker-0",
        "digits-worker-1",
    ]


def test_without_a_restart_finished_ranks_stay_remembered_even_when_all_pods_are_gone() -> None:
    builder = JobBuilder().workers(2).annotation(SCOPE, "group")
    made = decide(builder.status({**STARTED, "completedIndexes": {"Worker": "0"}}))
    assert created(made) == ["digits-worker-1"]


def test_alone_a_failure_counts_whatever_happens_to_others() -> None:
    made = decide(job(scope="pod"), running(), running("Worker", 0).terminating(), PodBuilder("Worker", 1).failed(1))
    assert restarts(made) == {"Worker": 1}


def test_pods_that_go_for_the_sake_of_other_ports_are_not_taken_away() -> None:
    settings = replace(EMBEDDED, group_restart=True)
    moved = job().status({**STARTED, "ports": {"Master": 20001}})
    old = running().terminating().annotation("trainwright.dev/ports", "Master=23456")
    new = running("Worker", 0).annotation("trainwright.dev/ports", "Master=20001")
    made = decide(moved, old, new, settings=settings)
    assert made.transitions == ()
    assert created(made) == ["digits-worker-1"]
