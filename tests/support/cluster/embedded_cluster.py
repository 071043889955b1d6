"""Embedded clusters: in the test's own event loop, or as the command `trainwright up`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.cluster.supervised_pods import end_supervisors
from trainwright.cluster.data_directory_registry import unregister
from trainwright.cluster.datadir import ClusterRecord, DataDir
from trainwright.cluster.embedded_cluster import EmbeddedCluster
from trainwright.kube.client.kubeconfig import ClusterConfig, load_kubeconfig

START_SECONDS = 60


@asynccontextmanager
async def embedded_cluster(directory: Path, **options: Any) -> AsyncIterator[EmbeddedCluster]:
    """A whole cluster; with `with_node=False` its pods never start. Pods that are left at the end are killed."""
    cluster = EmbeddedCluster(directory, **options)
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()
        end_supervisors(DataDir(directory).node)
        unregister(DataDir(directory))


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
        """Kills the process, as a power failure does."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> str:
        """Stops it as Ctrl-C does; returns its output."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=START_SECONDS)
        return self.log.read_text()


@contextmanager
def up_command(
    directory: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    python: Path = Path(sys.executable),
    prefix: Sequence[str] = (),
) -> Iterator[UpCommand]:
    """`python -m trainwright up` as a child process, ready when entered. Can be entered again for the same directory.
    `prefix` are words before it that make it another user's.

    Its pods are killed at the end, unless the test has stopped the cluster itself.
    """
    data, kubeconfig = DataDir(directory / "data"), directory / "kubeconfig"
    variables = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "HOME": str(directory),
        "PATH": f"{python.parent}:{os.environ['PATH']}",  # so that pods have the packages of the tests
        **(environment or {}),
    }
    command = [*prefix, str(python), "-m", "trainwright", "up", "--data-dir", str(data.path), *arguments]
    log = directory / "up.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=variables
        )
    try:
        _wait_until_ready(process, data, log)
        yield UpCommand(process, data, kubeconfig, variables, log)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
            end_supervisors(data.node)
        unregister(data)


def _wait_until_ready(process: "subprocess.Popen[bytes]", data: DataDir, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while (record := data.running()) is None or record.pid != process.pid:
        if process.poll() is not None:
            raise AssertionError(f"`trainwright up` ended with {process.returncode}: {log.read_text()}")
        if time.monotonic() > deadline:
            raise AssertionError(f"`trainwright up` was not ready within {START_SECONDS} s: {log.read_text()}")
        time.sleep(0.02)
