"""Failed pods are replaced and counted once, or fail the job, by their restart policy."""

import pytest

from tests.support.engine.planning import STARTED, all_services, conditions, created, decide, deleted, events, states
from tests.support.objects.jobs import JobBuilder, PodBuilder, at

RESTARTING = ("Warning", "PyTorchJobRestarting", "job digits is restarting because Worker replica(s) failed.")


def job(policy: str | None, **run_policy: int) -> JobBuilder:
    return JobBuilder().workers(2, policy=policy).run_policy(**run_policy).status(STARTED)


@pytest.mark.parametrize(
    ("policy", "code"), [("OnFailure", 1), ("Always", 1), ("ExitCode", 128), ("ExitCode", 137), ("ExitCode", None)]
)
def test_a_failed_pod_is_deleted_to_be_replaced(policy: str, code: int | None) -> None:
    made = decide(job(policy), PodBuilder("Worker", 1).failed(code), services=all_services(master=False))
    assert deleted(made) == ["digits-worker-1"]
    assert created(made) == ["digits-worker-0"]
    assert conditions(made)[-1] == ("Restarting", "True", "PyTorchJobRestarting", RESTARTING[2])
    event = ("Warning", "PyTorchJobRestarting", "PyTorchJob digits is restarting because 1 Worker replica(s) failed.")
    assert events(made)[-2:] == [RESTARTING, event]
    assert made.status is not None
    assert made.status["restarts"] == {"Worker": 1}
    assert made.status["replacedPods"] == ["digits-worker-1-uid"]


def test_pod_is_created_again_when_the_failed_one_is_gone() -> None:
    status = {**STARTED, "restarts": {"Worker": 1}, "replacedPods": ["digits-worker-1-uid"]}
    made = decide(JobBuilder().workers(2).status(status), PodBuilder("Worker", 0).running())
    assert created(made) == ["digits-worker-1"]
    assert made.status is not None
    assert "replacedPods" not in made.status
    assert made.status["restarts"] == {"Worker": 1}


def test_failure_is_not_counted_twice_if_the_operator_is_killed_before_the_delete() -> None:
    status = {**STARTED, "restarts": {"Worker": 1}, "replacedPods": ["digits-worker-1-uid"]}
    made = decide(
        JobBuilder().workers(2).status(status), PodBuilder("Worker", 0).running(), PodBuilder("Worker", 1).failed(1)
    )
    assert deleted(made) == ["digits-worker-1"]
    assert made.status is not None
    assert made.status["restarts"] == {"Worker": 1}
    assert RESTARTING not in events(made)


def test_plan_is_empty_while_the_failed_pod_terminates() -> None:
    pods = (PodBuilder("Worker", 0).running(), PodBuilder("Worker", 1).failed(1))
    first = decide(job("OnFailure"), *pods, services=all_services(master=False))
    terminating = PodBuilder("Worker", 1).failed(1, finished=at(-9)).terminating()
    second = decide(
        JobBuilder().workers(2, policy="OnFailure").status(first.status),
        PodBuilder("Worker", 0).running(),
        terminating,
        services=all_services(master=False),
    )
    third = decide(
        JobBuilder().workers(2, policy="OnFailure").status(second.status),
        PodBuilder("Worker", 0).running(),
        terminating,
        services=all_services(master=False),
    )
    assert states(second) == [("Created", "True"), ("Running", "True")]
    assert third.empty


def test_restarts_by_the_kubelet_are_added_to_the_count() -> None:
    made = decide(job("OnFailure"), PodBuilder("Worker", 1).failed(1, restarts=3))
    assert made.status is not None
    assert made.status["restarts"] == {"Worker": 4}


def test_disruption_is_not_counted() -> None:
    made = decide(job("OnFailure", backoffLimit=1), PodBuilder("Worker", 1).failed(None).reason("Evicted"))
    assert deleted(made) == ["digits-worker-1"]
    assert made.status is not None
    assert "restarts" not in made.status
    assert made.status["replacedPods"] == ["digits-worker-1-uid"]


@pytest.mark.parametrize("code", [0, 1, 127])
def test_evicted_pod_with_a_permanent_exit_code_is_replaced(code: int) -> None:
    evicted = PodBuilder("Worker", 1).failed(code).condition("DisruptionTarget")
    made = decide(job("ExitCode", backoffLimit=1), evicted)
    assert deleted(made) == ["digits-worker-1"]
    assert states(made)[-1] == ("Restarting", "True")
    assert made.status is not None
    assert "restarts" not in made.status


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "ExitCode"])
def test_finished_rank_cannot_fail(policy: str) -> None:
    """Whatever happens to its pod: no event, no count, no replacement, and an empty plan."""
    builder = job(policy, backoffLimit=0).status({**STARTED, "completedIndexes": {"Worker": "1"}})
    pods = PodBuilder("Worker", 0).running(), PodBuilder("Worker", 1).failed(1)
    first = decide(builder, *pods, services=all_services(master=False))
    assert states(first) == [("Created", "True"), ("Running", "True")]
    assert decide(builder.status(first.status), *pods, services=all_services(master=False)).empty


