"""The node agent, the kubelet of the embedded cluster: registers this machine as a Node and runs the pods bound to it.

It is an ordinary client of the API. Pods belong to their supervisors, not to this process: if it ends, even by
`kill -9`, they keep running and the next agent adopts them.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import pwd
import shutil
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from trainwright.cluster.address_lock import AddressLock
from trainwright.cluster.linux.mounts import is_below
from trainwright.cluster.linux.user_namespaces import has_subordinate_ids
from trainwright.cluster.node.devices.nvidia import DriverFiles, read_driver_files
from trainwright.cluster.node.machine import raise_limit, read_disk, read_machine, read_text
from trainwright.cluster.node.network.hosts import api_server_variables
from trainwright.cluster.node.network.pod_network import HostsFileWriter, PodNetwork
from trainwright.cluster.node.node_registration import NodeRegistration, index_version
from trainwright.cluster.node.pods.fork_server_starter import session_key
from trainwright.cluster.node.pods.node_config import NodeConfig
from trainwright.cluster.node.pods.pod_workers import PodWorkers
from trainwright.cluster.node.records.retention import Retention
from trainwright.cluster.node.supervisor.files import AGENT_SOCKET, CGROUPS_FILE, DISK_FULL_NOTE, SocketPath, write_json
from trainwright.cluster.node.supervisor.sandbox.cgroups import find_directories
from trainwright.cluster.node.supervisor.sandbox.detection import Sandbox, SandboxError, detect_sandbox
from trainwright.cluster.node.supervisor.sandbox.sandbox import PLAIN
from trainwright.cluster.node.volumes.sources import NfsSupport
from trainwright.cluster.node_settings import NodeSettings
from trainwright.kube.client.async_client import Client
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.kinds.nodes import NODE_NAME
from trainwright.objects.kinds.pods import MIRROR
from trainwright.objects.resources import NAMESPACES, PODS, SERVICES

__all__ = ["NodeAgent", "SandboxError", "detect_node"]

log = logging.getLogger(__name__)

_POD_WORKERS = 16
_DISK_PERIOD = 2.0
_EVICTION_PERIOD = 10.0
"""As the kubelet's."""


class NodeAgent:
    """`config` is what `detect_node` found."""

    def __init__(self, client: Client, config: NodeConfig) -> None:
        self._client = client
        self._config = config
        write_json(str(config.directory / CGROUPS_FILE), {"cgroups": config.cgroups})
        self._running: asyncio.Task[None] | None = None

    @property
    def sandbox(self) -> str:
        """The level in force."""
        return self._config.sandbox.level

    async def run(self) -> None:
        """Runs until it is cancelled or stopped."""
        self._running = asyncio.current_task()
        network = PodNetwork(
            self._config.directory,
            self._config.pod_network,
            machine_hosts=lambda: read_text("/etc/hosts"),
            keeps_addresses=self._config.sandbox.level == PLAIN,
        )
        # Events have the kubelet's name, by which users filter them. Those of a pod's start are written after it.
        recorder = EventRecorder(self._client, "kubelet", NODE_NAME, delay=0.25)
        retention = Retention(self._client, self._config.directory)
        pod_workers = PodWorkers(self._client, self._config, network, recorder, on_retired=retention.add)
        pod_workers.restore()
        registration = NodeRegistration(self._client, self._config)
        hosts_files = HostsFileWriter(network, on_names_changed=pod_workers.on_names_changed)
        controller = self._controller(pod_workers, registration, network, hosts_files)
        listener = self._listen(pod_workers)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(controller.run())
                tasks.create_task(retention.run())
                await controller.synced.wait()
                await registration.register()
                tasks.create_task(registration.run())
                tasks.create_task(self._disk_loop(pod_workers, registration))
                tasks.create_task(self._eviction_loop(pod_workers))
        finally:
            hosts_files.close()
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
            (self._config.directory / AGENT_SOCKET).unlink(missing_ok=True)
            await pod_workers.close()
            await recorder.close()
            self._running = None

    def _controller(
        self,
        pod_workers: PodWorkers,
        registration: NodeRegistration,
        network: PodNetwork,
        hosts_files: HostsFileWriter,
    ) -> Controller[str]:
        def on_pod(before: Object | None, after: Object | None) -> None:
            if MIRROR in ((after or before or {}).get("metadata", {}).get("annotations") or {}):
                return  # it has no process here
            pod_workers.on_pod_change(before, after)
            hosts_files.write_soon()

        def on_service(before: Object | None, after: Object | None) -> None:
            network.update_service(before, after)
            hosts_files.write_soon()

        pods = Reflector(
            self._client,
            PODS,
            pod_workers.store,
            field_selector=f"spec.nodeName={NODE_NAME}",
            on_change=on_pod,
        )
        services: Store[Object] = Store()
        return Controller(
            pod_workers.sync,
            log=log,
            reflectors=[
                *pod_workers.volumes.reflectors,
                Reflector(self._client, SERVICES, services, on_change=on_service),
                Reflector(self._client, NAMESPACES, pod_workers.namespaces.store),
                registration.reflector,
                pods,
            ],
            queue=pod_workers.queue,
            workers=_POD_WORKERS,
            on_error=pod_workers.on_error,
            retry_log_level=logging.WARNING,
        )

    async def stop(self) -> None:
        """The pods keep running."""
        task = self._running
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _listen(self, pod_workers: PodWorkers) -> socket.socket:
        """Opens the socket for notifications of supervisors."""
        path = self._config.directory / AGENT_SOCKET
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        with SocketPath(str(self._config.directory), AGENT_SOCKET) as short_path:
            listener.bind(short_path)

        def on_notification() -> None:
            with contextlib.suppress(BlockingIOError):
                while True:
                    uid, _, note = listener.recv(256).decode().partition(" ")
                    if note == DISK_FULL_NOTE:
                        pod_workers.on_disk_full(uid)
                    else:
                        pod_workers.on_state_change(uid)

        asyncio.get_running_loop().add_reader(listener, on_notification)
        return listener

    async def _disk_loop(self, pod_workers: PodWorkers, registration: NodeRegistration) -> None:
        almost_full = False  # as registered, or reported at once
        images = index_version(self._config.images)
        while True:
            pressure = read_disk(self._config.directory).is_almost_full
            version = index_version(self._config.images)
            if pressure != almost_full or version != images:
                if pressure != almost_full:
                    pod_workers.set_disk_pressure(pressure)
                almost_full, images = pressure, version
                await registration.report_status()
            await asyncio.sleep(_DISK_PERIOD)

    async def _eviction_loop(self, pod_workers: PodWorkers) -> None:
        while True:
            await asyncio.sleep(_EVICTION_PERIOD)
            with contextlib.suppress(OSError):  # the disk is full: the next period tries again
                await pod_workers.evict_large_pods()


