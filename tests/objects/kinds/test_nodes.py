"""The view of a node: whether it is Ready, and since when it is not."""

import msgspec
import pytest

from trainwright.objects.kinds.nodes import Node

CREATED = "2026-11-15T03:00:00Z"
CHANGED = "2026-11-15T04:00:00Z"


def node(*conditions: dict[str, str]) -> Node:
    raw = {"metadata": {"name": "n1", "creationTimestamp": CREATED}, "status": {"conditions": list(conditions)}}
    return msgspec.convert(raw, Node)


def condition(status: str, **fields: str) -> dict[str, str]:
    return {"type": "Ready", "status": status, **fields}


def test_only_the_ready_condition_decides_whether_a_node_is_ready() -> None:
    ready = node({"type": "DiskPressure", "status": "False"}, condition("True", lastTransitionTime=CHANGED))
    assert ready.ready
    assert ready.unready_since is None


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_unready_node_has_the_time_of_the_transition(status: str) -> None:
    unready = node(condition(status, lastTransitionTime=CHANGED))
    assert not unready.ready
    assert unready.unready_since == CHANGED


def test_node_without_ready_condition_is_unready_since_its_creation() -> None:
    assert node().unready_since == CREATED
    assert node(condition("Unknown")).unready_since == CREATED
    assert not node().ready
