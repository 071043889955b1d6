"""The embedded cluster as one process: puts store, API server, controllers and node together over a data directory.

It knows nothing about training jobs; whoever starts it installs kinds and operators through the API.
"""

import asyncio
import errno
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing, suppress
from datetime import UTC, datetime
from pathlib import Path

import trainwright
from trainwright.cluster import pki
from trainwright.cluster.apiserver.http.server import ApiServer
from trainwright.cluster.apiserver.storage.journal import StoreError
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.cluster.components import Supervisor
from trainwright.cluster.controllers.garbage_collector import GarbageCollector
from trainwright.cluster.controllers.namespace_controller import Namespaces
from trainwright.cluster.controllers.persistentvolume_controller import Volumes, default_storage_class
from trainwright.cluster.controllers.scheduler import Scheduler
from trainwright.cluster.controllers.serviceaccount_controller import ServiceAccounts, default_account
from trainwright.cluster.datadir import (
    CONTEXT,
    ClusterError,
    ClusterRecord,
    DataDir,
    DataDirLock,
    RememberedPort,
    this_process,
)
from trainwright.cluster.node.agent import NodeAgent, SandboxError
from trainwright.cluster.node.container_logs import PodLogs
from trainwright.cluster.node.supervisor.ports import port_conflict
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists
from trainwright.kube.client.kubeconfig import ClusterConfig, merge_into_kubeconfig
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.objects import Object
from trainwright.objects.resources import NAMESPACES, NODES, SERVICE_ACCOUNTS, STORAGE_CLASSES, Resource
from trainwright.objects.times import parse_time

HOST = "127.0.0.1"
DEFAULT_PORT = 26443
"""Below the ports that the kernel gives out by itself, so that it is usually still free at the next start."""

NODE_NAME = "local"
_MORE_PORTS = 100
_NODE_SECONDS = 20.0
_LOOK_SECONDS = 1.0


NewServer = Callable[[], ApiServer]


