"""The states that `status` shows, and how it counts them."""

from trainwright.cli.commands.status import count_by_state, failed_checks, node_state


def test_the_most_frequent_state_comes_first() -> None:
    assert count_by_state(["Running", "Failed", "Running"]) == "2 Running, 1 Failed"
    assert count_by_state([]) == "none"


def test_a_node_is_ready_by_its_condition() -> None:
    assert node_state({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}) == "Ready"
    assert node_state({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}) == "NotReady"
    assert node_state({}) == "NotReady"


def test_failed_checks_are_read_from_the_readiness_report() -> None:
    report = b"[+]ping ok\n[-]node failed: reason withheld\n[-]volumes failed: reason withheld\nreadyz check failed\n"
    assert failed_checks(report) == ["node", "volumes"]
    assert failed_checks(b"[+]ping ok\nreadyz check passed\n") == []
