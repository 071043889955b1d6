"""The embedded cluster without a node in a process of its own, whose log names every callback of the event loop that
takes long."""

import asyncio
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainwright.cluster.datadir import DataDir
from trainwright.cluster.embedded_cluster import EmbeddedCluster
from trainwright.cluster.facade import tune_garbage_collector
from trainwright.kube.client.kubeconfig import ClusterConfig, load_kubeconfig

LONGEST = 0.1
"""Seconds of CPU time; others wait meanwhile."""
_logger = logging.getLogger(__name__)
_SLOW = "slow callback"
_READY = b"ready\n"


@dataclass
class MeasuredCluster:
    config: ClusterConfig
    log: Path
    process: "subprocess.Popen[bytes]"
    _read: int = 0

    def complaints(self) -> str:
        """What was logged since the last call, if there is a traceback or a slow callback in it."""
        with self.log.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        self._read += len(text)
        found = text.decode(errors="replace")
        return found if "Traceback" in found or _SLOW in found else ""


@contextmanager
def measured_cluster(directory: Path) -> Iterator[MeasuredCluster]:
    data, log = directory / "data", directory / "cluster.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(data)],
            stdout=subprocess.PIPE,
            stderr=output,
            env={**os.environ, "HOME": str(directory)},
        )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == _READY, log.read_text()
        yield MeasuredCluster(load_kubeconfig(DataDir(data).kubeconfig), log, process)
    finally:
        process.kill()
        process.communicate()


def _measure_callbacks() -> None:
    run = asyncio.Handle._run  # asyncio's own debug mode counts the time of other processes too

    def measured(handle: asyncio.Handle) -> None:
        started = time.thread_time()
        try:
            run(handle)
        finally:
            if (seconds := time.thread_time() - started) > LONGEST:
                _logger.warning("%s: %.3f s of CPU time: %s", _SLOW, seconds, handle)

    setattr(asyncio.Handle, "_run", measured)  # noqa: B010 - a method, which mypy would not let go


async def _serve(directory: Path) -> None:
    cluster = EmbeddedCluster(directory, with_node=False, port=0)
    await cluster.start()
    tune_garbage_collector()
    _measure_callbacks()
    os.write(sys.stdout.fileno(), _READY)
    await asyncio.Event().wait()


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    asyncio.run(_serve(Path(sys.argv[1])))
