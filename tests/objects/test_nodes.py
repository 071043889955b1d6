"""A node's view: ready or not, and since when."""

import msgspec
import pytest

from trainwright.objects.nodes import Node

BORN = "2026-11-15T03:00:00Z"
CHANGED = "2026-11-15T04:00:00Z"


def node(*conditions: dict[str, str]) -> Node:
    raw = {"metadata": {"name": "n1", "creationTimestamp": BORN}, "status": {"conditions": list(conditions)}}
    return msgspec.convert(raw, Node)


def condition(status: str, **fields: str) -> dict[str, str]:
    return {"type": "Ready", "status": status, **fields}


def test_a_ready_node_is_ready_whatever_else_is_said_about_it() -> None:
    ready = node({"type": "DiskPressure", "status": "False"}, condition("True", lastTransitionTime=CHANGED))
    assert ready.ready
    assert ready.unready_since is None


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_node_that_is_not_ready_says_since_when(status: str) -> None:
    lost = node(condition(status, lastTransitionTime=CHANGED))
    assert not lost.ready
    assert lost.unready_since == CHANGED


def test_without_a_word_about_it_the_nodes_birth_counts() -> None:
    assert node().unready_since == BORN
    assert node(condition("Unknown")).unready_since == BORN
    assert not node().ready
