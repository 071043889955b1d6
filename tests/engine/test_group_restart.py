"""Group restart: one rank fails, all ranks start again. It counts once, and old and new pods never run together."""

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
from trainwright.engine import Plan, Settings, Transition
from trainwright.objects import Object

SCOPE = "trainwright.dev/restart-scope"
SERVICES = all_services(2)


def job(policy: str = "OnFailure", *, scope: str | None = "group", **run_policy: object) -> JobBuilder:
    builder = JobBuilder().master(policy=policy).workers(2, policy=policy).run_policy(**run_policy).status(STARTED)
    return builder if scope is None else builder.annotation(SCOPE, scope)


def restarting(builder: JobBuilder, *uids: str, **status: Object) -> JobBuilder:
    """The job during a group restart."""
    return builder.status({**STARTED, "restarts": {"Worker": 1}, "replacedPods": list(uids), **status})


def restarts(made: Plan) -> dict[str, int]:
    assert made.status is not None
    counted: dict[str, int] = made.status.get("restarts", {})
    return counted


MASTER, FIRST, SECOND = PodBuilder("Master"), PodBuilder("Worker", 0), PodBuilder("Worker", 1)


def running(role: str = "Master", index: int = 0) -> PodBuilder:
    return PodBuilder(role, index).running()


@pytest.mark.parametrize(("policy", "code"), [("OnFailure", 1), ("Always", 1), ("ExitCode", 137), ("ExitCode", None)])
def test_failed_rank_restarts_the_whole_group(policy: str, code: int | None) -> None:
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


def test_several_failed_ranks_are_one_group_restart() -> None:
    pods = (PodBuilder("Master").failed(1), PodBuilder("Worker", 0).failed(1), PodBuilder("Worker", 1).failed(137))
    made = decide(job(backoffLimit=2), *pods)
    assert restarts(made) == {"Master": 1}
    assert made.transitions == (Transition.RESTARTED,)
    assert [reason for _, reason, _ in events(made)].count("PyTorchJobRestarting") == 1


def test_ranks_that_fail_during_a_group_restart_are_not_counted() -> None:
    builder = restarting(job(backoffLimit=2), "digits-worker-1-uid")
    failing = PodBuilder("Worker", 0).failed(1, finished=at(-1)).terminating()
    pods = (PodBuilder("Master").running().terminating(), failing, PodBuilder("Worker", 1).failed(1).terminating())
    made = decide(builder, *pods, services=SERVICES)
    assert restarts(made) == {"Worker": 1}
    assert (made.creates, made.deletes, made.transitions) == ((), (), ())
    assert events(made) == []


@pytest.mark.parametrize("left", [MASTER, FIRST, SECOND, PodBuilder("Worker", 5)])
def test_no_new_pod_is_created_while_an_old_pod_exists(left: PodBuilder) -> None:
    builder = restarting(job(), "digits-worker-1-uid")
    made = decide(builder, left)
    assert created(made) == []
    assert created(made, "Service") == ["digits-master-0", "digits-worker-0", "digits-worker-1"]
    assert len(deleted(made)) == 1, "the remaining pod is deleted"


def test_all_ranks_start_again_when_the_last_old_pod_is_gone() -> None:
    builder = restarting(job(), "digits-worker-1-uid", completedIndexes={"Worker": "0"})
    made = decide(builder, services=SERVICES)
    assert created(made) == ["digits-master-0", "digits-worker-0", "digits-worker-1"]
    assert made.status is not None
    assert "replacedPods" not in made.status
    assert "completedIndexes" not in made.status
    assert restarts(made) == {"Worker": 1}


def test_group_restart_waits_for_orphans_too() -> None:
    made = decide(restarting(job(), "digits-worker-1-uid"), PodBuilder("Worker", 0).owner(None), services=SERVICES)
    assert created(made) == []
    assert [patch.name for patch in made.patches] == ["digits-worker-0"]


def test_success_of_the_master_counts_during_a_group_restart() -> None:
    builder = restarting(job(), "digits-worker-1-uid")
    made = decide(builder, PodBuilder("Master").succeeded(finished=at(-1)).terminating())
    assert states(made)[-1] == ("Succeeded", "True")


def test_success_after_the_deletion_of_the_group_does_not_count() -> None:
    builder = restarting(job(), "digits-worker-1-uid")
    made = decide(builder, PodBuilder("Master").succeeded(finished=at(5)).terminating())
    assert made.status is not None
    assert [one["type"] for one in made.status["conditions"]] == ["Created"]


def test_succeeded_rank_is_restarted_with_the_group() -> None:
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
def test_deleted_rank_restarts_the_group_without_being_counted(policy: str) -> None:
    pods = (running(), running("Worker", 0).terminating(), running("Worker", 1))
    made = decide(job(policy, backoffLimit=0), *pods, services=SERVICES)
    assert deleted(made) == ["digits-master-0", "digits-worker-1"]
    assert created(made) == []
    assert restarts(made) == {}
    message = "job digits is restarting all its replicas because digits-worker-0 was deleted."
    assert conditions(made)[-1] == ("Restarting", "True", "PyTorchJobRestarting", message)


