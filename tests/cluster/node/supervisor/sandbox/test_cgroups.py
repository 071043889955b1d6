"""Control groups: where they are found, and what limits do to a container."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.supervised_pods import container
from trainwright.cluster.node.supervisor.sandbox import cgroups

NAME = f"trainwright-test-{os.getpid()}"


def test_the_directories_of_version_1_are_below_the_mounts_of_their_controllers() -> None:
    mounts = [
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct",
        "35 31 0:32 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
        "27 1 254:0 / / rw - ext4 /dev/vda rw",
    ]
    own = ["4:memory:/docker/x/job", "1:cpu,cpuacct:/", "0::/user"]
    assert cgroups.own_directories(mounts, own) == {
        "cpu": "/sys/fs/cgroup/cpu,cpuacct",
        "memory": "/sys/fs/cgroup/memory/job",
        "": "/sys/fs/cgroup/unified/user",
    }


def test_the_directory_of_version_2_has_no_name() -> None:
    mounts = ["30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate"]
    own = ["0::/user.slice/user-1000.slice/session-1.scope"]
    assert cgroups.own_directories(mounts, own) == {"": "/sys/fs/cgroup/user.slice/user-1000.slice/session-1.scope"}
    assert cgroups.own_directories([], own) == {}


@pytest.mark.parametrize(("shares", "weight"), [(0, 1), (2, 1), (1024, 39), (262_144, 10_000), (10**9, 10_000)])
def test_shares_become_weights(shares: int, weight: int) -> None:
    assert cgroups.weight_of(shares) == weight


@pytest.fixture
def directories() -> Any:
    found, reason = cgroups.find_directories(NAME)
    if not found:
        pytest.skip(f"no control groups here: {reason}")
    yield found
    assert cgroups.remove(found, seconds=5.0)


@pytest.fixture
def root_overlay(overlay: Any) -> Any:
    if overlay.user.prefix:
        pytest.skip("the directories belong to root")
    return overlay


def test_a_container_beyond_its_memory_limit_is_killed_and_nothing_remains(
    root_overlay: Any, directories: dict[str, str]
) -> None:
    pod_directories = {controller: f"{path}/pod" for controller, path in directories.items()}
    script = "head -c 200M /dev/zero | tail -c 190M | wc -c; exit 137"
    limits = {"memory": 32 << 20, "cpuQuota": 50_000, "cpuShares": 512, "pids": 100}
    with root_overlay.run(container(script, limits=limits), cgroups=pod_directories) as pod:
        state = pod.wait()
    assert state["containers"][0]["state"]["terminated"]["reason"] == "OOMKilled"
    assert not any(Path(path).exists() for path in directories.values())


def test_processes_beyond_the_limit_cannot_be_started(root_overlay: Any, directories: dict[str, str]) -> None:
    if "pids" not in directories:
        pytest.skip("no controller of processes")
    pod_directories = {controller: f"{path}/pod" for controller, path in directories.items()}
    script = "for i in 1 2 3 4 5 6 7 8; do sleep 30 & done; echo all"
    with root_overlay.run(container(script, limits={"pids": 5}), cgroups=pod_directories) as pod:
        pod.wait()
    assert "all" not in pod.output()


def test_the_groups_of_a_killed_supervisor_can_be_removed(root_overlay: Any, directories: dict[str, str]) -> None:
    pod_directories = {controller: f"{path}/pod" for controller, path in directories.items()}
    script = "cat /proc/self/cgroup; sleep 600"
    with root_overlay.run(container(script, limits={"memory": 64 << 20}), cgroups=pod_directories) as pod:
        pod.until(lambda pod: any("/pod/main-0" in line for line in pod.output()))
        pod.kill()
    assert cgroups.remove(pod_directories, seconds=5.0)


def test_a_group_that_cannot_be_made_is_a_start_error(root_overlay: Any) -> None:
    with root_overlay.run(container("true", limits={"memory": 1 << 20}), cgroups={"memory": "/proc/none"}) as pod:
        state = pod.wait()
    assert state["containers"][0]["state"]["terminated"]["reason"] == "StartError"
