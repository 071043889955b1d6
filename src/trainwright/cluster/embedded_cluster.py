"""The embedded cluster, in the process of `up`: wires store, API server, controllers and node over a data directory.

It has no training jobs: its caller installs CRDs and an operator through the API. A component that fails is logged,
reported and restarted with back-off.
"""

import asyncio
import errno
import logging
import os
import random
import resource
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from msgspec.structs import asdict, replace

import trainwright
from trainwright.cluster import pki
from trainwright.cluster.address_lock import AddressLock, lock_addresses
from trainwright.cluster.address_range import AddressRange
from trainwright.cluster.apiserver.admission.webhooks.webhook_client import LocalService
from trainwright.cluster.apiserver.http.routes import ServedCluster
from trainwright.cluster.apiserver.http.server import ApiServer
from trainwright.cluster.apiserver.http.streams.node_interface import LogReader
from trainwright.cluster.apiserver.storage.journal import StoreError
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.cluster.apiserver.writes.service_allocator import drop_foreign_addresses, kubernetes_address
from trainwright.cluster.controllers.clusterrole_aggregation import ClusterRoleAggregation
from trainwright.cluster.controllers.endpoints_controller import EndpointsController
from trainwright.cluster.controllers.gangs import pod_group_crd
from trainwright.cluster.controllers.garbage_collector import GarbageCollector
from trainwright.cluster.controllers.kubernetes_service import KubernetesService
from trainwright.cluster.controllers.namespace_controller import NamespaceController
from trainwright.cluster.controllers.persistentvolume_controller import (
    PersistentVolumeController,
    default_storage_class,
)
from trainwright.cluster.controllers.quota_controller import QuotaController
from trainwright.cluster.controllers.root_ca_publisher import RootCaPublisher, root_ca_bundle
from trainwright.cluster.controllers.scheduler import Scheduler
from trainwright.cluster.controllers.serviceaccount_controller import ServiceAccountController, default_account
from trainwright.cluster.controllers.workloads.workload_controller import WorkloadController
from trainwright.cluster.data_directory_registry import DataDirectories, register
from trainwright.cluster.datadir import (
    CONTEXT,
    ClusterError,
    ClusterRecord,
    DataDir,
    DataDirLock,
    RememberedPort,
    this_process,
)
from trainwright.cluster.images.store import ImageStore
from trainwright.cluster.linux.listening_sockets import find_holder, find_listener
from trainwright.cluster.node.agent import NodeAgent, SandboxError, detect_node
from trainwright.cluster.node.node_streams import NodeStreams
from trainwright.cluster.node.pods.pod_directory import has_running_pods
from trainwright.cluster.node.records.container_logs import ContainerLogs
from trainwright.cluster.node.resource_usage import NodeUsage
from trainwright.cluster.node.supervisor.files import API_SOCKET
from trainwright.cluster.node_settings import NodeSettings
from trainwright.cluster.proxy.forwarder import ConnectionLimit
from trainwright.cluster.proxy.port_proxy import PortProxy
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists
from trainwright.kube.client.kubeconfig import ClusterConfig, merge_into_kubeconfig
from trainwright.kube.client.retries import backoff
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.net.http_server import listen
from trainwright.objects import Object
from trainwright.objects.conditions import find_condition
from trainwright.objects.kinds.gangs import GangScheduler
from trainwright.objects.kinds.nodes import NODE_NAME
from trainwright.objects.kinds.pod_subresources import LogOptions
from trainwright.objects.kinds.pods import MIRROR
from trainwright.objects.kinds.priorities import system_priority_classes
from trainwright.objects.metadata import namespaced_name
from trainwright.objects.resources import (
    CONFIG_MAPS,
    CRON_JOBS,
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    NODES,
    PRIORITY_CLASSES,
    REPLICATION_CONTROLLERS,
    SERVICE_ACCOUNTS,
    STORAGE_CLASSES,
    Resource,
)
from trainwright.objects.times import parse_time

HOST = "127.0.0.1"
DEFAULT_PORT = 26443
"""Below the ephemeral ports, so that it is usually free at the next start."""

_PORT_RANGE = 100
_NODE_READY_SECONDS = 20.0
_LOCK_CHECK_SECONDS = 1.0
_MIN_CONNECTIONS = 128


