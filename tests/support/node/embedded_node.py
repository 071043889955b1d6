"""The embedded cluster as the node under test, by `trainwright up`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from tests.support.cluster.embedded_cluster import up_command
from tests.support.cluster.supervised_pods import processes_with
from tests.support.node.namespace import RunningNode
from trainwright.kube.client.async_client import Client

_PATIENCE = 15.0


@asynccontextmanager
async def embedded_node(level: str, directory: Path) -> AsyncIterator[RunningNode]:
    started = up_command(directory, "--sandbox", level)
    up = await asyncio.to_thread(started.__enter__)
    try:
        (shared := directory / "shared").mkdir()
        async with Client(up.config) as client:
            named = partial(processes_with, str(up.data.path))  # the cluster, and the supervisors of its pods
            yield RunningNode(level, client, up.data.kubeconfig, shared, _PATIENCE, named)
    finally:
        await asyncio.to_thread(started.__exit__, None, None, None)
