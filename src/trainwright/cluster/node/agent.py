"""The node agent of the embedded cluster: registers this machine as a Node and runs the pods that are bound to it.

It is an ordinary client of the API. Pods belong to their supervisors, not to this process: it may end, even by
`kill -9`, and the next one takes them over where they are.
"""

import asyncio
import contextlib
import logging
import os
import pwd
import socket
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from trainwright.cluster.node.network.pod_network import PodNetwork
from trainwright.cluster.node.node_status import (
    LEASE_NAMESPACE,
    format_ports,
    lease,
    node_metadata,
    node_status,
    read_machine,
    reported_ports,
)
from trainwright.cluster.node.pods.pod_workers import Place, PodKeeper
from trainwright.cluster.node.supervisor.sandbox_detection import SandboxError, detect_sandbox
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, ApiError, NotFound, Unreachable
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store, raw_metadata
from trainwright.objects import Object
from trainwright.objects.node_annotations import LISTENING_PORTS
from trainwright.objects.resources import LEASES, NODES, PODS, SERVICES

__all__ = ["NodeAgent", "SandboxError"]

log = logging.getLogger(__name__)

_POD_WORKERS = 16
_LEASE_PERIOD = 10.0
_STATUS_PERIOD = 300.0
_PORTS_PERIOD = 2.0


class NodeAgent:
    """`directory` is the node's own part of the data directory; `sandbox` forces a level, None takes the strongest.

    Raises SandboxError if the forced level does not work here.
    """

    def __init__(
        self,
        client: Client,
        directory: Path,
        *,
        name: str = "local",
        sandbox: str | None = None,
        python: Path | None = None,
        supervisor_python: Path | None = None,
    ) -> None:
        self._client = client
        self._directory = directory
        self._name = name
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        own_python = str(supervisor_python or sys.executable)
        self._place = Place(
            node_name=name,
            directory=directory.absolute(),
            sandbox=detect_sandbox(str(directory.absolute()), forced=sandbox, python=own_python),
            python=str(python or sys.executable),
            supervisor_python=own_python,
            machine=read_machine(directory),
            home=_home(),
        )
        self._running: asyncio.Task[None] | None = None
        self._ports: frozenset[int] = frozenset()

    @property
    def sandbox(self) -> str:
        """The level in force."""
        return self._place.sandbox.level

    async def run(self) -> None:
        """Until it is cancelled or stopped."""
        self._running = asyncio.current_task()
        network = PodNetwork(self._place.directory, machine_hosts=_machine_hosts)
        recorder = EventRecorder(self._client, "trainwright-node", self._name)
        keeper = PodKeeper(self._client, self._place, network, recorder)
        keeper.load()
        loop = asyncio.get_running_loop()

        def names_changed() -> None:
            if network.write_hosts_files():
                keeper.on_names_changed()

        def on_pod(before: Object | None, after: Object | None) -> None:
            keeper.on_change(before, after)
            loop.call_soon(names_changed)

        def on_service(before: Object | None, after: Object | None) -> None:
            network.update_service(before, after)
            loop.call_soon(names_changed)

        services: Store[Object] = Store(metadata=raw_metadata)
        bound_here = f"spec.nodeName={self._name}"
        controller = Controller(
            keeper.sync,
            log=log,
            reflectors=[
                Reflector(self._client, SERVICES, services, convert=_whole, on_change=on_service),
                Reflector(
                    self._client, PODS, keeper.store, convert=_whole, field_selector=bound_here, on_change=on_pod
                ),
            ],
            queue=keeper.queue,
            workers=_POD_WORKERS,
            on_error=keeper.on_error,
        )
        listener = self._listen(keeper)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(controller.run())
                await controller.synced.wait()
                await self._register()
                tasks.create_task(self._keep_lease())
                tasks.create_task(self._keep_status())
                tasks.create_task(self._keep_ports())
        finally:
            loop.remove_reader(listener)
            listener.close()
            keeper.close()
            await recorder.close()
            self._running = None

    async def stop(self) -> None:
        """The pods go on running."""
        task = self._running
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _listen(self, keeper: PodKeeper) -> socket.socket:
        """Where supervisors tell that something has changed."""
        path = self._place.directory / "agent.sock"
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        # By the directory's descriptor, because the path of a socket may not be longer than 107 characters.
        directory = os.open(self._place.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            listener.bind(f"/proc/self/fd/{directory}/agent.sock")
        finally:
            os.close(directory)

        def heard() -> None:
            with contextlib.suppress(BlockingIOError):
                while True:
                    keeper.poke(listener.recv(256).decode())

        asyncio.get_running_loop().add_reader(listener, heard)
        return listener

    # The Node object

    async def _register(self) -> None:
        self._ports = reported_ports()
        metadata = node_metadata(self._name, self._place.machine, sandbox=self._place.sandbox, ports=self._ports)
        try:
            await self._client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        except AlreadyExists:
            await self._client.patch(NODES, self._name, {"metadata": metadata})
        await self._report_status()

    async def _report_status(self) -> None:
        node = await self._client.get(NODES, self._name)
        status = node_status(
            self._place.machine, node.get("status") or {}, sandbox=self._place.sandbox, now=datetime.now(UTC)
        )
        await self._client.patch(NODES, self._name, {"status": status}, subresource="status")

    async def _keep_status(self) -> None:
        while True:
            await asyncio.sleep(_STATUS_PERIOD)
            await self._patiently("status of the node", self._report_status)

    async def _keep_lease(self) -> None:
        while True:
            await self._patiently("lease of the node", self._renew_lease)
            await asyncio.sleep(_LEASE_PERIOD)

    async def _renew_lease(self) -> None:
        wanted = lease(self._name, now=datetime.now(UTC))
        try:
            await self._client.patch(LEASES, self._name, {"spec": wanted["spec"]}, namespace=LEASE_NAMESPACE)
        except NotFound:
            await self._client.create(LEASES, wanted)

    async def _keep_ports(self) -> None:
        while True:
            await asyncio.sleep(_PORTS_PERIOD)
            await self._patiently("ports of the node", self._report_ports)

    async def _report_ports(self) -> None:
        ports = reported_ports()
        if ports != self._ports:
            annotations = {LISTENING_PORTS: format_ports(ports)}
            await self._client.patch(NODES, self._name, {"metadata": {"annotations": annotations}})
            self._ports = ports

    async def _patiently(self, what: str, report: Callable[[], Awaitable[None]]) -> None:
        """The API server may be away for a moment; the next round tries again."""
        try:
            await report()
        except (ApiError, Unreachable) as error:
            log.warning("%s: %s", what, error)


def _whole(obj: Object) -> Object:
    return obj


def _machine_hosts() -> str:
    try:
        return Path("/etc/hosts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/"
