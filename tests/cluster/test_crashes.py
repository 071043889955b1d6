"""`kill -9` at any moment: what was acknowledged is there after the next start, and every start works."""

import asyncio
import itertools
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.thoroughness import THOROUGH
from trainwright.cluster.datadir import DataDir
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError, Unreachable
from trainwright.kube.client.kubeconfig import load_kubeconfig
from trainwright.objects import Object
from trainwright.objects.resources import CONFIG_MAPS, NAMESPACES

_numbers = itertools.count(1)

PROGRAM = """
import asyncio, sys
from pathlib import Path
from trainwright.cluster.embedded_cluster import EmbeddedCluster

async def main():
    cluster = EmbeddedCluster(Path(sys.argv[1]), with_node=False)
    await cluster.start()
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@contextmanager
def cluster_process(directory: Path) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, "-c", PROGRAM, str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_until_ready(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


class AcknowledgedWrites:
    """Writes as fast as the server answers, and remembers the acknowledged writes."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, Object] = {}
        self.deleted: set[str] = set()
        self.highest_version = 0

    async def write(self, client: Client, worker: int) -> None:
        """Creates, changes and deletes objects of its own until the server has ended."""
        for number in itertools.count(1):
            name = f"worker-{worker}-{next(_numbers)}"
            obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
            try:
                self.note(await client.create(CONFIG_MAPS, {**obj, "data": {"step": "created"}}))
                # While a request is on its way both outcomes are right, so nothing is claimed about the object.
                if number % 2:
                    del self.acknowledged[name]
                    self.note(await client.patch(CONFIG_MAPS, name, {"data": {"step": "changed"}}))
                if number % 3 == 0:
                    del self.acknowledged[name]
                    await client.delete(CONFIG_MAPS, name)
                    self.deleted.add(name)
            except (Unreachable, ApiError):
                return

    def note(self, answer: Object) -> None:
        self.acknowledged[answer["metadata"]["name"]] = answer
        self.highest_version = max(self.highest_version, int(answer["metadata"]["resourceVersion"]))

    async def check(self, client: Client) -> None:
        found = await client.list(CONFIG_MAPS, namespace="default")
        there = {one["metadata"]["name"]: one for one in found.items}
        for name, obj in self.acknowledged.items():
            assert there.get(name) == obj
        assert not self.deleted & there.keys()
        assert int(found.resource_version) >= self.highest_version
        fresh = await client.create(CONFIG_MAPS, {"metadata": {"generateName": "fresh-", "namespace": "default"}})
        assert int(fresh["metadata"]["resourceVersion"]) > self.highest_version
        self.note(fresh)


@pytest.mark.parametrize("seed", range(3 if THOROUGH else 1))
async def test_nothing_acknowledged_is_lost_however_often_the_process_is_killed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    writes = AcknowledgedWrites()
    for _ in range(3):
        with cluster_process(tmp_path) as process:
            await asyncio.to_thread(wait_until_ready, process)
            async with Client(load_kubeconfig(DataDir(tmp_path).kubeconfig), retries=False) as client:
                await writes.check(client)
                writers = [asyncio.create_task(writes.write(client, number)) for number in range(8)]
                await asyncio.sleep(chance.uniform(0, 0.4))  # the moment of the kill is what is tried out
                process.kill()
                await asyncio.gather(*writers)
    with cluster_process(tmp_path) as process:
        await asyncio.to_thread(wait_until_ready, process)
        async with Client(load_kubeconfig(DataDir(tmp_path).kubeconfig)) as client:
            await writes.check(client)


async def test_a_start_that_is_killed_at_any_point_can_be_repeated(tmp_path: Path) -> None:
    chance = random.Random(1)
    for _ in range(6):
        with cluster_process(tmp_path) as process:
            await asyncio.sleep(chance.uniform(0.1, 0.6))
            process.kill()
    with cluster_process(tmp_path) as process:
        await asyncio.to_thread(wait_until_ready, process)
        async with Client(load_kubeconfig(DataDir(tmp_path).kubeconfig)) as client:
            names = {one["metadata"]["name"] for one in (await client.list(NAMESPACES)).items}
            assert names == {"default", "kube-system", "kube-public", "kube-node-lease"}
