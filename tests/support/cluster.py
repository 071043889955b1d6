"""Embedded clusters for tests: one in the test's own event loop, and one as the command that users start."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.waiting import eventually
from trainwright.cluster.datadir import ClusterRecord, DataDir
from trainwright.cluster.process import NODE_NAME, EmbeddedCluster
from trainwright.kube.client import Client
from trainwright.kube.config import ClusterConfig, load_kubeconfig
from trainwright.kube.errors import NotFound
from trainwright.objects import Object
from trainwright.objects.resources import PODS

START_SECONDS = 30


@asynccontextmanager
async def embedded_cluster(directory: Path, **options: Any) -> AsyncIterator[EmbeddedCluster]:
    """A whole cluster, with `with_node=False` one whose pods never start. Pods that are left are ended with it."""
    cluster = EmbeddedCluster(directory, **options)
    await cluster.start()
    try:
        yield cluster
        await end_all_pods(cluster.config)
    finally:
        await cluster.stop()


async def end_all_pods(config: ClusterConfig) -> None:
    """Pods outlive their cluster on purpose; a test must not leave processes behind."""
    async with Client(config) as client:

        async def on_the_node() -> list[Object]:
            pods = (await client.list(PODS)).items
            return [pod for pod in pods if pod["spec"].get("nodeName") == NODE_NAME]

        for pod in await on_the_node():
            metadata = pod["metadata"]
            with suppress(NotFound):
                await client.delete(PODS, metadata["name"], namespace=metadata["namespace"], grace_period_seconds=1)
        await eventually(on_the_node, lambda left: not left)


@dataclass
class UpCommand:
    """A running `trainwright up`, with a data directory and a kubeconfig of its own."""

    process: "subprocess.Popen[bytes]"
    data: DataDir
    kubeconfig: Path
    environment: Mapping[str, str]
    log: Path

    @property
    def record(self) -> ClusterRecord:
        found = self.data.running()
        assert found is not None, "the cluster is not running"
        return found

    @property
    def config(self) -> ClusterConfig:
        return load_kubeconfig(self.data.kubeconfig)

    def kill(self) -> None:
        """As a power cut would end it: without a chance to put anything in order."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> str:
        """Ends it as Ctrl-C does; returns what it printed."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=START_SECONDS)
        return self.log.read_text()


@contextmanager
def up_command(directory: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[UpCommand]:
    """`python -m trainwright up` as a child process, ready to be used. Can be entered again for the same directory."""
    data, kubeconfig = DataDir(directory / "data"), directory / "kubeconfig"
    variables = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(directory), **(environment or {})}
    command = [sys.executable, "-m", "trainwright", "up", "--data-dir", str(data.path), *arguments]
    log = directory / "up.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=variables
        )
    try:
        _wait_until_ready(process, data, log)
        yield UpCommand(process, data, kubeconfig, variables, log)
    finally:
        process.kill()
        process.wait()


def _wait_until_ready(process: "subprocess.Popen[bytes]", data: DataDir, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while (record := data.running()) is None or record.pid != process.pid:
        if process.poll() is not None:
            raise AssertionError(f"`trainwright up` ended with {process.returncode}: {log.read_text()}")
        if time.monotonic() > deadline:
            raise AssertionError(f"`trainwright up` was not ready within {START_SECONDS} s: {log.read_text()}")
        time.sleep(0.02)
