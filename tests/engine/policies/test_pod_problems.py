"""Problems of pods are reported as events of the job."""

from tests.support.engine.planning import STARTED, all_services, decide, standing_events
from tests.support.objects.jobs import JobBuilder, PodBuilder


def reported(pod: PodBuilder) -> list[tuple[str, str]]:
    made = decide(JobBuilder().workers(1).status(STARTED), pod)
    return standing_events(made)


def test_message_of_a_waiting_container_is_reported() -> None:
    assert reported(PodBuilder().waiting("ImagePullBackOff", "no such image")) == [
        ("ImagePullBackOff", "Error pod digits-worker-0 container pytorch waiting message: no such image")
    ]
    assert reported(PodBuilder().waiting("", "no such image"))[0][0] == "Waiting"
    assert reported(PodBuilder().waiting("ContainerCreating")) == []


def test_exit_code_of_a_terminated_container_in_an_unfinished_pod_is_reported() -> None:
    pod = PodBuilder().failed(137)
    pod.object["status"]["phase"] = "Running"
    pod.object["status"]["containerStatuses"][0]["state"]["terminated"].update(reason="OOMKilled", message="too big")
    assert reported(pod) == [
        ("OOMKilled", "Error pod digits-worker-0 container pytorch exitCode: 137 terminated message: too big")
    ]


def test_problems_of_init_containers_are_reported() -> None:
    pod = PodBuilder().waiting("PodInitializing")
    state = {"terminated": {"exitCode": 1, "message": "no master"}}
    pod.object["status"]["initContainerStatuses"] = [{"name": "init-pytorch", "state": state}]
    assert reported(pod) == [
        ("Error", "Error pod digits-worker-0 container init-pytorch exitCode: 1 terminated message: no master")
    ]


def test_newest_condition_of_a_pod_without_container_statuses_is_reported() -> None:
    pod = PodBuilder().condition("Ready", "True", lastTransitionTime="2026-11-15T04:00:00Z")
    pod.condition(
        "PodScheduled", "False", reason="Unschedulable", message="no nodes", lastTransitionTime="2026-11-15T04:00:01Z"
    )
    assert reported(pod) == [("Unschedulable", "Error pod digits-worker-0 condition message: no nodes")]
    pod.condition("Initialized", "True")
    assert reported(pod) != [], "a condition without a time is the oldest"


def test_healthy_and_finished_pods_are_not_reported() -> None:
    assert reported(PodBuilder()) == []
    assert reported(PodBuilder().condition("PodScheduled", "True")) == []
    assert reported(PodBuilder().running()) == []
    assert reported(PodBuilder().failed(1)) == []
    assert reported(PodBuilder().waiting("ImagePullBackOff", "x").terminating()) == []


def test_plan_with_a_standing_event_only_is_empty() -> None:
    first = decide(JobBuilder().workers(1), PodBuilder().waiting("ImagePullBackOff", "x"))
    pod = PodBuilder().waiting("ImagePullBackOff", "x")
    again = decide(JobBuilder().workers(1).status(first.status), pod, services=all_services(1, master=False))
    assert again.standing_events
    assert again.empty
