"""Counting and naming the states that `status` shows."""

import pytest

from tests.support.objects.jobs import JobBuilder
from trainwright.cli.commands.status import broken_parts, counted, ready_or_not, state_of


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([], "New"),
        ([("Created", "True")], "Created"),
        ([("Created", "True"), ("Running", "True")], "Running"),
        ([("Created", "True"), ("Running", "False"), ("Succeeded", "True")], "Succeeded"),
    ],
)
def test_the_last_true_condition_is_the_state(conditions: list[tuple[str, str]], state: str) -> None:
    listed = [{"type": kind, "status": status} for kind, status in conditions]
    assert state_of(JobBuilder().status({"conditions": listed}).raw()) == state


def test_the_most_frequent_comes_first() -> None:
    assert counted(["Running", "Failed", "Running"]) == "2 Running, 1 Failed"
    assert counted([]) == "none"


def test_a_node_is_ready_by_its_condition() -> None:
    assert ready_or_not({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}) == "Ready"
    assert ready_or_not({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}) == "NotReady"
    assert ready_or_not({}) == "NotReady"


def test_broken_parts_are_the_checks_that_failed() -> None:
    report = b"[+]ping ok\n[-]node failed: reason withheld\n[-]volumes failed: reason withheld\nreadyz check failed\n"
    assert broken_parts(report) == ["node", "volumes"]
    assert broken_parts(b"[+]ping ok\nreadyz check passed\n") == []