class EmbeddedCluster:
    """`await start()`, then `config` says how to reach it, until `await stop()`. Pods go on running after that.

    Without a port: that of the last start, else the default, else one nearby. Without a sandbox: the strongest that
    works. `python` is the one that pods get who name none.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        sandbox: str | None = None,
        python: Path | None = None,
        with_node: bool = True,
    ) -> None:
        self._data = DataDir(directory.absolute())
        self._port = port
        self._sandbox = sandbox
        self._python = python or Path(sys.executable)
        self._with_node = with_node
        self._supervisor = Supervisor()
        self._parts = AsyncExitStack()
        self._lock: DataDirLock | None = None
        self._config: ClusterConfig | None = None
        self._node: NodeAgent | None = None
        self.notes: list[str] = []
        """What the user should be told about this start."""

    @property
    def config(self) -> ClusterConfig:
        if self._config is None:
            raise ClusterError("the cluster has not been started")
        return self._config

    @property
    def sandbox(self) -> str:
        """The level in force; empty without a node."""
        return self._node.sandbox if self._node is not None else ""

    @property
    def problems(self) -> dict[str, str]:
        """Parts that crashed lately, each with the reason; they are being started again."""
        return self._supervisor.problems

    async def start(self) -> None:
        """Returns when the API answers, the usual objects exist and the node takes pods."""
        self._data.create()
        self._lock = self._data.lock()
        self._parts.callback(self._lock.release)
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ends the parts in the reverse order of their start. Harmless when nothing runs."""
        await self._parts.aclose()

    def announce(self, kubeconfig: Path) -> ClusterRecord:
        """Tells other commands that this cluster is ready; `kubeconfig` is the user's file that has its context."""
        me = this_process()
        record = ClusterRecord(
            pid=me.pid,
            start_ticks=me.start_ticks,
            boot_id=me.boot_id,
            server=self.config.server,
            version=trainwright.__version__,
            sandbox=self.sandbox,
            python=str(self._python),
            kubeconfig=str(kubeconfig),
        )
        self._data.write_record(record)
        self._parts.callback(self._data.remove_record, record)
        return record

    async def dispossessed(self) -> None:
        """Returns if the data directory is removed: what runs on then is kept nowhere and found by nobody."""
        while self._lock is None or not self._lock.lost:  # noqa: ASYNC110 (no event tells it without inotify)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _start(self) -> None:
        tls, authority = pki.server_context(self._data.pki)
        token = self._data.token()
        try:
            store = ObjectStore(self._data.store)
        except StoreError as error:
            raise ClusterError(str(error)) from error
        self._parts.callback(store.close)
        logs = PodLogs(self._data.node)

        def new_server() -> ApiServer:
            return ApiServer(store=store, token=token, tls=tls, logs=logs, broken_parts=lambda: self.problems)

        port = await self._listen(new_server)
        url = f"https://{HOST}:{port}"
        self._config = ClusterConfig(server=url, ca_data=authority, token=token, context=CONTEXT)
        merge_into_kubeconfig(self._data.kubeconfig, name=CONTEXT, server=url, ca_data=authority, token=token)
        client = await self._parts.enter_async_context(Client(self._config, user_agent="trainwright-cluster"))
        self._start_controllers(client)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_create_default_objects(client))
                if self._with_node:
                    tasks.create_task(self._start_node(client))
        except ExceptionGroup as several:
            raise several.exceptions[0] from several

    async def _listen(self, new_server: NewServer) -> int:
        remembered = self._data.remembered_port()
        asked = self._port or (remembered.number if remembered is not None and remembered.asked_for else None)
        if asked is not None:
            port = await self._bind(new_server(), asked)
            if port is None:
                raise ClusterError(f"{_taken(asked)}: stop that process, or choose another port with --port")
        else:
            port = await self._bind_any(new_server, remembered.number if remembered is not None else DEFAULT_PORT)
        self._data.remember_port(RememberedPort(port, asked_for=asked is not None))
        return port

    async def _bind_any(self, new_server: NewServer, preferred: int) -> int:
        """The preferred port, else one near the default, else whatever the kernel has."""
        for candidate in (preferred, *range(DEFAULT_PORT, DEFAULT_PORT + _MORE_PORTS), 0):
            port = await self._bind(new_server(), candidate)
            if port is not None:
                if candidate != preferred:
                    self.notes.append(f"{_taken(preferred)}: the cluster listens on {port} instead")
                return port
        raise ClusterError(f"no TCP port is free on {HOST}")

    async def _bind(self, server: ApiServer, port: int) -> int | None:
        """The port that the server listens on from now on, or None if it is taken."""
        try:
            bound = await server.start(HOST, port)
        except OSError as error:
            await server.stop()
            if error.errno == errno.EADDRINUSE:
                return None
            raise ClusterError(f"cannot listen on {HOST}:{port}: {error.strerror}; choose another --port") from error
        self._parts.push_async_callback(server.stop)
        return bound

    def _start_controllers(self, client: Client) -> None:
        scheduler_events = EventRecorder(client, "default-scheduler")
        volume_events = EventRecorder(client, "persistentvolume-controller")
        for recorder in (scheduler_events, volume_events):
            self._parts.push_async_callback(recorder.close)
        self._parts.push_async_callback(self._supervisor.stop)
        # A part that is started again starts afresh: each time a new object, with new stores.
        self._supervisor.start("scheduling", lambda: Scheduler(client, scheduler_events).run())
        self._supervisor.start("volumes", lambda: Volumes(client, volume_events, self._data.volumes).run())
        self._supervisor.start("garbage collection", lambda: GarbageCollector(client).run())
        self._supervisor.start("namespaces", lambda: Namespaces(client).run())
        self._supervisor.start("service accounts", lambda: ServiceAccounts(client).run())

    async def _start_node(self, client: Client) -> None:
        begin = datetime.now(UTC).replace(microsecond=0)  # heartbeats are told in whole seconds
        try:
            # Trying out sandboxes starts processes and waits for them.
            node = await asyncio.to_thread(
                NodeAgent, client, self._data.node, name=NODE_NAME, sandbox=self._sandbox, python=self._python
            )
        except SandboxError as error:
            raise ClusterError(str(error)) from error
        self._node = node
        self._supervisor.start("node", node.run)
        self._parts.push_async_callback(node.stop)
        try:
            async with asyncio.timeout(_NODE_SECONDS):
                await _node_ready(client, since=begin)
        except TimeoutError:
            why = self.problems.get("node", "it has not said why")
            self.notes.append(f"node {NODE_NAME} is not ready yet ({why}): pods wait until it is")


async def _create_default_objects(client: Client) -> None:
    """A default StorageClass, and a service account in each namespace. Existing objects stay as they are."""
    namespaces = [one["metadata"]["name"] for one in (await client.list(NAMESPACES)).items]
    await asyncio.gather(
        _create_if_missing(client, STORAGE_CLASSES, default_storage_class()),
        *(_create_if_missing(client, SERVICE_ACCOUNTS, default_account(name)) for name in namespaces),
    )


async def _create_if_missing(client: Client, resource: Resource, obj: Object) -> None:
    with suppress(AlreadyExists):
        await client.create(resource, obj)


async def _node_ready(client: Client, *, since: datetime) -> None:
    """Returns when the node has said in this life of the cluster, not in an earlier one, that it takes pods."""
    selector = f"metadata.name={NODE_NAME}"
    while True:
        async with aclosing(client.watch(NODES, field_selector=selector, resource_version="0")) as events:
            async for event in events:
                for one in event.object.get("status", {}).get("conditions") or ():
                    if (one["type"], one["status"]) == ("Ready", "True") and parse_time(
                        one["lastHeartbeatTime"]
                    ) >= since:
                        return


def _taken(port: int) -> str:
    return port_conflict(port) or f"port {port} is taken"
