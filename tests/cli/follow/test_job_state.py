"""A job's story: what is shown of it, told only by what was seen."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.objects.jobs import JOB_UID, JobBuilder, PodBuilder, at, template
from trainwright.cli.follow.job_state import JobStory, phase_of
from trainwright.objects import Object


def story(**container: Any) -> JobStory:
    pod = template(**container)
    return JobStory(JobBuilder().master(pod=pod).workers(2, pod=pod).job(), JOB_UID)


def ended(kind: str) -> Object:
    return JobBuilder().status({"conditions": [{"type": kind, "status": "True", "message": "so it is"}]}).raw()


def warning(about: str, *, reason: str = "UnknownImage", message: str = "no image", name: str = "event") -> Object:
    return {"metadata": {"name": name}, "involvedObject": {"uid": about}, "reason": reason, "message": message}


def test_phases_are_shown_by_rank() -> None:
    told = story()
    told.see_pod(PodBuilder("Worker", 1).raw())
    told.see_pod(PodBuilder("Worker", 0).running().raw())
    told.see_pod(PodBuilder("Master", 0).running().raw())
    assert told.phases() == "master-0 Running  worker-0 Running  worker-1 Pending"


def test_many_pods_are_counted_by_role() -> None:
    told = story()
    told.see_pod(PodBuilder("Master", 0).running().raw())
    for index in range(12):
        pod = PodBuilder("Worker", index)
        told.see_pod((pod.running() if index < 10 else pod).raw())
    assert told.phases() == "master 1 Running  worker 2 Pending, 10 Running"


def test_a_pod_that_is_gone_is_no_longer_shown() -> None:
    told = story()
    told.see_pod(PodBuilder("Master", 0, uid="first").running().raw())
    told.lose_pod("first")
    told.lose_pod("never seen")
    assert told.phases() == ""


def test_a_suspended_job_says_what_it_waits_for() -> None:
    told = story()
    told.object["spec"]["runPolicy"] = {"suspend": True}
    assert told.phases() == "suspended, until its spec.runPolicy.suspend is set to false"
    told.see_pod(PodBuilder("Master", 0).running().raw())
    assert told.phases() == "master-0 Running"


def test_pods_of_others_are_not_ours() -> None:
    told = story()
    told.see_pod(PodBuilder("Master", 0).owner("another job").raw())
    told.see_pod(PodBuilder("Master", 0).owner(None).raw())
    assert told.phases() == ""


@pytest.mark.parametrize(
    ("pod", "word"),
    [
        (PodBuilder(), "Pending"),
        (PodBuilder().waiting("ContainerCreating"), "Pending"),
        (PodBuilder().waiting("ImageHasNoCommand"), "ImageHasNoCommand"),
        (PodBuilder().running(), "Running"),
        (PodBuilder().running(restarts=2), "Running (restart 2)"),
        (PodBuilder().succeeded(), "Succeeded"),
        (PodBuilder().failed(1), "Failed"),
        (PodBuilder().failed(None).reason("Evicted"), "Evicted"),
        (PodBuilder().condition("PodScheduled", "False", reason="Unschedulable"), "Unschedulable"),
        (PodBuilder().running().terminating(), "Terminating"),
    ],
)
def test_one_word_says_how_far_a_pod_is(pod: PodBuilder, word: str) -> None:
    assert phase_of(pod.pod()) == word


def test_a_worker_that_waits_for_its_master_is_in_its_init_container() -> None:
    pod = PodBuilder("Worker", 0).raw()
    pod["status"]["initContainerStatuses"] = [{"name": "init", "state": {"running": {}}}]
    told = story()
    told.see_pod(pod)
    assert told.phases() == "worker-0 Init"


@pytest.mark.parametrize("kind", ["Succeeded", "Failed"])
def test_the_jobs_conditions_say_how_it_ended(kind: str) -> None:
    told = story()
    assert told.outcome is None
    told.see_job(ended(kind))
    assert told.outcome == kind


def test_a_job_that_disappears_was_deleted() -> None:
    told = story()
    told.see_job(None)
    assert told.outcome == "Deleted"


def test_another_job_of_the_same_name_is_not_ours() -> None:
    told = story()
    told.see_job(JobBuilder().metadata(uid="new").raw())
    assert told.outcome == "Deleted"


def test_a_job_that_finished_and_was_deleted_has_finished() -> None:
    told = story()
    told.see_job(ended("Succeeded"))
    told.see_job(None)
    assert told.outcome == "Succeeded"


@pytest.mark.parametrize("reason", ["ImageHasNoCommand", "UnsupportedVolume"])
def test_what_no_waiting_mends_never_starts(reason: str) -> None:
    told = story()
    told.see_pod(PodBuilder("Worker", 1).waiting(reason, "change it").raw())
    assert told.outcome == "Stuck"
    assert told.stuck is not None
    assert told.stuck[0] == "worker-1"


def test_an_image_that_is_being_pulled_again_may_still_start() -> None:
    told = story()
    told.see_pod(PodBuilder("Worker", 1).waiting("ImagePullBackOff").raw())
    assert told.outcome is None


def test_progress_is_that_of_the_first_rank_that_tells_any() -> None:
    told = story(command=["python", "train.py"], args=["--epochs=4"])
    for role, index in (("Master", 0), ("Worker", 0), ("Worker", 1)):
        told.see_pod(PodBuilder(role, index).running().raw())
    told.hear("digits-worker-1-uid", "Train Epoch: 1 [10/100 (10%)] loss=3.0", 1.0)
    assert told.progress.metrics == {"loss": 3.0}
    told.hear("digits-master-0-uid", "Train Epoch: 2 [50/100 (50%)] loss=2.0", 2.0)
    told.hear("digits-worker-0-uid", "Train Epoch: 1 [20/100 (20%)] loss=1.0", 3.0)
    assert told.progress.metrics == {"loss": 2.0}
    assert told.progress.fraction == pytest.approx(0.375)


def test_warnings_are_shown_once_their_pod_is_known() -> None:
    told = story()
    told.see_warning(warning("digits-master-0-uid"), 0.0)
    assert told.new_warnings(0.0) == []
    told.see_pod(PodBuilder("Master", 0).raw())
    assert told.new_warnings(0.1) == ["master-0: UnknownImage: no image"]
    assert told.new_warnings(0.2) == []


def test_the_same_warning_of_several_pods_is_shown_once() -> None:
    told = story()
    for index in range(2):
        told.see_pod(PodBuilder("Worker", index).raw())
        told.see_warning(warning(f"digits-worker-{index}-uid", name=f"event-{index}"), 0.0)
    assert told.new_warnings(0.0) == ["worker-0: UnknownImage: no image"]


def test_what_the_job_says_about_its_pods_is_not_repeated() -> None:
    told = story()
    told.see_pod(PodBuilder("Master", 0).raw())
    retold = warning(JOB_UID, reason="FailedMount", message="Error pod digits-master-0 waiting message: no volume")
    told.see_warning(retold, 0.0)
    told.see_warning(warning("digits-master-0-uid", reason="FailedMount", message="no volume", name="pod's"), 0.0)
    assert told.new_warnings(0.1) == ["master-0: FailedMount: no volume"]


def test_among_others_a_warning_says_whose_rank_it_is_about() -> None:
    told = story()
    told.see_pod(PodBuilder("Master", 0).raw())
    told.see_warning(warning("digits-master-0-uid"), 0.0)
    told.see_warning(warning(JOB_UID, message="odd", name="job's"), 0.0)
    assert told.new_warnings(0.0, among_others=True) == [
        "digits/master-0: UnknownImage: no image",
        "digits: UnknownImage: odd",
    ]


def test_warnings_about_others_are_not_shown() -> None:
    told = story()
    told.see_warning(warning("somebody else"), 0.0)
    assert told.new_warnings(100.0) == []


def test_that_a_volume_is_not_bound_yet_is_not_worth_a_word_until_it_lasts() -> None:
    told = story()
    told.see_pod(PodBuilder("Master", 0).raw())
    told.see_warning(warning(JOB_UID, reason="Unschedulable", message="unbound"), 10.0)
    assert told.new_warnings(11.0) == []
    assert told.new_warnings(13.5) == ["digits: Unschedulable: unbound"]


def test_what_has_passed_meanwhile_is_not_shown() -> None:
    told = story()
    told.see_warning(warning(JOB_UID, reason="Unschedulable", message="unbound"), 10.0)
    told.see_pod({**PodBuilder("Master", 0).running().raw(), "spec": {"nodeName": "local"}})
    assert told.new_warnings(13.5) == []


def test_the_first_failure_is_remembered_with_its_last_words() -> None:
    told = story()
    told.see_pod(PodBuilder("Worker", 1).running().raw())
    told.hear("digits-worker-1-uid", "ValueError: boom", 1.0)
    told.see_pod(PodBuilder("Worker", 1).failed(3, finished=at(5)).raw())
    told.see_pod(PodBuilder("Master", 0).failed(1, finished=at(6)).raw())
    told.lose_pod("digits-worker-1-uid")
    failure = told.first_failure()
    assert failure is not None
    assert (failure.rank, failure.exit_code, failure.last_lines) == ("worker-1", 3, ("ValueError: boom",))


def test_without_a_failure_nobody_is_blamed() -> None:
    assert story().first_failure() is None


@given(st.lists(st.text(), max_size=300))
def test_any_output_can_be_heard(lines: list[str]) -> None:
    told = story()
    told.see_pod(PodBuilder("Master", 0).running().raw())
    for number, line in enumerate(lines):
        told.hear("digits-master-0-uid", line, float(number))
    assert told.outcome is None
