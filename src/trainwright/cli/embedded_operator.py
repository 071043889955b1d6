"""The embedded cluster with our kinds and our operator in it, as `trainwright up` runs it in one event loop."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainwright.api.kinds import KINDS
from trainwright.cli.errors import Problem
from trainwright.cluster.embedded import (
    CONTEXT,
    ClusterRecord,
    DataDir,
    kill_orphaned_pods,
    new_cluster,
    tune_garbage_collector,
)
from trainwright.engine import Settings
from trainwright.engine.settings import EMBEDDED
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.kubeconfig import ClusterConfig, ConfigError, merge_into_kubeconfig
from trainwright.objects.paths import value_at
from trainwright.objects.resources import PODS
from trainwright.operator import Operator, install_crds

log = logging.getLogger(__name__)

_RESTART_SECONDS = 1.0
_STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    data: DataDir
    kubeconfig: Path
    """The user's file, which gets our context."""
    kubeconfig_asked: bool
    """Whether the user named it: then it has to work."""
    port: int | None
    python: Path | None
    sandbox: str | None


async def host(options: UpOptions, *, on_note: Callable[[str], None], on_ready: Callable[[ClusterRecord], None]) -> int:
    """Runs the cluster until SIGINT, SIGTERM or SIGHUP; how many pods it leaves running.

    If its data directory is removed, it ends with all its pods, by a Problem.

    Notes come before others can see that it is ready: whoever waits for that finds them all.
    """
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    cluster = new_cluster(options.data, port=options.port, sandbox=options.sandbox, python=options.python)
    await cluster.start()
    try:
        async with Client(cluster.config, user_agent="trainwright-operator") as client:
            await install_crds(client, KINDS.values())
            async with _operating(client, settings_for(cluster.sandbox)):
                for note in (*cluster.notes, *introduce(cluster.config, options)):
                    on_note(note)
                record = cluster.announce(options.kubeconfig)
                tune_garbage_collector()
                on_ready(record)
                await _first(stop.wait(), cluster.data_dir_removed())
            if stop.is_set():
                return await _running_pods(client)
    finally:
        await cluster.stop()
    ended = kill_orphaned_pods(options.data)
    raise Problem(f"{options.data.path} was removed: stopped the cluster that lived in it, and its {ended} pods")


def settings_for(sandbox: str) -> Settings:
    """Without a sandbox no name resolves in a pod: the node replaces names before the start, so nobody waits."""
    return EMBEDDED if sandbox != "plain" else replace(EMBEDDED, init_container=None)


def introduce(config: ClusterConfig, options: UpOptions) -> list[str]:
    """Writes our context into the user's kubeconfig. One that cannot be written is no reason not to start."""
    try:
        merge_into_kubeconfig(
            options.kubeconfig,
            name=CONTEXT,
            server=config.server,
            ca_data=config.ca_data or b"",
            token=config.token or "",
        )
    except (ConfigError, OSError) as error:
        if options.kubeconfig_asked:
            raise ConfigError(f"cannot write the context into {options.kubeconfig}: {error}") from error
        own = options.data.kubeconfig
        return [f"{options.kubeconfig} could not be changed ({error}): use `kubectl --kubeconfig {own}`"]
    return []


@asynccontextmanager
async def _operating(client: Client, settings: Settings) -> AsyncIterator[None]:
    """The operator at work; should it ever break, it is started again, and the cluster stays."""
    current: list[Operator] = []
    ready, stopping = asyncio.Event(), asyncio.Event()

    async def keep_operating() -> None:
        while not stopping.is_set():
            operator = Operator(client, kinds=KINDS, settings=settings)
            current[:] = [operator]
            announcing = asyncio.create_task(_pass_on(operator.ready, ready))
            try:
                await operator.run()
            except Exception:
                log.exception("the operator broke; it is started again")
                await asyncio.sleep(_RESTART_SECONDS)
            finally:
                announcing.cancel()

    working = asyncio.create_task(keep_operating())
    try:
        await ready.wait()
        yield
    finally:
        stopping.set()
        for operator in current:
            operator.stop()
        await asyncio.wait({working}, timeout=_STOP_SECONDS)
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working


async def _first(*either: Coroutine[Any, Any, object]) -> None:
    tasks = [asyncio.ensure_future(one) for one in either]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def _pass_on(source: asyncio.Event, target: asyncio.Event) -> None:
    await source.wait()
    target.set()


async def _running_pods(client: Client) -> int:
    pods = (await client.list(PODS)).items
    return sum(value_at(pod, "status", "phase") == "Running" for pod in pods)
