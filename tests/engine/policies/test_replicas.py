"""Every rank has one pod and one Service. Objects of other owners are not changed."""

from tests.support.engine.planning import STARTED, all_services, created, decide, deleted, standing_events
from tests.support.objects.jobs import JobBuilder, PodBuilder, at, service, view_service


def job(workers: int) -> JobBuilder:
    return JobBuilder().workers(workers).status(STARTED)


def workers(count: int) -> list[PodBuilder]:
    return [PodBuilder("Worker", index).running() for index in range(count)]


def test_scaling_up_creates_the_missing_ranks() -> None:
    made = decide(job(3), *workers(1), services=all_services(1, master=False))
    assert created(made) == created(made, "Service") == ["digits-worker-1", "digits-worker-2"]


def test_scaling_down_deletes_the_last_ranks() -> None:
    made = decide(job(2), *workers(3), services=all_services(3, master=False))
    assert deleted(made) == deleted(made, "services") == ["digits-worker-2"]
    assert made.status is not None
    assert made.status["replicaStatuses"]["Worker"]["active"] == 2


def test_failed_rank_that_is_scaled_away_is_no_failure() -> None:
    made = decide(job(2).run_policy(backoffLimit=0), *workers(2), PodBuilder("Worker", 2).failed(1))
    assert deleted(made) == ["digits-worker-2"]
    assert made.status is not None
    assert made.status["conditions"][-1]["type"] == "Running"


def test_role_with_0_replicas_has_no_pods_and_does_not_succeed() -> None:
    made = decide(job(0), *workers(1))
    assert deleted(made) == ["digits-worker-0"]
    assert created(made) == []
    assert made.status is not None
    assert [condition["type"] for condition in made.status["conditions"]] == ["Created"]
    assert decide(JobBuilder().workers(0).status(made.status)).empty


def test_rank_that_was_scaled_away_is_created_again() -> None:
    status = {**STARTED, "completedIndexes": {"Worker": "0-2"}}
    down = decide(JobBuilder().workers(4).master().status(status))
    assert created(down) == ["digits-master-0", "digits-worker-3"]
    smaller = decide(JobBuilder().workers(2).master().status(status))
    assert smaller.status is not None
    assert smaller.status["completedIndexes"] == {"Worker": "0-1"}


def test_deleted_services_are_created_again() -> None:
    made = decide(job(2), *workers(2), services=all_services(1, master=False))
    assert created(made) == []
    assert created(made, "Service") == ["digits-worker-1"]


def test_pod_is_not_created_while_the_old_one_terminates() -> None:
    terminating = PodBuilder("Worker", 0).running().terminating()
    assert created(decide(job(1), terminating)) == []
    assert created(decide(job(1))) == ["digits-worker-0"]


def test_name_of_a_child_determines_its_rank() -> None:
    relabelled = PodBuilder("Worker", 0).running().label("training.kubeflow.org/replica-index", "7")
    made = decide(job(2), relabelled, PodBuilder("Worker", 1).metadata(name="digits-other"), PodBuilder("Chief", 0))
    assert deleted(made) == ["digits-other", "digits-chief-0"]
    assert created(made) == ["digits-worker-1"]


def test_foreign_pod_of_the_same_name_is_left_alone_and_reported() -> None:
    without_owner = PodBuilder("Worker", 0).owner(None).metadata(labels={})
    of_other_job = PodBuilder("Worker", 0).owner("other-uid")
    of_other_job.object["metadata"]["ownerReferences"][0]["name"] = "other-job"
    for foreign, manager in ((without_owner, ""), (of_other_job, " but by PyTorchJob other-job")):
        made = decide(job(2), foreign)
        assert deleted(made) == []
        assert created(made) == ["digits-worker-1"]
        ((reason, message),) = standing_events(made)
        assert reason == "ErrResourceExists"
        assert message == (
            'Resource "digits-worker-0" of Kind "Pod" already exists and is not managed by PyTorchJob digits'
            f"{manager}: delete it, or give the job another name"
        )
        assert made.requeue_at == at(5)


def test_foreign_service_of_the_same_name_is_left_alone_and_reported() -> None:
    foreign = service("Worker", 0)
    foreign["metadata"] |= {"ownerReferences": [], "labels": {}}
    made = decide(job(1), services=[view_service(foreign)])
    assert deleted(made, "services") == []
    assert created(made, "Service") == []
    ((reason, message),) = standing_events(made)
    assert reason == "ErrResourceExists"
    assert message.startswith('Resource "digits-worker-0" of Kind "Service" already exists')


def test_children_of_a_former_job_of_the_same_name_are_waited_for_without_an_event() -> None:
    for old in (PodBuilder("Worker", 0).owner("older-uid"), PodBuilder("Worker", 0).owner(None).terminating()):
        made = decide(job(1), old)
        assert created(made) == []
        assert standing_events(made) == []
        assert made.requeue_at == at(5)


def test_pods_that_cannot_be_created_yet_cause_no_warning_about_their_template() -> None:
    pod = {"spec": {"restartPolicy": "Always", "containers": [{"name": "pytorch", "image": "a"}]}}
    foreign, orphan = PodBuilder("Worker", 0).owner("another"), PodBuilder("Worker", 1).owner(None)
    made = decide(JobBuilder().workers(2, pod=pod).status(STARTED), foreign, orphan)
    assert created(made) == []
    assert "SetPodTemplateRestartPolicy" not in {event.reason for event in made.events}
