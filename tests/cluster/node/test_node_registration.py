"""The Node object: what its conditions say about this machine."""

from pathlib import Path

import pytest

from tests.support.objects.jobs import NOW
from trainwright.cluster.node.machine import read_disk, read_machine
from trainwright.cluster.node.node_registration import node_status
from trainwright.cluster.node.supervisor.sandbox.detection import Sandbox
from trainwright.objects.conditions import find_condition


@pytest.mark.parametrize(
    ("shared_ports", "status", "message"),
    [
        ("", "True", "every pod has its own ports, at its own address"),
        (
            "the kernel is too old",
            "False",
            "pods have the ports of this machine: the kernel is too old; two pods cannot listen on the same port. Pods",
        ),
    ],
)
def test_the_node_says_whether_pods_have_their_own_ports(
    tmp_path: Path, shared_ports: str, status: str, message: str
) -> None:
    sandbox = Sandbox("overlay", shared_ports=shared_ports)
    found = node_status(read_machine(tmp_path), {}, sandbox=sandbox, disk=read_disk(tmp_path), now=NOW)
    condition = find_condition(found, "OwnPorts")
    assert condition is not None
    assert condition["status"] == status
    assert condition["message"].startswith(message)
