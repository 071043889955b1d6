"""Why a pod does not get on, told on the job."""

from tests.support.engine.planning import STARTED, all_services, decide, standing_events
from tests.support.objects.jobs import JobBuilder, PodBuilder


def told(pod: PodBuilder) -> list[tuple[str, str]]:
    made = decide(JobBuilder().workers(1).status(STARTED), pod)
    return standing_events(made)


def test_a_waiting_container_tells_its_message() -> None:
    assert told(PodBuilder().waiting("ImagePullBackOff", "no such image")) == [
        ("ImagePullBackOff", "Error pod digits-worker-0 container pytorch waiting message: no such image")
    ]
    assert told(PodBuilder().waiting("", "no such image"))[0][0] == "Waiting"
    assert told(PodBuilder().waiting("ContainerCreating")) == []


def test_a_container_that_ended_badly_in_a_living_pod_tells_its_code() -> None:
    pod = PodBuilder().failed(137)
    pod.object["status"]["phase"] = "Running"
    pod.object["status"]["containerStatuses"][0]["state"]["terminated"].update(reason="OOMKilled", message="too big")
    assert told(pod) == [
        ("OOMKilled", "Error pod digits-worker-0 container pytorch exitCode: 137 terminated message: too big")
    ]


def test_init_containers_are_looked_at_too() -> None:
    pod = PodBuilder().waiting("PodInitializing")
    state = {"terminated": {"exitCode": 1, "message": "no master"}}
    pod.object["status"]["initContainerStatuses"] = [{"name": "init-pytorch", "state": state}]
    assert told(pod) == [
        ("Error", "Error pod digits-worker-0 container init-pytorch exitCode: 1 terminated message: no master")
    ]


def test_a_pod_without_containers_tells_its_newest_condition() -> None:
    pod = PodBuilder().condition("Ready", "True", lastTransitionTime="2026-11-15T04:00:00Z")
    pod.condition(
        "PodScheduled", "False", reason="Unschedulable", message="no nodes", lastTransitionTime="2026-11-15T04:00:01Z"
    )
    assert told(pod) == [("Unschedulable", "Error pod digits-worker-0 condition message: no nodes")]
    pod.condition("Initialized", "True")
    assert told(pod) != [], "what has no date is older than anything"


def test_pods_that_are_well_or_over_tell_nothing() -> None:
    assert told(PodBuilder()) == []
    assert told(PodBuilder().condition("PodScheduled", "True")) == []
    assert told(PodBuilder().running()) == []
    assert told(PodBuilder().failed(1)) == []
    assert told(PodBuilder().waiting("ImagePullBackOff", "x").terminating()) == []


def test_telling_a_problem_is_no_change() -> None:
    first = decide(JobBuilder().workers(1), PodBuilder().waiting("ImagePullBackOff", "x"))
    pod = PodBuilder().waiting("ImagePullBackOff", "x")
    again = decide(JobBuilder().workers(1).status(first.status), pod, services=all_services(1, master=False))
    assert again.standing_events
    assert again.empty
