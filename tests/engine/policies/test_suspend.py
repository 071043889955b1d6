"""Suspending and resuming."""

from tests.support.engine.planning import STARTED, all_services, conditions, created, decide, deleted, events, states
from tests.support.objects.jobs import JobBuilder, PodBuilder, at
from trainwright.objects import Object

MESSAGE = "PyTorchJob digits is suspended."


def job(status: Object | None = None) -> JobBuilder:
    return JobBuilder().master().workers(1).status(status)


def pods() -> list[PodBuilder]:
    return [PodBuilder("Master").running(), PodBuilder("Worker", 0).running()]


def running() -> Object:
    made = decide(job(STARTED), *pods(), services=all_services(1))
    assert made.status is not None
    return made.status


def test_job_that_is_created_suspended_has_no_pods() -> None:
    made = decide(job().suspend())
    assert conditions(made) == [
        ("Created", "True", "PyTorchJobCreated", "PyTorchJob digits is created."),
        ("Suspended", "True", "PyTorchJobSuspended", MESSAGE),
    ]
    assert made.status is not None
    assert "startTime" not in made.status
    assert made.creates == ()
    assert events(made) == [("Normal", "PyTorchJobSuspended", MESSAGE)]
    assert decide(job(made.status).suspend()).empty


def test_suspending_deletes_all_children_whatever_the_clean_pod_policy() -> None:
    pods_and_done = [PodBuilder("Master").running(), PodBuilder("Worker", 0).succeeded()]
    made = decide(job(running()).suspend(), *pods_and_done, services=all_services(1), now=at(60))
    assert deleted(made) == ["digits-master-0", "digits-worker-0"]
    assert deleted(made, "services") == ["digits-master-0", "digits-worker-0"]
    assert conditions(made)[1:] == [
        ("Running", "False", "PyTorchJobSuspended", MESSAGE),
        ("Suspended", "True", "PyTorchJobSuspended", MESSAGE),
    ]
    assert made.status is not None
    assert made.status["startTime"] == "2026-11-15T04:00:00Z"
    assert all("active" not in numbers for numbers in made.status["replicaStatuses"].values())


def test_status_is_not_written_for_each_pod_that_terminates() -> None:
    first = decide(job(running()).suspend(), *pods())
    assert first.status is not None
    assert first.status["replacedPods"] == ["digits-master-0-uid", "digits-worker-0-uid"]
    assert decide(job(first.status).suspend(), PodBuilder("Worker", 0).running().terminating()).empty


def test_plan_of_a_suspended_job_is_empty_when_its_pods_are_gone() -> None:
    first = decide(job(running()).suspend(), *pods())
    gone = decide(job(first.status).suspend())
    assert gone.status is not None
    assert "replacedPods" not in gone.status
    assert gone.events == ()
    assert decide(job(gone.status).suspend()).empty


def test_resuming_starts_again_from_the_beginning() -> None:
    spent = {**running(), "restarts": {"Worker": 3}, "completedIndexes": {"Worker": "0"}, "ports": {"Master": 1}}
    suspended = decide(job(spent).suspend())
    made = decide(job(suspended.status), now=at(90))
    assert created(made) == ["digits-master-0", "digits-worker-0"]
    assert states(made) == [("Created", "True"), ("Running", "False"), ("Suspended", "False")]
    assert conditions(made)[-1][2:] == ("PyTorchJobResumed", "PyTorchJob digits is resumed.")
    assert events(made) == [("Normal", "PyTorchJobResumed", "PyTorchJob digits is resumed.")]
    assert made.status is not None
    assert made.status["startTime"] == "2026-11-15T04:01:30Z"
    assert not {"restarts", "completedIndexes", "ports"} & made.status.keys()
    back = decide(job(made.status), *pods(), services=all_services(1), now=at(91))
    assert states(back) == [("Created", "True"), ("Suspended", "False"), ("Running", "True")]


def test_outcomes_of_pods_from_before_the_suspension_do_not_count() -> None:
    suspended = decide(job(running()).suspend(), *pods(), now=at(60))
    ended = [
        PodBuilder("Master").succeeded(finished=at(50)).terminating(at(60)),
        PodBuilder("Worker", 0).failed(1, finished=at(50)),
    ]
    resumed = decide(job(suspended.status), *ended, services=all_services(1), now=at(61))
    assert states(resumed)[-1] == ("Suspended", "False")
    assert resumed.creates == ()
    assert deleted(resumed) == ["digits-worker-0"]
    assert resumed.status is not None
    assert "restarts" not in resumed.status
    assert "completedIndexes" not in resumed.status


def test_a_finished_job_cannot_be_suspended() -> None:
    done = decide(job(running()), PodBuilder("Master").succeeded(), services=all_services(1))
    assert decide(job(done.status).suspend(), services=all_services(1)).empty