class _Logs:
    """The logs of pods with processes, and of mirror pods."""

    def __init__(self, containers: ContainerLogs, mirrors: Mapping[str, LogReader]) -> None:
        self._containers = containers
        self._mirrors = mirrors

    def read(self, pod: Object, container: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        mirrored = MIRROR in (pod["metadata"].get("annotations") or {})
        reader = self._mirrors.get(namespaced_name(pod)) if mirrored else None
        return (reader or self._containers).read(pod, container, options)


class EmbeddedCluster:
    """`config` is valid from `await start()` to `await stop()`. Pods keep running after the stop.

    `port` defaults to that of the last start, else to DEFAULT_PORT, else to a free one nearby. `mirror_logs` are the
    logs of mirror pods, by NAMESPACE/NAME; `local_services` are admission webhooks in this process, by namespace and
    name of the Service that configurations name.
    """

    def __init__(
        self,
        directory: Path,
        settings: NodeSettings | None = None,
        *,
        port: int | None = None,
        with_node: bool = True,
        mirror_logs: Mapping[str, LogReader] | None = None,
        local_services: Mapping[tuple[str, str], LocalService] | None = None,
        gang_scheduler: str | None = None,
    ) -> None:
        self._data = DataDir(directory.absolute())
        self._settings = settings or NodeSettings()
        self._port = port
        self._with_node = with_node
        self._mirror_logs = mirror_logs or {}
        self._local_services = local_services
        self._gang = GangScheduler(gang_scheduler) if gang_scheduler else None
        self._components = ComponentManager()
        self._exit_stack = AsyncExitStack()
        self._lock: DataDirLock | None = None
        self._addresses: AddressRange | None = None
        self._config: ClusterConfig | None = None
        self._server: ApiServer | None = None
        self._node: NodeAgent | None = None
        self.notes: list[str] = []
        """Remarks on this start for the user."""

    @property
    def config(self) -> ClusterConfig:
        if self._config is None:
            raise ClusterError("the cluster has not been started")
        return self._config

    def client(self, user_agent: str) -> Client:
        """A client for a component in this process: its requests do not pass a socket."""
        return Client(self.config, user_agent=user_agent, server=self._server)

    @property
    def sandbox(self) -> str:
        """The level in force; empty without a node."""
        return self._node.sandbox if self._node is not None else ""

    @property
    def failures(self) -> dict[str, str]:
        """Components that failed and are being restarted, each with the reason."""
        return self._components.failures

    async def start(self) -> None:
        """Returns when the API is served, the default objects exist and the node is ready."""
        self._data.create()
        self._lock = self._data.lock()
        self._exit_stack.callback(self._lock.release)
        register(self._data)
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stops everything in the reverse order of its start. Can be repeated."""
        await self._exit_stack.aclose()

    def announce(self, kubeconfig: Path, *, context: str = CONTEXT, ephemeral: bool = False) -> ClusterRecord:
        """Writes the record by which commands find this cluster; `kubeconfig` is the user's file with its context."""
        me = this_process()
        in_force = replace(self._settings, sandbox=self.sandbox, nfs_mappings=self._data.nfs_mappings())
        record = ClusterRecord(
            **asdict(in_force),
            pid=me.pid,
            start_ticks=me.start_ticks,
            boot_id=me.boot_id,
            server=self.config.server,
            version=trainwright.__version__,
            kubeconfig=str(kubeconfig),
            context=context,
            ephemeral=ephemeral,
            addresses=str(self._addresses or ""),
        )
        self._data.write_record(record)
        self._exit_stack.callback(self._data.remove_record, record)
        return record

    async def data_dir_removed(self) -> None:
        """Returns if the data directory is removed: further writes would be lost, and no command finds this process."""
        while self._lock is None or not self._lock.is_removed:  # noqa: ASYNC110 (polling replaces inotify)
            await asyncio.sleep(_LOCK_CHECK_SECONDS)

    async def _start(self) -> None:
        address_lock = self._lock_addresses()
        services = address_lock.addresses.services
        token = self._data.token()
        try:
            store = ObjectStore(self._data.store)
        except StoreError as error:
            raise ClusterError(str(error)) from error
        self._exit_stack.callback(store.close)
        if not has_running_pods(self._data.node):  # those have the addresses of Services in their environment
            await drop_foreign_addresses(store, services)
        self.notes += [
            f"{resource.kind}s that an earlier version stored no longer run: delete them"
            for resource in (CRON_JOBS, REPLICATION_CONTROLLERS)
            if store.count(resource.qualified_plural)
        ]
        address = kubernetes_address(store, services)
        tls, authority = pki.server_context(self._data.pki, address=address)
        listeners = await self._listen()
        served = ServedCluster(
            store,
            _Logs(ContainerLogs(self._data.node), self._mirror_logs),
            services,
            NodeStreams(self._data.node, self._data.session_secret()),
            unhealthy_components=lambda: self.failures,
            local_services=self._local_services,
            admits_accounts=True,
            usage=NodeUsage(self._data.node) if self._with_node else None,
        )
        self._server = ApiServer(
            served,
            token=token,
            tls=tls,
            load_service_account_key=lambda: pki.service_account_key(self._data.service_account_key),
            authority=authority,
            load_authority=lambda: pki.authority(self._data.pki),
            unix_socket=self._data.node / API_SOCKET if self._with_node else None,
        )
        self._exit_stack.push_async_callback(self._server.stop)
        port = await self._server.start(listeners)
        url = f"https://{HOST}:{port}"
        self._config = ClusterConfig(server=url, ca_data=authority, token=token, context=CONTEXT)
        merge_into_kubeconfig(self._data.kubeconfig, name=CONTEXT, server=url, ca_data=authority, token=token)
        client = await self._exit_stack.enter_async_context(self.client("trainwright-cluster"))
        if self._gang is not None:
            await _create_if_missing(client, CUSTOM_RESOURCE_DEFINITIONS, pod_group_crd(self._gang))
        self._start_controllers(client, authority)
        self._start_network(client, port, address)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_create_default_objects(client, authority))
                if self._with_node:
                    tasks.create_task(self._start_node(client, address_lock))
        except ExceptionGroup as several:
            raise several.exceptions[0] from several

    def _lock_addresses(self) -> AddressLock:
        before = self._data.remembered_addresses()
        lock = lock_addresses(self._data)
        self._exit_stack.callback(lock.release)
        self._addresses = lock.addresses
        if before not in {None, lock.addresses}:
            self.notes.append(
                f"another cluster uses the addresses {before}: "
                f"new pods and Services of this one have addresses in {lock.addresses}"
            )
        return lock

    async def _listen(self) -> list[socket.socket]:
        """On the requested port, else on that of the last start, one near the default or an ephemeral one."""
        remembered = self._data.remembered_port()
        preferred = self._port or (remembered.number if remembered is not None else DEFAULT_PORT)
        requested = bool(self._port) or (remembered is not None and remembered.requested)
        others = () if requested else (*range(DEFAULT_PORT, DEFAULT_PORT + _PORT_RANGE), 0)
        for candidate in (preferred, *others):
            try:
                listeners = await listen(HOST, candidate)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                text = f"cannot listen on {HOST}:{candidate}: {error.strerror}; choose another --port"
                raise ClusterError(text) from error
            for listener in listeners:
                self._exit_stack.callback(listener.close)
            port = listeners[0].getsockname()[1]
            if candidate != preferred:
                self.notes.append(f"{_port_in_use(preferred)}: the cluster listens on {port} instead")
            self._data.remember_port(RememberedPort(port, requested=requested))
            return listeners
        raise ClusterError(f"{_port_in_use(preferred)}: stop that process, or choose another port with --port")

    def _start_controllers(self, client: Client, authority: bytes) -> None:
        scheduler_events = EventRecorder(client, "default-scheduler", delay=0.25)  # pods start meanwhile
        volume_events = EventRecorder(client, "persistentvolume-controller")
        workload_events = EventRecorder(client, "controllermanager")
        for recorder in (scheduler_events, volume_events, workload_events):
            self._exit_stack.push_async_callback(recorder.close)
        self._exit_stack.push_async_callback(self._components.stop)
        start = self._components.start  # a restarted component is a new object with new stores
        start("scheduling", lambda: Scheduler(client, scheduler_events, gang=self._gang).controller)
        volumes = self._data.volumes
        start("volumes", lambda: PersistentVolumeController(client, volume_events, volumes).controller)
        start("workloads", lambda: WorkloadController(client, workload_events))
        start("garbage collection", lambda: GarbageCollector(client))
        start("namespaces", lambda: NamespaceController(client).controller)
        start("aggregated roles", lambda: ClusterRoleAggregation(client).controller)
        start("service accounts", lambda: ServiceAccountController(client).controller)
        start("quotas", lambda: QuotaController(client))
        start("root CA", lambda: RootCaPublisher(client, authority).controller)

    def _start_network(self, client: Client, port: int, address: str) -> None:
        recorder = EventRecorder(client, "service-proxy")
        self._exit_stack.push_async_callback(recorder.close)
        connections = ConnectionLimit(_max_connections())
        self._components.start("endpoints", lambda: EndpointsController(client).controller)
        self._components.start(
            "the Service kubernetes",
            lambda: KubernetesService(client, address=address, host=HOST, port=port).controller,
        )
        self._components.start("the service proxy", lambda: PortProxy(client, recorder, connections))

    async def _start_node(self, client: Client, address_lock: AddressLock) -> None:
        started = datetime.now(UTC).replace(microsecond=0)  # heartbeats have whole seconds
        own, others = os.path.realpath(self._data.path), DataDirectories()
        if self._settings.nfs_mappings:
            self._data.remember_nfs_mappings(self._settings.nfs_mappings)
        try:
            # Sandbox detection starts processes and waits for them.
            config = await asyncio.to_thread(
                detect_node,
                self._data.node,
                address_lock,
                replace(self._settings, nfs_mappings=self._data.nfs_mappings()),
                server=self.config.server,
                session_secret=self._data.session_secret(),
                find_hidden=lambda: (own, *others.find()),
                provisioned=self._data.volumes,
                images=ImageStore.of(self._data).directory,
            )
        except SandboxError as error:
            raise ClusterError(str(error)) from error
        self._node = node = NodeAgent(client, config)
        self._components.start("node", lambda: node)
        self._exit_stack.push_async_callback(node.stop)
        try:
            async with asyncio.timeout(_NODE_READY_SECONDS):
                await _node_ready(client, since=started)
        except TimeoutError:
            reason = self.failures.get("node", "unknown reason")
            self.notes.append(f"node {NODE_NAME} is not ready yet ({reason}): pods wait until it is")


