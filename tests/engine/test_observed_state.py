"""Observed facts about the pods of a job."""

import msgspec
import pytest

from tests.support.objects.jobs import PodBuilder
from trainwright.engine import Observed, read_extra
from trainwright.objects.kinds.nodes import Node


def node(ready: str) -> Node:
    return msgspec.convert({"metadata": {}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}, Node)


NODES = {"fine": node("True"), "silent": node("Unknown"), "broken": node("False")}


@pytest.mark.parametrize(
    ("where", "cut_off"), [("fine", False), ("silent", True), ("broken", True), ("gone", True), ("", False)]
)
def test_pod_is_unreachable_if_its_node_is_deleted_or_not_ready(where: str, cut_off: bool) -> None:
    pod = PodBuilder().running().spec(nodeName=where)
    assert Observed(nodes=NODES).is_unreachable(pod.pod()) is cut_off
    assert not Observed(nodes=None).is_unreachable(pod.pod()), "nodes are not watched"


@pytest.mark.parametrize("ended", [PodBuilder().succeeded(), PodBuilder().failed(1)])
def test_finished_pod_is_never_unreachable(ended: PodBuilder) -> None:
    assert not Observed(nodes=NODES).is_unreachable(ended.spec(nodeName="gone").pod())


def test_an_extra_object_is_read_without_what_every_object_has() -> None:
    own = {"data": {"a": "1"}, "immutable": True}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "notes"}, **own}
    extra = read_extra(obj)
    assert (extra.kind, extra.metadata.name) == ("ConfigMap", "notes")
    assert extra.content == own
