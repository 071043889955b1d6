"""The results of probes, without any process: every sequence of attempts."""

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.node.supervisor.lifecycle import probe_state
from trainwright.cluster.node.supervisor.lifecycle.probe_state import (
    FAILURE,
    LIVENESS,
    READINESS,
    STARTUP,
    SUCCESS,
    UNKNOWN,
    ProbeState,
)

KINDS = st.sampled_from([STARTUP, LIVENESS, READINESS])
OUTCOMES = st.lists(st.sampled_from([SUCCESS, FAILURE, UNKNOWN]), max_size=30)
THRESHOLDS = st.integers(1, 4)


def after(kind: str, outcomes: list[str], success: int, failure: int) -> ProbeState:
    state = probe_state.initial_state(kind)
    for outcome in outcomes:
        state = probe_state.after_attempt(kind, state, outcome, success=success, failure=failure)
    return state


@given(kind=KINDS, outcomes=OUTCOMES, success=THRESHOLDS, failure=THRESHOLDS)
def test_a_result_needs_as_many_equal_attempts_in_a_row_as_its_threshold(
    kind: str, outcomes: list[str], success: int, failure: int
) -> None:
    state = after(kind, outcomes, success, failure)
    known = [outcome for outcome in outcomes if outcome != UNKNOWN]
    initial = probe_state.initial_state(kind)["result"]
    expected = initial
    held = False
    for end in range(1, len(known) + 1):
        outcome = known[end - 1]
        threshold = success if outcome == SUCCESS else failure
        if not held and known[max(0, end - threshold) : end] == [outcome] * threshold:
            expected = outcome
            held = kind == STARTUP or (kind == LIVENESS and outcome == FAILURE)
    assert (state["result"], state["held"]) == (expected, held)


@given(kind=KINDS, outcomes=OUTCOMES, success=THRESHOLDS, failure=THRESHOLDS)
def test_attempts_that_could_not_be_made_change_nothing(
    kind: str, outcomes: list[str], success: int, failure: int
) -> None:
    known = [outcome for outcome in outcomes if outcome != UNKNOWN]
    assert after(kind, outcomes, success, failure) == after(kind, known, success, failure)


@given(
    outcomes=st.fixed_dictionaries({}, optional={STARTUP: OUTCOMES, LIVENESS: OUTCOMES, READINESS: OUTCOMES}),
    success=THRESHOLDS,
    failure=THRESHOLDS,
)
def test_a_ready_container_has_started_and_is_never_killed_for_its_readiness(
    outcomes: dict[str, list[str]], success: int, failure: int
) -> None:
    states = {kind: after(kind, found, success, failure) for kind, found in outcomes.items()}
    assert probe_state.is_started(states) or not probe_state.is_ready(states)
    assert probe_state.failed_probe(states) in {None, LIVENESS, STARTUP}
    active = {kind for kind in states if probe_state.is_active(kind, states)}
    assert STARTUP not in active or active == {STARTUP}
    if probe_state.failed_probe(states) is None and not active:
        assert set(states) <= {STARTUP}, "a healthy container has a next attempt"


def test_a_container_without_probes_is_ready() -> None:
    assert probe_state.is_started({})
    assert probe_state.is_ready({})
    assert probe_state.failed_probe({}) is None