async def _create_default_objects(client: Client, authority: bytes) -> None:
    """A default StorageClass, the system's PriorityClasses, and what each namespace has. Existing objects stay."""
    namespaces = [namespace["metadata"]["name"] for namespace in (await client.list(NAMESPACES)).items]
    await asyncio.gather(
        _create_if_missing(client, STORAGE_CLASSES, default_storage_class()),
        *(_create_if_missing(client, PRIORITY_CLASSES, priority) for priority in system_priority_classes()),
        *(_create_if_missing(client, SERVICE_ACCOUNTS, default_account(name)) for name in namespaces),
        *(_create_if_missing(client, CONFIG_MAPS, root_ca_bundle(authority, name)) for name in namespaces),
    )


async def _create_if_missing(client: Client, kind: Resource, obj: Object) -> None:
    with suppress(AlreadyExists):
        await client.create(kind, obj)


async def _node_ready(client: Client, *, since: datetime) -> None:
    """Returns when the node has reported Ready since this start; an older status is ignored."""
    selector = f"metadata.name={NODE_NAME}"
    while True:
        async with aclosing(client.watch(NODES, field_selector=selector, resource_version="0")) as events:
            async for event in events:
                ready = find_condition(event.object.get("status") or {}, "Ready") or {}
                if ready.get("status") == "True" and parse_time(ready["lastHeartbeatTime"]) >= since:
                    return


