"""The process of `trainwright up`: the embedded cluster, the CRDs and the operator in one event loop.

It keeps its log from growing, and adds finished runs to the history.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from trainwright.api.kinds import KINDS, Kind
from trainwright.cli.contexts import add_context, user_kubeconfig
from trainwright.cli.errors import CommandError
from trainwright.cli.history import append, history_path, run_of
from trainwright.cli.jobs.recorded_runs import recorded_progress, recorded_runs
from trainwright.cli.jobs.summary import finished_state, rank_count
from trainwright.cli.logging import console_formatter
from trainwright.cli.up.operator_pod import NAME, NAMESPACE, OperatorLog, OperatorPod, create_operator_objects
from trainwright.cli.up.up_flags import UpFlags
from trainwright.cluster.embedded_cluster import EmbeddedCluster
from trainwright.cluster.facade import CONTEXT, ClusterRecord, DataDir, kill_orphaned_pods, tune_garbage_collector
from trainwright.engine import Settings
from trainwright.engine.settings import EMBEDDED
from trainwright.insight.first_failing_rank import Diagnosis
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.kubeconfig import ClusterConfig, ConfigError
from trainwright.objects import Object
from trainwright.objects.kinds.gangs import GangScheduler
from trainwright.objects.kinds.pods import MIRROR
from trainwright.objects.paths import value_at
from trainwright.objects.resources import NODES, PODS
from trainwright.operator import JobController, install_crds
from trainwright.operator.options import WebhookOptions
from trainwright.operator.reconcile.observer import Observer
from trainwright.operator.serving.webhook_handlers import local_webhooks
from trainwright.operator.setup.webhook_installation import register_webhooks

log = logging.getLogger(__name__)

_RESTART_SECONDS = 1.0
_STOP_SECONDS = 5.0


async def run_cluster(
    data: DataDir, flags: UpFlags, *, on_note: Callable[[str], None], on_ready: Callable[[ClusterRecord], None]
) -> int:
    """Runs the cluster until SIGINT, SIGTERM or SIGHUP; returns how many pods keep running.

    If its data directory is removed, it kills its pods and raises CommandError. `on_note` is called before the record
    is written: `up --detach` waits for the record and then expects all notes in the log.
    """
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    operator_log = OperatorLog(console_formatter())
    names = WebhookOptions()
    cluster = EmbeddedCluster(
        data.path,
        flags.node_settings(),
        port=flags.port,
        mirror_logs={f"{NAMESPACE}/{NAME}": operator_log},
        local_services={(NAMESPACE, names.service): local_webhooks(KINDS)},
        gang_scheduler=flags.gang_scheduler,
    )
    await cluster.start()
    try:
        async with cluster.client("trainwright-operator") as client:
            await asyncio.gather(install_crds(client, KINDS.values()), create_operator_objects(client))
            await register_webhooks(client, KINDS.values(), NAMESPACE, names)
            async with (
                _shown_operator(client, operator_log),
                _running_operator(client, operator_settings(cluster.sandbox, flags.gang_scheduler), data),
            ):
                kubeconfig = user_kubeconfig(flags.kubeconfig)
                context, notes = _add_context(cluster.config, kubeconfig, data, required=flags.kubeconfig is not None)
                for note in (*cluster.notes, *notes):
                    on_note(note)
                record = cluster.announce(kubeconfig, context=context, ephemeral=flags.ephemeral)
                tune_garbage_collector()
                on_ready(record)
                await _wait_for_first(stop.wait(), cluster.data_dir_removed(), rotate_for_ever(data.log))
            if stop.is_set():
                return await _running_pods(client)
    finally:
        await cluster.stop()
    killed = kill_orphaned_pods(data)
    raise CommandError(f"data directory {data.path} was removed: stopped the cluster and killed {killed} pods")


def operator_settings(sandbox: str, gang_scheduler: str | None = None) -> Settings:
    """At `plain` no DNS name resolves in pods, so no init container waits for one: the node replaces names in env."""
    settings = EMBEDDED if sandbox != "plain" else replace(EMBEDDED, init_container=None)
    return replace(settings, gang=GangScheduler(gang_scheduler)) if gang_scheduler else settings


def _add_context(config: ClusterConfig, kubeconfig: Path, data: DataDir, *, required: bool) -> tuple[str, list[str]]:
    """Adds the context to the user's kubeconfig; returns its name, and notes for the user."""
    try:
        name = add_context(kubeconfig, config, data)
    except (ConfigError, OSError) as error:
        text = f"failed to add the context to {kubeconfig}: {error}"
        if required:
            raise ConfigError(text) from error
        return CONTEXT, [f"{text}; use `kubectl --kubeconfig {data.kubeconfig}`"]
    if name == CONTEXT or data.cluster_name:
        return name, []
    return name, [f"context {CONTEXT} in {kubeconfig} belongs to another cluster: this one is {name}"]


