"""Restart policy, back-off and pods whose supervisor ended, without any process."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.node.pods.pod_status import phase
from trainwright.cluster.node.supervisor.containers import container_status
from trainwright.cluster.node.supervisor.pod_json import ContainerState, ContainerStatus, PodState

NOW = "2026-11-15T04:05:06.000000000Z"
POLICIES = st.sampled_from(["Always", "OnFailure", "Never"])


def ended(code: int) -> ContainerState:
    return container_status.terminated(exit_code=code, reason="Error", started_at=NOW, finished_at=NOW)


STATES = st.one_of(
    st.just(container_status.waiting("ContainerCreating")),
    st.just(container_status.running(NOW)),
    st.integers(0, 2).map(ended),
)
STATUSES = st.builds(
    lambda state, last: {"name": "c", "restarts": 1 if last else 0, "state": state, "last": last},
    STATES,
    st.sampled_from([{}, ended(1)]),
)


def named(prefix: str, statuses: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**status, "name": f"{prefix}{index}"} for index, status in enumerate(statuses)]


STATE = st.fixed_dictionaries(
    {
        "initContainers": st.lists(STATUSES, max_size=2).map(lambda statuses: named("init", statuses)),
        "containers": st.lists(STATUSES, min_size=1, max_size=3).map(lambda statuses: named("main", statuses)),
        "finished": st.just(False),
        "reason": st.just(""),
        "message": st.just(""),
    }
)


def test_delays_double_from_ten_seconds_to_five_minutes() -> None:
    delays: list[float] = []
    for _ in range(8):
        last = delays[-1] if delays else None
        delays.append(container_status.next_backoff(last, ran=1, backoff=container_status.BACKOFF))
    assert delays == [0, 10, 20, 40, 80, 160, 300, 300]


def test_back_off_is_reset_after_ten_minutes() -> None:
    assert container_status.next_backoff(300, ran=600, backoff=container_status.BACKOFF) == 0
    assert container_status.next_backoff(300, ran=599, backoff=container_status.BACKOFF) == 300


def test_exit_codes_are_those_of_a_shell() -> None:
    assert container_status.decode_wait_status(7 << 8) == (7, 0)
    assert container_status.decode_wait_status(9) == (137, 9)
    assert container_status.decode_wait_status(15 | 0x80) == (143, 15)  # with a core dump


def test_the_restart_policy_decides_whether_a_container_restarts() -> None:
    table = {
        (p, c): container_status.should_restart(p, c, init=False)
        for p in ("Always", "OnFailure", "Never")
        for c in (0, 1)
    }
    assert [key for key, again in table.items() if again] == [("Always", 0), ("Always", 1), ("OnFailure", 1)]
    assert not container_status.should_restart("Always", 0, init=True)
    assert container_status.should_restart("Always", 1, init=True)
    assert not container_status.should_restart("Never", 1, init=True)


@given(state=STATE, policy=POLICIES)
def test_a_pod_without_supervisor_runs_nothing_and_is_finished_or_restarted(state: PodState, policy: str) -> None:
    after = container_status.without_supervisor(state, policy, NOW)
    statuses = after["initContainers"] + after["containers"]
    assert not any("running" in status["state"] for status in statuses)
    if policy == "Never":
        assert after["finished"]
    if after["finished"]:
        assert phase(policy, after["initContainers"], after["containers"], finished=True) in {"Succeeded", "Failed"}
        assert all("terminated" in status["state"] for status in after["containers"])
    else:
        assert not container_status.is_finished(policy, after["initContainers"], after["containers"])


@given(state=STATE, policy=POLICIES)
def test_containers_that_had_terminated_before_the_supervisor_ended_keep_their_status(
    state: PodState, policy: str
) -> None:
    after = container_status.without_supervisor(state, policy, NOW)
    for before, now in zip(state["containers"], after["containers"], strict=True):
        if "terminated" in before["state"]:
            assert now == before
        if "running" in before["state"]:
            found = now["state"]["terminated"]
            assert (found["reason"], found["exitCode"]) == ("ContainerStatusUnknown", 137)


@given(state=STATE, policy=POLICIES)
def test_a_shutdown_is_the_reason_of_a_pod_that_it_finished_and_does_not_count_as_a_restart(
    state: PodState, policy: str
) -> None:
    after = container_status.without_supervisor(state, policy, NOW, shutdown=True)
    pairs = zip(
        [*state["initContainers"], *state["containers"]], [*after["initContainers"], *after["containers"]], strict=True
    )
    stopped = [now for before, now in pairs if "running" in before["state"]]
    assert (after["reason"] == "Terminated") == (after["finished"] and bool(stopped))
    initialized = [now for now in after["initContainers"] if container_status.exit_code(now) == 0]
    for status in [*stopped, *([] if after["finished"] else initialized)]:
        again = container_status.next_run(status)
        assert again["restarts"] - again["disruptions"] == status["restarts"]


@given(state=STATE, policy=POLICIES)
def test_a_finished_pod_has_no_container_to_restart(state: PodState, policy: str) -> None:
    if container_status.is_finished(policy, state["initContainers"], state["containers"]):
        for init, statuses in ((True, state["initContainers"]), (False, state["containers"])):
            codes = [code for status in statuses if (code := container_status.exit_code(status)) is not None]
            if container_status.is_initialized(state["initContainers"], []):
                assert not any(container_status.should_restart(policy, code, init=init) for code in codes)


def test_timestamps_have_nanoseconds() -> None:
    assert container_status.timestamp(1_000_000_001_000_000_002) == "2001-09-09T01:46:41.000000002Z"


def test_every_run_is_recorded_until_there_are_too_many() -> None:
    status = container_status.new_status("main", initialized=True)
    for number in range(container_status.MAX_RUNS + 2):
        status = container_status.with_finished_run(container_status.next_run(status), ended(number % 2))
        assert status["restarts"] == number
    runs = container_status.finished_runs(status)
    assert [run["number"] for run in runs] == list(range(2, container_status.MAX_RUNS + 2))
    assert runs[-1] == {"number": container_status.MAX_RUNS + 1, **ended(1)["terminated"]}


def test_a_run_that_ended_with_its_supervisor_is_recorded() -> None:
    status = container_status.new_status("main", initialized=True)
    status["state"] = container_status.running(NOW)
    state: PodState = {"initContainers": [], "containers": [status], "finished": False, "reason": "", "message": ""}
    (found,) = container_status.without_supervisor(state, "OnFailure", NOW)["containers"]
    assert [(run["number"], run["reason"]) for run in found["runs"]] == [(0, "ContainerStatusUnknown")]
    assert container_status.next_run(found)["restarts"] == 1


def test_a_terminated_container_names_its_signal_and_message_if_it_has_them() -> None:
    bare = ended(1)["terminated"]
    full = container_status.terminated(
        exit_code=1, reason="Error", started_at=NOW, finished_at=NOW, signal=9, message="why"
    )
    assert full == {"terminated": {**bare, "signal": 9, "message": "why"}}
    assert not bare.keys() & {"signal", "message"}


def test_a_container_is_started_and_ready_unless_its_probes_deny_it() -> None:
    status = container_status.new_status("main", initialized=True)
    assert not container_status.is_started(status)
    assert not container_status.is_ready(status)
    running: ContainerStatus = {**status, "state": container_status.running(NOW)}
    for probed in (None, True, False):
        found: ContainerStatus = running if probed is None else {**running, "started": probed, "ready": probed}
        assert container_status.is_started(found) is container_status.is_ready(found) is (probed is not False)


def test_a_sidecar_restarts_always_and_keeps_no_pod_from_finishing() -> None:
    sidecar: ContainerStatus = {
        **container_status.new_status("side", initialized=False, sidecar=True),
        "state": ended(0),
    }
    main: ContainerStatus = {**container_status.new_status("main", initialized=True), "state": ended(0)}
    for policy in ("Always", "OnFailure", "Never"):
        assert container_status.should_restart(policy, 0, init=True, sidecar=True)
    assert container_status.is_finished("Never", [sidecar], [main])
    assert not container_status.is_finished("Always", [sidecar], [main])


def test_a_pod_is_initialized_when_its_sidecars_have_started_once() -> None:
    sidecar = container_status.new_status("side", initialized=True, sidecar=True)
    waiting = container_status.new_status("main", initialized=False)
    assert not container_status.is_initialized([sidecar], [waiting])
    assert container_status.is_initialized([{**sidecar, "state": container_status.running(NOW)}], [waiting])
    begun: ContainerStatus = {**waiting, "state": container_status.running(NOW)}
    crashed: ContainerStatus = {**waiting, "state": container_status.waiting("CrashLoopBackOff"), "last": ended(1)}
    for main in (begun, crashed):
        assert container_status.is_initialized([{**sidecar, "state": ended(1)}], [main]), "it restarts later"
    assert not container_status.is_initialized([sidecar], [{**crashed, "last": {}}])


@given(st.integers(0, 255))
def test_a_program_that_ended_with_the_cluster_runs_again_without_counting(code: int) -> None:
    status: ContainerStatus = {
        **container_status.new_status("main", initialized=True),
        "state": container_status.running(NOW),
    }
    stopped = container_status.ended_by_shutdown(status, code, started_at=NOW, finished_at=NOW)
    found = stopped["state"]["terminated"]
    assert (found["exitCode"], found["reason"]) == (137, "ContainerStatusUnknown")
    assert str(code) in found["message"]
    assert [run["exitCode"] for run in container_status.finished_runs(stopped)] == [137]
    again = container_status.next_run(stopped)
    assert (again["restarts"], again["disruptions"], again["disrupted"]) == (1, 1, False)


@given(code=st.none() | st.integers(0, 2), policy=POLICIES, init=st.booleans())
def test_a_new_supervisor_starts_what_has_not_finished(code: int | None, policy: str, init: bool) -> None:
    status: ContainerStatus = {**container_status.new_status("c", initialized=True), "restarts": 3}
    status["state"] = container_status.running(NOW) if code is None else ended(code)
    found = container_status.reset_for_restart(status, init=init, policy=policy)
    if code is not None and (init or container_status.should_restart(policy, code, init=False)):
        assert found["last"] == status["state"]
        assert found["state"] == container_status.waiting("ContainerCreating" if init else "PodInitializing")
    else:
        assert found == status


def test_runs_of_an_earlier_version_are_read_from_state_and_last() -> None:
    old: ContainerStatus = {"name": "c", "restarts": 2, "state": ended(1), "last": ended(2)}
    runs = [(run["number"], run["exitCode"]) for run in container_status.finished_runs(old)]
    assert runs == [(1, 2), (2, 1)]
    waiting: ContainerStatus = {**old, "state": container_status.waiting("CrashLoopBackOff")}
    assert [run["number"] for run in container_status.finished_runs(waiting)] == [2]


def test_durations_are_those_of_go() -> None:
    texts = [container_status.duration(seconds) for seconds in (0, 10, 0.5, 80, 300, 3600, 3661)]
    assert texts == ["0s", "10s", "0.5s", "1m20s", "5m0s", "1h0m0s", "1h1m1s"]
