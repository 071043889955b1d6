"""An embedded API server with a node agent, and pods that are created with a nodeName."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.cluster.embedded_apiserver import running_embedded
from tests.support.cluster.supervised_pods import end_supervisors
from tests.support.waiting import eventually
from trainwright.cluster.address_lock import AddressLock
from trainwright.cluster.node.agent import NodeAgent, detect_node
from trainwright.cluster.node.records.container_logs import ContainerLogs
from trainwright.cluster.node_settings import NodeSettings
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import NotFound
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.objects import Object
from trainwright.objects.kinds.pod_subresources import LogOptions
from trainwright.objects.node_annotations import HOST_IMAGE
from trainwright.objects.resources import EVENTS, PODS

_LESS_THAN_A_GRACE_PERIOD = 25.0


@dataclass
class Node:
    """Creates, reads and deletes the pods of one node agent."""

    client: Client
    config: ClusterConfig
    directory: Path
    addresses: AddressLock
    agent: NodeAgent | None = None
    _running: "asyncio.Task[None] | None" = None

    async def up(self, **options: Any) -> NodeAgent:
        """Starts an agent, the first or the next one on the same directory. `options` are fields of NodeSettings, and
        options of `detect_node`."""
        options = {"images": self.directory.absolute() / "images", "server": self.config.server, **options}
        settings = NodeSettings(
            **{name: options.pop(name) for name in NodeSettings.__struct_fields__ if name in options}
        )
        self.agent = NodeAgent(self.client, detect_node(self.directory, self.addresses, settings, **options))
        self._running = asyncio.create_task(self.agent.run())
        return self.agent

    async def down(self) -> None:
        """Stops the agent; its pods keep running."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None

    async def create(self, name: str, *containers: Object, annotations: Any = None, **spec: Any) -> Object:
        metadata = {"name": name, "namespace": "default", **spec.pop("metadata", {})}
        if annotations:
            metadata["annotations"] = {f"node.trainwright.dev/{key}": value for key, value in annotations.items()}
        spec = {"nodeName": "local", "restartPolicy": "Never", "containers": list(containers), **spec}
        return await self.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    async def pod(self, name: str) -> Object | None:
        try:
            return await self.client.get(PODS, name, namespace="default")
        except NotFound:
            return None

    async def until(self, name: str, done: Callable[[Object], object]) -> Object:
        found = await eventually(lambda: self.pod(name), lambda pod: pod and done(pod))
        assert found is not None
        return found

    async def until_phase(self, name: str, phase: str) -> Object:
        return await self.until(name, lambda pod: pod.get("status", {}).get("phase") == phase)

    async def until_waiting(self, name: str) -> Object:
        """The waiting state of the pod's first container, when its reason is not ContainerCreating."""

        def reason(pod: Object) -> Any:
            statuses = pod.get("status", {}).get("containerStatuses") or [{"state": {}}]
            return statuses[0]["state"].get("waiting", {})

        pod = await self.until(name, lambda pod: reason(pod).get("reason") not in {None, "ContainerCreating"})
        found: Object = reason(pod)
        return found

    async def until_gone(self, name: str) -> None:
        await eventually(lambda: self.pod(name), lambda pod: pod is None, seconds=_LESS_THAN_A_GRACE_PERIOD)

    async def delete(self, name: str, **options: Any) -> None:
        await self.client.delete(PODS, name, namespace="default", **options)

    async def log(self, pod: Object, container: str = "main", **options: Any) -> str:
        logs = ContainerLogs(self.directory)
        return b"".join([piece async for piece in logs.read(pod, container, LogOptions(**options))]).decode()

    async def event(self, reason: str) -> Object:
        async def events() -> list[Object]:
            return (await self.client.list(EVENTS, namespace="default")).items

        found = await eventually(events, lambda events: any(one["reason"] == reason for one in events))
        return next(one for one in found if one["reason"] == reason)


def container(script: str, **fields: Any) -> Object:
    """A container that runs a shell script on the host's files."""
    return {"name": "main", "image": HOST_IMAGE, "command": ["sh", "-c", script], **fields}


@asynccontextmanager
async def running_node(directory: Path, **options: Any) -> AsyncIterator[Node]:
    """A server and an agent. Pods that are left at the end are killed."""
    async with running_embedded() as embedded, Client(embedded.config) as client:
        node = Node(client, embedded.config, directory, embedded.addresses)
        await node.up(**options)
        try:
            yield node
        finally:
            await node.down()
            end_supervisors(directory)
