"""The Node object of this machine, and its Lease."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from trainwright.cluster.node.disk import read_disk
from trainwright.cluster.node.image_list import read_images
from trainwright.cluster.node.node_status import (
    LEASE_NAMESPACE,
    lease,
    node_metadata,
    node_status,
)
from trainwright.cluster.node.pods.node_config import NodeConfig
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, ApiError, NotFound, Unreachable
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.kinds.nodes import NODE_NAME
from trainwright.objects.resources import LEASES, NODES

log = logging.getLogger(__name__)

_LEASE_PERIOD = 10.0
_STATUS_PERIOD = 300.0
"""As the kubelet's."""


class NodeRegistration:
    """Creates the Node, reports its status and renews its Lease. By `reflector` it learns that the Node was deleted."""

    def __init__(self, client: Client, config: NodeConfig) -> None:
        self._client = client
        self._config = config
        self._deleted = asyncio.Event()
        nodes: Store[Object] = Store()
        self.reflector: Reflector[Object] = Reflector(
            client, NODES, nodes, field_selector=f"metadata.name={NODE_NAME}", on_change=self._on_change
        )

    async def register(self) -> None:
        metadata = node_metadata(NODE_NAME, self._config.machine, sandbox=self._config.sandbox)
        network = str(self._config.pod_network)
        node: Object = {"metadata": metadata, "spec": {"podCIDR": network, "podCIDRs": [network]}}
        try:
            await self._client.create(NODES, {"apiVersion": "v1", "kind": "Node", **node})
        except AlreadyExists:
            await self._client.patch(NODES, NODE_NAME, node)
        await self._patch_status()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._lease_loop())
            tasks.create_task(self._status_loop())
            tasks.create_task(self._registration_loop())

    async def report_status(self) -> None:
        """If the API server does not take it, the next period tries again."""
        await _try("status of the node", self._patch_status)

    def _on_change(self, _: Object | None, after: Object | None) -> None:
        if after is None:
            self._deleted.set()

    async def _registration_loop(self) -> None:
        while True:
            await self._deleted.wait()
            self._deleted.clear()
            await _try("registration of the node", self.register)

    async def _status_loop(self) -> None:
        while True:
            await asyncio.sleep(_STATUS_PERIOD)
            await self.report_status()

    async def _patch_status(self) -> None:
        node = await self._client.get(NODES, NODE_NAME)
        status = node_status(
            self._config.machine,
            node.get("status") or {},
            sandbox=self._config.sandbox,
            limits_reason=self._config.limits_reason,
            disk=read_disk(self._config.directory),
            images=await asyncio.to_thread(read_images, self._config.images),
            now=datetime.now(UTC),
        )
        await self._client.patch(NODES, NODE_NAME, {"status": status}, subresource="status")

    async def _lease_loop(self) -> None:
        while True:
            await _try("lease of the node", self._renew_lease)
            await asyncio.sleep(_LEASE_PERIOD)

    async def _renew_lease(self) -> None:
        wanted = lease(NODE_NAME, now=datetime.now(UTC))
        try:
            await self._client.patch(LEASES, NODE_NAME, {"spec": wanted["spec"]}, namespace=LEASE_NAMESPACE)
        except NotFound:
            await self._client.create(LEASES, wanted)


async def _try(what: str, update: Callable[[], Awaitable[None]]) -> None:
    """Logs an error of the API server; the next period tries again."""
    try:
        await update()
    except (ApiError, Unreachable) as error:
        log.warning("failed to update the %s: %s", what, error)