def _max_connections() -> int:
    """Connections to Services: each needs two descriptors, and pods, watches and clients need some too."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(_MIN_CONNECTIONS, descriptors // 4)


def _port_in_use(port: int) -> str:
    """Names the process too: the owner of the machine, who reads it, may see the arguments of commands."""
    listener = find_listener(port, HOST)
    holder = find_holder(listener.inode) if listener is not None else None
    return f"port {port} is taken" + (
        f" by process {holder.pid} ({holder.command[:200]})" if holder is not None else ""
    )


log = logging.getLogger(__name__)

_FIRST_BACKOFF, _MAX_BACKOFF = 0.1, 30.0
_HEALTHY_SECONDS = 10.0
"""A component that ran this long is healthy: its failure is forgotten and its back-off reset."""


class Component(Protocol):
    async def run(self) -> None: ...


class ComponentManager:
    """Each component runs until it is cancelled; if it returns or raises, it has failed and a new one is made."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, str] = {}

    @property
    def failures(self) -> dict[str, str]:
        """Components that failed and are not healthy again, each with the reason."""
        return dict(self._failures)

    def start(self, name: str, new: Callable[[], Component]) -> None:
        self._tasks[name] = asyncio.create_task(self._keep_running(name, new), name=name)

    async def stop(self) -> None:
        """Cancels all components one after the other, the last started first."""
        for task in reversed(self._tasks.values()):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._tasks.clear()

    async def _keep_running(self, name: str, new: Callable[[], Component]) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            recovery = loop.call_later(_HEALTHY_SECONDS, self._failures.pop, name, None)
            started = loop.time()
            try:
                await new().run()
                reason = "it ended unexpectedly"
                log.error("%s: %s; restarting it", name, reason)
            except Exception as error:
                cause = _first_cause(error)
                reason = f"{type(cause).__name__}: {cause}"
                log.exception("%s failed; restarting it", name)
            finally:
                recovery.cancel()
            failures = 0 if loop.time() - started >= _HEALTHY_SECONDS else failures + 1
            self._failures[name] = reason
            jitter = random.random()  # noqa: S311
            await asyncio.sleep(backoff(failures, jitter=jitter, first=_FIRST_BACKOFF, longest=_MAX_BACKOFF))


def _first_cause(error: BaseException) -> BaseException:
    """Components are task groups: the message of an exception group does not name the cause."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