def test_failed_worker_beside_a_running_master() -> None:
    builder = JobBuilder().master().workers(2).status(STARTED)
    made = decide(builder, PodBuilder("Master").running(), PodBuilder("Worker", 1).failed(1))
    message = "PyTorchJob digits is restarting because 1 Worker replica(s) failed."
    assert conditions(made)[-1] == ("Restarting", "True", "PyTorchJobRestarting", message)
    assert events(made) == [
        ("Normal", "ExitedWithCode", "Pod: team.digits-worker-1 exited with code 1"),
        RESTARTING,
        ("Warning", "PyTorchJobRestarting", message),
    ]


def test_restart_policy_never_fails_the_job() -> None:
    made = decide(job("Never"), PodBuilder("Worker", 0).running(), PodBuilder("Worker", 1).failed(3))
    message = "PyTorchJob digits is failed because 1 Worker replica(s) failed."
    assert conditions(made)[-1] == ("Failed", "True", "PyTorchJobFailed", message)
    assert events(made) == [
        ("Normal", "ExitedWithCode", "Pod: team.digits-worker-1 exited with code 3"),
        ("Normal", "PyTorchJobFailed", message),
    ]
    assert deleted(made) == []
    assert created(made) == []
    assert made.status is not None
    assert made.status["completionTime"] == "2026-11-15T04:00:00Z"
    assert made.status["replicaStatuses"]["Worker"]["failed"] == 1


def test_a_permanent_exit_code_fails_the_job() -> None:
    made = decide(job("ExitCode"), PodBuilder("Worker", 0).failed(127), PodBuilder("Worker", 1).failed(137))
    message = 'job "digits" is failing because "Worker" replica(s) failed.'
    assert conditions(made)[-1] == ("Failed", "True", "PyTorchJobFailed", message)
    assert ("Warning", "PyTorchJobFailed", message) in events(made)
    assert not [event for event in events(made) if event[1] == "PyTorchJobRestarting"]
    assert made.status is not None
    assert made.status["completionTime"] == "2026-11-15T04:00:00Z"
    assert deleted(made) == []


@pytest.mark.parametrize("limits", [{}, {"backoffLimit": 0}, {"backoffLimit": 1}, {"activeDeadlineSeconds": 0}])
@pytest.mark.parametrize("policy", ["OnFailure", "Never", "ExitCode"])
def test_success_of_the_master_takes_precedence_over_failures(policy: str, limits: dict[str, int]) -> None:
    builder = JobBuilder().master().workers(1, policy=policy).run_policy(**limits).status(STARTED)
    made = decide(builder, PodBuilder("Master").succeeded(), PodBuilder("Worker", 0).failed(1))
    assert states(made) == [("Created", "True"), ("Succeeded", "True")]
    assert made.status is not None
    assert "restarts" not in made.status
    assert [reason for _, reason, _ in events(made)] == ["ExitedWithCode", "ExitedWithCode", "PyTorchJobSucceeded"]


@pytest.mark.parametrize("policy", ["OnFailure", "Never", "ExitCode"])
def test_pod_that_a_user_deletes_is_not_counted_as_failed(policy: str) -> None:
    builder = job(policy, backoffLimit=0)
    pods = (PodBuilder("Worker", 0).running(), PodBuilder("Worker", 1).running().terminating())
    made = decide(builder, *pods, services=all_services(master=False))
    assert states(made) == [("Created", "True"), ("Running", "True")]
    assert (made.creates, made.deletes) == ((), ())
    killed = decide(builder, pods[0], PodBuilder("Worker", 1).failed(137, finished=at(1)).terminating())
    assert states(killed) == [("Created", "True"), ("Running", "True")]


def test_first_role_with_a_permanent_failure_gives_the_reason() -> None:
    builder = JobBuilder().master(policy="Never").workers(1, policy="Never").status(STARTED)
    made = decide(builder, PodBuilder("Master").failed(1), PodBuilder("Worker", 0).failed(1))
    message = "PyTorchJob digits is failed because 1 Master replica(s) failed."
    assert conditions(made)[-1] == ("Failed", "True", "PyTorchJobFailed", message)
    assert [event for event in events(made) if event[1] == "PyTorchJobFailed"] == [
        ("Normal", "PyTorchJobFailed", message)
    ]


def test_failures_of_two_roles_are_both_recorded() -> None:
    builder = JobBuilder().master().workers(1).status(STARTED)
    made = decide(builder, PodBuilder("Master").failed(1), PodBuilder("Worker", 0).failed(1))
    messages = [message for _, reason, message in events(made) if reason == "PyTorchJobRestarting"]
    assert "job digits is restarting because Master replica(s) failed." in messages
    assert "job digits is restarting because Worker replica(s) failed." in messages
    assert conditions(made)[-1][3] == "job digits is restarting because Master replica(s) failed."
    assert made.status is not None
    assert made.status["restarts"] == {"Master": 1, "Worker": 1}
