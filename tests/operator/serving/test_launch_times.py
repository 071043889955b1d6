"""From the wish to the run: at which write a job began to run, and since when it was wanted."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.engine.conditions import CREATED, RESTARTING, RUNNING, SUSPENDED, set_condition
from trainwright.objects import Object
from trainwright.operator.serving.launch_times import first_running, launch_began

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def job(*steps: tuple[str, str, bool]) -> Object:
    """A job whose conditions were set one after the other, a second apart, by the engine's own rule."""
    status: Object = {}
    for second, (kind, word, truth) in enumerate(steps):
        set_condition(status, kind, reason=f"PyTorchJob{word}", message="", now=NOW.replace(second=second), truth=truth)
    return {"metadata": {"creationTimestamp": "2026-11-15T11:59:58Z"}, "status": status}


created = (CREATED, "Created", True)
running = (RUNNING, "Running", True)
restarting = (RESTARTING, "Restarting", True)
halted = (RUNNING, "Suspended", False)
suspended = (SUSPENDED, "Suspended", True)
resumed = (SUSPENDED, "Resumed", False)


@pytest.mark.parametrize(
    ("before", "step", "first"),
    [
        ((created,), running, True),
        ((created, running), running, False),
        ((created,), restarting, False),
        ((created, running, restarting), running, False),
        ((created, suspended, resumed), running, True),
        ((created, running, halted, suspended, resumed), running, True),
        ((created, running), (RUNNING, "Succeeded", False), False),
    ],
)
def test_the_first_running_of_each_launch(
    before: tuple[tuple[str, str, bool], ...], step: tuple[str, str, bool], first: bool
) -> None:
    assert first_running(job(*before), job(*before, step)) is first


def test_a_job_is_wanted_from_its_creation_or_its_resumption() -> None:
    assert launch_began(job(created)) == datetime(2026, 11, 15, 11, 59, 58, tzinfo=UTC)
    assert launch_began(job(created, suspended)) == datetime(2026, 11, 15, 11, 59, 58, tzinfo=UTC)
    assert launch_began(job(created, suspended, resumed)) == NOW.replace(second=2)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(conditions=st.lists(junk | st.fixed_dictionaries({"type": st.just(SUSPENDED), "lastTransitionTime": junk})))
def test_a_status_written_by_hand_is_no_obstacle(conditions: list[object]) -> None:
    strange = {"metadata": {}, "status": {"conditions": conditions}}
    assert first_running({"metadata": {}}, strange) is False
    assert launch_began(strange) is None
