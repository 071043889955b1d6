"""Pods that are stopped with their cluster end by their grace periods, together, and those that do not are killed."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.supervised_pods import SupervisedPod, container
from trainwright.cluster.node.pods.pod_termination import StoppingPods
from trainwright.cluster.node.supervisor.files import CGROUPS_FILE
from trainwright.cluster.node.supervisor.sandbox import cgroups


def started(pod: SupervisedPod) -> bool:
    return pod.output() == ["started"]


def test_a_pod_that_ends_after_sigterm_is_not_killed(runner: Any) -> None:
    script = "trap 'echo saved; exit 0' TERM; echo started; while :; do sleep 0.01; done"
    with runner.run(container(script), grace=20) as pod:
        pod.until(started)
        stopping = StoppingPods(runner.node)
        stopping.stop()
        assert (stopping.total, stopping.left) == (1, 1)
        assert 18 < stopping.seconds <= 20
        assert stopping.wait(10)
        assert stopping.kill() == 0
    assert pod.output() == ["started", "saved"]


def test_a_pod_that_ignores_sigterm_is_killed_after_its_grace_period(runner: Any) -> None:
    with runner.run(container("trap '' TERM; echo started; while :; do sleep 0.01; done"), grace=1) as pod:
        pod.until(started)
        stopping, before = StoppingPods(runner.node), time.monotonic()
        stopping.stop()
        assert not stopping.wait(0.05)
        assert stopping.left == 1
        assert stopping.wait(10)
        assert time.monotonic() - before >= 1
        assert stopping.kill() == 0


def test_pods_can_be_killed_at_once(runner: Any) -> None:
    with runner.run(container("trap '' TERM; echo started; while :; do sleep 0.01; done")) as pod:
        pod.until(started)
        (runner.node / "agent.sock").touch()  # its agent was killed too
        (runner.node / "api").mkdir()
        (runner.node / "api" / "api.sock").touch()
        stopping = StoppingPods(runner.node)
        stopping.stop()
        assert stopping.kill() == 1
        assert stopping.left == 0
        assert StoppingPods(runner.node).total == 0
        assert not list(runner.node.rglob("*.sock"))


def test_without_running_pods_there_is_nothing_to_wait_for(runner: Any) -> None:
    with runner.run(container("true")) as pod:
        pod.wait()
    stopping = StoppingPods(runner.node)
    stopping.stop()
    assert stopping.total == 0
    assert stopping.wait(10)


def test_the_control_groups_of_the_node_are_removed_with_its_pods(tmp_path: Path) -> None:
    directories, reason = cgroups.find_directories(f"trainwright-test-{os.getpid()}-down")
    if not directories:
        pytest.skip(f"no control groups here: {reason}")
    for path in directories.values():
        (Path(path) / "pod" / "main-0").mkdir(parents=True, exist_ok=True)  # left by a supervisor that was killed
    (tmp_path / CGROUPS_FILE).write_text(json.dumps({"cgroups": directories}))
    StoppingPods(tmp_path).kill()
    assert not any(Path(path).exists() for path in directories.values())