@pytest.mark.parametrize(
    "disrupted",
    [PodBuilder("Worker", 0).running().terminating(), PodBuilder("Worker", 0).failed(None).reason("Evicted")],
)
def test_failure_after_the_disruption_of_a_peer_is_not_counted(disrupted: PodBuilder) -> None:
    made = decide(job(backoffLimit=0), running(), disrupted, PodBuilder("Worker", 1).failed(1))
    assert states(made)[-1] == ("Restarting", "True")
    assert restarts(made) == {}


def test_deletion_of_a_finished_rank_restarts_nothing() -> None:
    builder = job().status({**STARTED, "completedIndexes": {"Worker": "0"}})
    cleared = PodBuilder("Worker", 0).succeeded().terminating()
    made = decide(builder, running(), cleared, PodBuilder("Worker", 1).running())
    assert deleted(made) == []
    assert states(made)[-1] == ("Running", "True")


def test_permanent_failure_fails_the_job_instead_of_restarting_the_group() -> None:
    never = decide(job("Never"), running(), PodBuilder("Worker", 0).failed(1))
    assert states(never)[-1] == ("Failed", "True")
    permanent = decide(job("ExitCode"), PodBuilder("Master").failed(137), PodBuilder("Worker", 0).failed(1))
    assert states(permanent)[-1] == ("Failed", "True")
    mixed = JobBuilder().master(policy="Never").workers(2).annotation(SCOPE, "group").status(STARTED)
    assert states(decide(mixed, PodBuilder("Master").failed(1), PodBuilder("Worker", 0).failed(1)))[-1] == (
        "Failed",
        "True",
    )


def test_restarts_by_the_kubelet_are_added_to_the_count() -> None:
    """Pods that were created before the annotation was set may have some."""
    pods = (running().running(restarts=2), running("Worker", 0).running(restarts=1), PodBuilder("Worker", 1))
    made = decide(job(), *pods[:2], pods[2].failed(1, restarts=3))
    assert restarts(made) == {"Master": 2, "Worker": 5}
    followed = decide(restarting(job(backoffLimit=3), "digits-worker-1-uid"), PodBuilder("Master").running(restarts=7))
    assert restarts(followed) == {"Worker": 1}
    assert states(followed)[-1] == ("Created", "True"), "they are not counted again"
    assert followed.status is not None
    assert "active" not in followed.status["replicaStatuses"]["Master"]


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never", "ExitCode"])
def test_the_kubelet_restarts_no_container_alone(policy: str) -> None:
    assert child(decide(job(policy)), "digits-worker-0")["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize(
    ("scope", "for_all", "together"),
    [(None, False, False), (None, True, True), ("pod", True, False), ("group", False, True), ("both", True, True)],
)
def test_annotation_overrides_the_operators_flag(scope: str | None, for_all: bool, together: bool) -> None:
    settings = Settings(group_restart=for_all)
    made = decide(job(scope=scope), running(), PodBuilder("Worker", 0).failed(1), settings=settings)
    assert (deleted(made) == ["digits-master-0", "digits-worker-0"]) is together
    assert (deleted(made) == ["digits-worker-0"]) is not together


def test_group_restart_that_is_switched_on_during_a_replacement_restarts_all_pods() -> None:
    builder = restarting(job(), "digits-worker-1-uid")
    made = decide(builder, running(), running("Worker", 0), PodBuilder("Worker", 1).failed(1).terminating())
    assert deleted(made) == ["digits-master-0", "digits-worker-0"]
    assert restarts(made) == {"Worker": 1}


def test_group_restart_that_is_switched_off_replaces_ranks_one_by_one() -> None:
    builder = restarting(job(scope="pod"), "digits-worker-1-uid")
    made = decide(builder, running(), running("Worker", 0).terminating(), services=SERVICES)
    assert created(made) == ["digits-worker-1"]


def test_scaling_down_restarts_no_pod() -> None:
    pods = (running(), running("Worker", 0), running("Worker", 1), running("Worker", 2).terminating())
    made = decide(job(), *pods, services=SERVICES)
    assert states(made)[-1] == ("Running", "True")
    assert deleted(made) == []


def test_resumed_job_creates_pods_when_the_old_ones_are_gone() -> None:
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


def test_completed_indexes_stay_in_the_status_when_all_pods_are_gone() -> None:
    builder = JobBuilder().workers(2).annotation(SCOPE, "group")
    made = decide(builder.status({**STARTED, "completedIndexes": {"Worker": "0"}}))
    assert created(made) == ["digits-worker-1"]


def test_without_group_restart_a_disrupted_peer_excuses_no_failure() -> None:
    made = decide(job(scope="pod"), running(), running("Worker", 0).terminating(), PodBuilder("Worker", 1).failed(1))
    assert restarts(made) == {"Worker": 1}
