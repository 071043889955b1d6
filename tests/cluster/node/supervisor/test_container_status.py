"""Restarts, back-off and the loss of a supervisor, decided without any process."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.node.pods.pod_status import phase
from trainwright.cluster.node.supervisor import container_status

NOW = "2026-11-15T04:05:06.000000000Z"
POLICIES = st.sampled_from(["Always", "OnFailure", "Never"])


def ended(code: int) -> dict[str, Any]:
    return container_status.terminated(exit_code=code, reason="Error", started_at=NOW, finished_at=NOW)


STATES = st.one_of(
    st.just(container_status.waiting("ContainerCreating")),
    st.just(container_status.running(NOW)),
    st.integers(0, 2).map(ended),
)
RECORDS = st.builds(
    lambda state, last: {"name": "c", "restarts": 1 if last else 0, "state": state, "last": last},
    STATES,
    st.sampled_from([{}, ended(1)]),
)


def named(prefix: str, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**record, "name": f"{prefix}{index}"} for index, record in enumerate(records)]


STATE = st.fixed_dictionaries(
    {
        "initContainers": st.lists(RECORDS, max_size=2).map(lambda records: named("init", records)),
        "containers": st.lists(RECORDS, min_size=1, max_size=3).map(lambda records: named("main", records)),
        "finished": st.just(False),
        "reason": st.just(""),
        "message": st.just(""),
    }
)


def test_delays_double_from_ten_seconds_to_five_minutes() -> None:
    delays: list[float] = []
    for _ in range(8):
        last = delays[-1] if delays else None
        delays.append(container_status.next_delay(last, ran=1, backoff=container_status.BACKOFF))
    assert delays == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_container_that_ran_for_ten_minutes_starts_over() -> None:
    assert container_status.next_delay(300, ran=600, backoff=container_status.BACKOFF) == 0
    assert container_status.next_delay(300, ran=599, backoff=container_status.BACKOFF) == 300


def test_exit_codes_are_those_of_a_shell() -> None:
    assert container_status.exit_of(7 << 8) == (7, 0)
    assert container_status.exit_of(9) == (137, 9)
    assert container_status.exit_of(15 | 0x80) == (143, 15)  # with a core dump


def test_policies_decide_who_is_restarted() -> None:
    table = {
        (p, c): container_status.restarts(p, c, init=False) for p in ("Always", "OnFailure", "Never") for c in (0, 1)
    }
    assert [key for key, again in table.items() if again] == [("Always", 0), ("Always", 1), ("OnFailure", 1)]
    assert not container_status.restarts("Always", 0, init=True)
    assert container_status.restarts("Always", 1, init=True)
    assert not container_status.restarts("Never", 1, init=True)


@given(state=STATE, policy=POLICIES)
def test_a_lost_pod_runs_nothing_and_either_ends_or_starts_again(state: dict[str, Any], policy: str) -> None:
    lost = container_status.lost(state, policy, NOW)
    everybody = lost["initContainers"] + lost["containers"]
    assert not any("running" in record["state"] for record in everybody)
    if policy == "Never":
        assert lost["finished"]
    if lost["finished"]:
        assert phase(policy, lost["initContainers"], lost["containers"], ended=True) in {"Succeeded", "Failed"}
        assert all("terminated" in record["state"] for record in lost["containers"])
    else:
        assert not container_status.settled(policy, lost["initContainers"], lost["containers"])


@given(state=STATE, policy=POLICIES)
def test_what_had_ended_before_the_loss_is_not_changed_by_it(state: dict[str, Any], policy: str) -> None:
    lost = container_status.lost(state, policy, NOW)
    for before, after in zip(state["containers"], lost["containers"], strict=True):
        if "terminated" in before["state"]:
            assert after == before
        if "running" in before["state"]:
            found = after["state"]["terminated"]
            assert (found["reason"], found["exitCode"]) == ("ContainerStatusUnknown", 137)


@given(state=STATE, policy=POLICIES)
def test_a_settled_pod_has_nothing_left_to_restart(state: dict[str, Any], policy: str) -> None:
    if container_status.settled(policy, state["initContainers"], state["containers"]):
        for init, records in ((True, state["initContainers"]), (False, state["containers"])):
            codes = [code for record in records if (code := container_status.exit_code_of(record)) is not None]
            if container_status.initialized(state["initContainers"]):
                assert not any(container_status.restarts(policy, code, init=init) for code in codes)


def test_timestamps_have_nanoseconds() -> None:
    assert container_status.timestamp(1_000_000_001_000_000_002) == "2001-09-09T01:46:41.000000002Z"
