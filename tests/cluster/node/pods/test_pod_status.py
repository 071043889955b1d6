"""Pod status by the kubelet's rules."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.node.supervisor.containers.test_container_status import POLICIES, STATE, ended
from trainwright.cluster.node.pods.config.runtime_config import WaitingReason
from trainwright.cluster.node.pods.pod_status import phase, pod_status, same_status, transitions
from trainwright.cluster.node.supervisor.containers import container_status
from trainwright.cluster.node.supervisor.pod_json import ContainerState, ContainerStatus, PodState
from trainwright.objects import Object

NOW = datetime(2026, 11, 15, 4, 5, 6, 789, tzinfo=UTC)
START = "2026-11-15T04:05:06.123456789Z"
RUNNING = container_status.running(START)
CREATING = container_status.waiting("ContainerCreating")
CRASHED = container_status.waiting("CrashLoopBackOff", "back-off 10s")


def record(state: ContainerState, name: str = "main", *, last: ContainerState | None = None) -> ContainerStatus:
    return {"name": name, "restarts": 1 if last else 0, "state": state, "last": last or {}}


def pod(*, policy: str = "Never", init: bool = False, **status: Any) -> Object:
    spec: Object = {"restartPolicy": policy, "containers": [{"name": "main", "image": "trainwright/host"}]}
    if init:
        spec["initContainers"] = [{"name": "init", "image": "trainwright/host"}]
    return {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": spec, "status": status}


def state(main: ContainerStatus, *inits: ContainerStatus, **fields: Any) -> PodState:
    base = {"finished": False, "reason": "", "message": "", "initContainers": list(inits), "containers": [main]}
    return cast("PodState", {**base, **fields})


def status_of(subject: Object, found: PodState | None, **arguments: Any) -> Object:
    return pod_status(subject, address="127.64.0.1", host_address="127.0.0.1", state=found, now=NOW, **arguments)


@pytest.mark.parametrize(
    ("policy", "main", "finished", "expected"),
    [
        ("Never", record(CREATING), False, "Pending"),
        ("Never", record(RUNNING), False, "Running"),
        ("Never", record(ended(0)), True, "Succeeded"),
        ("Never", record(ended(1)), True, "Failed"),
        ("OnFailure", record(ended(1)), False, "Running"),
        ("OnFailure", record(CRASHED, last=ended(1)), False, "Running"),
        ("OnFailure", record(ended(0)), True, "Succeeded"),
        ("OnFailure", record(ended(143)), True, "Failed"),
        ("Always", record(ended(0)), False, "Running"),
        ("Always", record(CRASHED, last=ended(0)), False, "Running"),
        ("Always", record(ended(0)), True, "Succeeded"),
    ],
)
def test_the_phase(policy: str, main: ContainerStatus, finished: bool, expected: str) -> None:
    assert phase(policy, [], [main], finished=finished) == expected


@pytest.mark.parametrize(
    ("policy", "init", "expected"),
    [("Never", RUNNING, "Pending"), ("Never", ended(1), "Failed"), ("OnFailure", ended(1), "Pending")],
)
def test_the_phase_before_initialization(policy: str, init: ContainerState, expected: str) -> None:
    waiting = record(container_status.waiting("PodInitializing"))
    assert phase(policy, [record(init, "init")], [waiting], finished=False) == expected


@given(found=STATE, policy=POLICIES)
def test_only_finished_pods_are_in_a_final_phase(found: PodState, policy: str) -> None:
    inits, mains = found["initContainers"], found["containers"]
    if not any("running" in one["state"] for one in mains):
        assert phase(policy, inits, mains, finished=True) in {"Succeeded", "Failed"}
    if policy == "Always" and container_status.is_initialized(inits, mains):
        assert phase(policy, inits, mains, finished=False) in {"Pending", "Running"}


def conditions(status: Object) -> dict[str, tuple[str, str | None]]:
    return {one["type"]: (one["status"], one.get("reason")) for one in status["conditions"]}


def test_a_running_pod_is_ready() -> None:
    status = status_of(pod(init=True), state(record(RUNNING), record(ended(0), "init")))
    assert status["phase"] == "Running"
    assert conditions(status) == {
        "PodReadyToStartContainers": ("True", None),
        "Initialized": ("True", None),
        "Ready": ("True", None),
        "ContainersReady": ("True", None),
        "PodScheduled": ("True", None),
    }
    assert (status["podIP"], status["podIPs"], status["hostIP"]) == ("127.64.0.1", [{"ip": "127.64.0.1"}], "127.0.0.1")
    assert status["startTime"] == "2026-11-15T04:05:06Z"
    (main,) = status["containerStatuses"]
    assert main["ready"]
    assert main["state"] == {"running": {"startedAt": "2026-11-15T04:05:06Z"}}
    assert main["containerID"] == "trainwright://u/main/0"
    assert status["initContainerStatuses"][0]["ready"]


def test_a_pod_in_initialization_names_the_incomplete_containers() -> None:
    status = status_of(pod(init=True), None)
    assert status["phase"] == "Pending"
    by_type = {one["type"]: one for one in status["conditions"]}
    assert by_type["Initialized"]["message"] == "containers with incomplete status: [init]"
    assert by_type["Ready"]["message"] == "containers with unready status: [main]"
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert "containerID" not in status["containerStatuses"][0]


def test_a_waiting_reason_is_shown_on_its_container() -> None:
    reason = WaitingReason(reason="ImageHasNoCommand", message="add `command:`", container="main")
    status = status_of(pod(init=True), None, waiting=[reason])
    assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImageHasNoCommand"
    assert status["initContainerStatuses"][0]["state"]["waiting"]["reason"] == "ContainerCreating"


def test_finished_pods_give_the_reason_for_not_being_ready() -> None:
    assert conditions(status_of(pod(), state(record(ended(0)), finished=True)))["Ready"] == ("False", "PodCompleted")
    assert conditions(status_of(pod(), state(record(ended(1)), finished=True)))["Ready"] == ("False", "PodFailed")


def test_a_port_in_use_fails_the_pod_with_its_reason() -> None:
    found = state(record(CREATING), finished=True, reason="SandboxFailed", message="cannot create namespaces")
    status = status_of(pod(), found)
    assert (status["phase"], status["reason"], status["message"]) == (
        "Failed",
        "SandboxFailed",
        "cannot create namespaces",
    )


def test_a_condition_keeps_the_time_of_its_last_change_and_foreign_ones_stay() -> None:
    first = status_of(pod(), state(record(RUNNING)))
    foreign = {"type": "example.com/gate", "status": "True"}
    again = pod(**{**first, "conditions": [*first["conditions"], foreign], "qosClass": "BestEffort"})
    later = pod_status(
        again,
        address="127.64.0.1",
        host_address="127.0.0.1",
        state=state(record(RUNNING)),
        now=NOW + timedelta(minutes=1),
    )
    assert later == again["status"]


@given(found=STATE, policy=POLICIES)
def test_the_status_of_a_reported_status_is_the_same(found: PodState, policy: str) -> None:
    subject = pod(policy=policy)
    subject["spec"]["containers"] = [{"name": "c"}]
    first = status_of(subject, found)
    subject["status"] = first
    second = pod_status(
        subject, address="127.64.0.1", host_address="127.0.0.1", state=found, now=NOW + timedelta(seconds=9)
    )
    assert second == first
    assert transitions(subject, first, second) == []


def test_starts_and_back_offs_become_events() -> None:
    created = status_of(pod(), None)
    running = status_of(pod(), state(record(RUNNING)))
    crashed = status_of(pod(), state(record(CRASHED, last=ended(1))))
    again = status_of(pod(), state(record(RUNNING, last=ended(1))))
    finished = status_of(pod(), state(record(ended(0)), finished=True))

    def events(before: Object, after: Object) -> list[tuple[str, str, str]]:
        found = transitions(pod(), before, after)
        assert {event.field_path for event in found} <= {"spec.containers{main}"}
        return [(event.type, event.reason, event.message) for event in found]

    started = [
        (
            "Normal",
            "Pulled",
            'Container image "trainwright/host" already present on machine and can be accessed by the pod',
        ),
        ("Normal", "Created", "Container created"),
        ("Normal", "Started", "Container started"),
    ]
    assert events(created, running) == started
    assert events(created, finished) == started
    assert events(running, finished) == []
    assert events(running, crashed) == [
        ("Warning", "BackOff", "Back-off restarting failed container main in pod p_default(u)")
    ]
    assert events(crashed, again) == started
    assert events(running, again) == started


def test_a_program_that_cannot_be_executed_is_a_failed_event_and_an_unknown_image_is_not_pulled() -> None:
    subject = pod()
    subject["spec"]["containers"][0]["image"] = "elsewhere"
    error = container_status.terminated(
        exit_code=128, reason="StartError", message="exec: no", started_at=START, finished_at=START
    )
    found = transitions(subject, status_of(subject, None), status_of(subject, state(record(error), finished=True)))
    assert [(event.reason, event.message) for event in found] == [
        ("Created", "Container created"),
        ("Failed", "Error: exec: no"),
    ]


SIDECAR: ContainerStatus = {**record(RUNNING, "init"), "sidecar": True}


@pytest.mark.parametrize(
    ("sidecar", "main", "expected"),
    [
        ({**SIDECAR, "state": CREATING}, record(container_status.waiting("PodInitializing")), "Pending"),
        ({**SIDECAR, "started": False}, record(container_status.waiting("PodInitializing")), "Pending"),
        (SIDECAR, record(RUNNING), "Running"),
        ({**SIDECAR, "state": CRASHED, "last": ended(1)}, record(RUNNING), "Running"),
        (SIDECAR, record(ended(0)), "Running"),
        ({**SIDECAR, "state": ended(7)}, record(ended(0)), "Succeeded"),
        ({**SIDECAR, "state": ended(0)}, record(ended(1)), "Failed"),
    ],
)
def test_the_phase_with_a_sidecar(sidecar: ContainerStatus, main: ContainerStatus, expected: str) -> None:
    finished = "terminated" in sidecar["state"]
    assert phase("Never", [sidecar], [main], finished=finished) == expected


def test_a_sidecar_that_restarts_leaves_the_pod_initialized_and_unready() -> None:
    subject = pod(init=True)
    subject["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    crashed: ContainerStatus = {**SIDECAR, "state": CRASHED, "last": ended(1)}
    found = {one["type"]: one for one in status_of(subject, state(record(RUNNING), crashed))["conditions"]}
    assert found["Initialized"]["status"] == "True"
    assert found["Ready"]["message"] == "containers with unready status: [init]"


@given(st.dictionaries(st.sampled_from("abc"), st.none() | st.just({}) | st.just("x")))
def test_nulls_and_empty_values_make_no_difference(value: dict[str, Any]) -> None:
    kept = {key: part for key, part in value.items() if part}
    assert same_status({"list": [value]}, {"list": [kept]})
    assert not same_status({"list": [value], "phase": "Running"}, {"list": [kept], "phase": "Failed"})