@asynccontextmanager
async def _running_operator(client: Client, settings: Settings, data: DataDir) -> AsyncIterator[None]:
    """Runs the operator; if it crashes, only the operator is restarted, not the cluster."""
    current: list[JobController] = []
    ready, stopping = asyncio.Event(), asyncio.Event()
    read_runs, recorder = partial(recorded_runs, data), RunRecorder(data)

    async def run_and_restart() -> None:
        while not stopping.is_set():
            operator = JobController(
                client,
                kinds=KINDS,
                settings=settings,
                cluster_resources=(NODES,),
                observer=recorder,
                read_runs=read_runs,
            )
            current[:] = [operator]
            forwarding = asyncio.create_task(_forward(operator.ready, ready))
            try:
                await operator.run()
            except Exception:
                log.exception("operator crashed; restarting it")
                await asyncio.sleep(_RESTART_SECONDS)
            finally:
                forwarding.cancel()

    task = asyncio.create_task(run_and_restart())
    try:
        await ready.wait()
        yield
    finally:
        stopping.set()
        for operator in current:
            operator.stop()
        await asyncio.wait({task}, timeout=_STOP_SECONDS)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def _shown_operator(client: Client, operator_log: OperatorLog) -> AsyncIterator[None]:
    """Keeps the pod of the operator, and its log."""
    logger = logging.getLogger("trainwright.operator")
    logger.addHandler(operator_log)
    task = asyncio.create_task(OperatorPod(client).run())
    try:
        yield
    finally:
        logger.removeHandler(operator_log)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _wait_for_first(*coroutines: Coroutine[Any, Any, object]) -> None:
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def _forward(source: asyncio.Event, target: asyncio.Event) -> None:
    await source.wait()
    target.set()


async def _running_pods(client: Client) -> int:
    pods = (await client.list(PODS)).items
    return sum(
        value_at(pod, "status", "phase") == "Running" and value_at(pod, "metadata", "annotations", MIRROR) is None
        for pod in pods
    )


# Its log

MAX_BYTES = 16 * 2**20
_CHECK_SECONDS = 60.0


async def rotate_for_ever(log: Path) -> None:
    while True:
        await asyncio.sleep(_CHECK_SECONDS)
        rotate(log)


def rotate(log: Path, *, max_bytes: int = MAX_BYTES) -> bool:
    """If this process writes to the file and it is too long, goes on in a new one and keeps the old one as `.1`."""
    try:
        output = os.fstat(sys.stdout.fileno())
        if output.st_size <= max_bytes or not os.path.samestat(output, log.stat()):
            return False
        log.replace(log.with_name(f"{log.name}.1"))
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:  # the log is no reason to stop
        return False
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(descriptor, stream.fileno())
    os.close(descriptor)
    return True


# Its history


class RunRecorder(Observer):
    """Adds every run that finishes to the history, also those that no command follows.

    The operator calls it when it has written a status, and when it knows why a job failed, so that the history and
    `status.failure` say the same. Logs are read in a thread, so that jobs do not wait."""

    def __init__(self, data: DataDir) -> None:
        self._data = data
        # Not the event loop's threads: others may block all of them.
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="run-recorder")

    def status_written(self, kind: Kind, before: Object, after: Object) -> None:
        state = finished_state(after)
        if state and not finished_state(before):
            self._executor.submit(self._record, kind, after, state)

    def failure_diagnosed(self, kind: Kind, job: Object, diagnosis: Diagnosis) -> None:
        self._executor.submit(self._record, kind, job, "Failed", diagnosis.headline)

    def _record(self, kind: Kind, job: Object, state: str, cause: str = "") -> None:
        try:
            metrics = recorded_progress(self._data, job["metadata"]["uid"], kind).metrics
            run = run_of(job, state=state, metrics=metrics, cause=cause, ranks=rank_count(job, kind))
            append(history_path(self._data), run)
        except Exception:
            log.exception("failed to add a run of %s to the history", job["metadata"].get("name"))