def detect_node(
    directory: Path,
    address_lock: AddressLock,
    settings: NodeSettings,
    *,
    server: str,
    images: Path,
    supervisor_python: str = sys.executable,
    session_secret: bytes = b"",
    find_hidden: Callable[[], Iterable[str]] = tuple,
    provisioned: Path | None = None,
) -> NodeConfig:
    """Finds out what this machine has and can do. Raises SandboxError if the chosen sandbox does not work here.

    `directory` is for the files of the node and its pods, `images` has the store of images, `server` is the URL of the
    API server. Pods get addresses of `address_lock`, and keep them locked. They see neither `directory` nor the real
    paths that `find_hidden` finds when they start, but for the volumes in `provisioned`.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    home = Path(_home())
    detected = detect_sandbox(str(directory.absolute()), forced=settings.sandbox or None, python=supervisor_python)
    cgroups, limits_reason = find_directories(f"trainwright-{_hash(directory)}")
    machine = read_machine(directory)
    own = [os.path.realpath(path) for path in (directory, home / ".kube", images)]

    def find_all() -> tuple[str, ...]:
        return tuple(dict.fromkeys((*find_hidden(), *own)))

    return NodeConfig(
        settings=settings,
        directory=directory.absolute(),
        pod_network=address_lock.addresses.pods,
        address_mark=address_lock.mark,
        sandbox=detected,
        supervisor_python=supervisor_python,
        machine=machine,
        user=os.getuid(),
        session_secret=session_secret,
        open_files=raise_limit(),
        home=str(home),
        shared_home=str(home) if home.is_dir() and home.resolve() != Path("/") else None,
        homes=_homes(home),
        # At `plain` no token is where clients look for it: they must find the kubeconfig instead.
        service_variables=api_server_variables(server) if detected.level != PLAIN else {},
        nfs=_nfs_support(detected, settings.nfs_mappings),
        cgroups=cgroups,
        limits_reason=limits_reason,
        images=images,
        shared_memory=f"/dev/shm/trainwright-{session_key(session_secret, 'shared memory')[:16]}",  # noqa: S108
        driver=read_driver_files() if machine.gpus else DriverFiles(),
        has_many_users=detected.user_namespace and has_subordinate_ids(os.getuid()),
        provisioned=str(provisioned) if provisioned is not None else None,
        find_hidden=find_all,
    )


def _homes(own: Path) -> tuple[str, ...]:
    """The home of this user, and the usual places of the others'."""
    found = {os.path.realpath(path) for path in (own, Path("/home"), Path("/root")) if path.is_dir()} - {"/"}
    return tuple(sorted(path for path in found if not is_below(path, list(found))))


def _nfs_support(sandbox: Sandbox, mappings: Mapping[str, str]) -> NfsSupport:
    if os.getuid() != 0 or sandbox.level == PLAIN or sandbox.user_namespace:
        return NfsSupport(mappings=mappings)
    program = shutil.which("mount.nfs", path="/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin")
    return NfsSupport(mappings=mappings, program=program, reason="mount.nfs is not installed (nfs-common, nfs-utils)")


def _hash(directory: Path) -> str:
    """Names the same directory at every start; another cluster has another."""
    return hashlib.sha256(os.fsencode(directory.absolute())).hexdigest()[:12]


def _home() -> str:
    """The home of this user as programs find it: HOME, else the entry in the user database."""
    if (home := os.environ.get("HOME", "")).startswith("/"):
        return os.path.normpath(home)
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/"
