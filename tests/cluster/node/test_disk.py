"""A full disk is reported on the node and on its pods, and everything goes on when there is space again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster.disks import fill, small_disk
from tests.support.cluster.node import Node, container, running_node
from tests.support.waiting import eventually
from trainwright.cluster.node.machine import Disk, how_to_free
from trainwright.objects.conditions import is_condition_true
from trainwright.objects.resources import NODES

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("available", "size", "inodes", "full"),
    [
        (255 * MIB, 10_000 * MIB, 10_000, True),
        (257 * MIB, 10_000 * MIB, 10_000, False),
        (9 * MIB, 100 * MIB, 10_000, True),
        (11 * MIB, 100 * MIB, 10_000, False),
        (5_000 * MIB, 10_000 * MIB, 999, True),
    ],
)
def test_a_disk_is_almost_full_before_nothing_can_be_written(
    available: int, size: int, inodes: int, *, full: bool
) -> None:
    assert Disk(Path("/data/node"), available, size, inodes, 1_000_000).is_almost_full == full


def test_a_file_system_that_does_not_count_inodes_has_enough() -> None:
    disk = Disk(Path("/data/node"), 5_000 * MIB, 10_000 * MIB, 0, 0)
    assert not disk.is_almost_full
    assert disk.summary == "5000 MiB of 10000 MiB are available in /data/node"


def test_the_summary_says_what_is_missing() -> None:
    disk = Disk(Path("/data/node"), 5_000 * MIB, 10_000 * MIB, 7, 1_000_000)
    assert disk.summary == "7 inodes of 1000000 are available in /data/node"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as path:
        yield path


async def has_disk_pressure(node: Node) -> bool:
    return is_condition_true((await node.client.get(NODES, "local"))["status"], "DiskPressure")


async def test_a_full_disk_is_reported_and_pods_go_on_when_there_is_space(disk: Path, tmp_path: Path) -> None:
    script = f"while ! test -e {tmp_path}/stop; do echo line; sleep 0.02; done; echo end"
    async with running_node(disk / "node", sandbox="plain") as node:
        pod = await node.create("writer", container(script))
        await node.until_phase("writer", "Running")
        assert not await has_disk_pressure(node)

        fill(disk / "filler")

        advice = how_to_free(disk / "node")
        full = await node.event("DiskFull")
        assert full["type"] == "Warning"
        assert full["involvedObject"]["name"] == "writer"
        assert full["message"].endswith(advice)
        assert (await node.event("DiskPressure"))["message"] == f"the disk is almost full; {advice}"
        await eventually(lambda: has_disk_pressure(node), bool)
        await node.create("late", container("echo late"))
        waiting = await node.until_waiting("late")
        assert waiting["reason"] == "FailedCreatePodSandBox"
        assert waiting["message"].endswith(f"No space left on device; {advice}")

        (disk / "filler").unlink()

        await node.until_phase("late", "Succeeded")
        await eventually(lambda: has_disk_pressure(node), lambda pressure: not pressure)
        (tmp_path / "stop").touch()
        await node.until_phase("writer", "Succeeded")
        log = await node.log(pod)
        assert " bytes of the log are missing here: the disk was full]\n" in log
        assert log.endswith("line\nend\n")
