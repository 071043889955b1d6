"""The embedded cluster as the node under test, by `trainwright up`."""

import asyncio
import shutil
import sysconfig
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from tests.support.cluster.embedded_cluster import up_command
from tests.support.cluster.supervised_pods import User, processes_with, users
from tests.support.node.case_images import add_case_images
from tests.support.node.namespace import RunningNode
from trainwright.cluster.images.store import ImageStore
from trainwright.kube.client.async_client import Client

ORDINARY = {"ordinary": "overlay", "ordinary-plain": "plain"}
"""Nodes of an unprivileged user, with their sandboxes."""
_PATIENCE = 60.0
_ROOT = Path(__file__).parents[3]


@asynccontextmanager
async def embedded_node(level: str, directory: Path) -> AsyncIterator[RunningNode]:
    with ExitStack() as stack:
        user = users()[-1] if level in ORDINARY else User("the user of the tests")
        if user.prefix:  # directories of pytest are closed to others
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trainwright-ordinary-")))
            directory.chmod(0o755)
        (shared := directory / "shared").mkdir()
        shared.chmod(0o777)
        add_case_images(ImageStore(directory / "data" / "images"))
        for path in (directory, *(directory / "data").rglob("*"), directory / "data"):
            user.own(path)
        python = user.python
        if user.prefix:  # that of the tests may be in root's home
            python = shutil.which("python3", path="/usr/local/bin:/usr/bin") or python
        packages = f"{_ROOT / 'src'}:{sysconfig.get_path('purelib')}"  # another Python than that of the tests has none
        started = up_command(
            directory,
            *("--sandbox", ORDINARY.get(level, level), "--python", python),
            python=Path(python),
            prefix=user.prefix,
            environment={"PYTHONPATH": packages} if user.prefix else None,
        )
        up = await asyncio.to_thread(started.__enter__)
        stack.callback(started.__exit__, None, None, None)
        async with Client(up.config) as client:
            named = partial(processes_with, str(up.data.path))  # the cluster, and the supervisors of its pods
            yield RunningNode(level, client, up.data.kubeconfig, shared, _PATIENCE, named)
