"""The Node object of this machine and its Lease: capacity, conditions and images, reported while the agent runs."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from trainwright import __version__
from trainwright.cluster.images.blobs import StoreError
from trainwright.cluster.images.store import Image, ImageStore
from trainwright.cluster.node.devices.allocation import GPU_RESOURCE
from trainwright.cluster.node.devices.nvidia import Gpu
from trainwright.cluster.node.machine import Disk, Machine, how_to_free, read_disk
from trainwright.cluster.node.pods.node_config import NodeConfig
from trainwright.cluster.node.supervisor.sandbox.detection import Sandbox
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, ApiError, NotFound, Unreachable
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.kinds.nodes import NODE_ADDRESS, NODE_NAME, OWN_PORTS
from trainwright.objects.node_annotations import SANDBOX
from trainwright.objects.resources import LEASES, NODES
from trainwright.objects.times import format_micro_time, format_time

_LEASE_NAMESPACE = "kube-node-lease"
_LEASE_SECONDS = 40

_HEALTHY = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "the node does not monitor its memory"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "the node does not monitor its process ids"),
    "Ready": ("True", "KubeletReady", "pods run as processes of this machine"),
}
_MOST_IMAGES = 50
"""As the kubelet, which leaves out the smallest."""
log = logging.getLogger(__name__)

_LEASE_PERIOD = 10.0
_STATUS_PERIOD = 300.0
"""As the kubelet's."""


def _node_metadata(machine: Machine, sandbox: Sandbox) -> Object:
    labels = {
        "kubernetes.io/hostname": NODE_NAME,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": machine.architecture,
        **_gpu_labels(machine.gpus),
    }
    return {"name": NODE_NAME, "labels": labels, "annotations": {SANDBOX: sandbox.level}}


def _gpu_labels(gpus: Sequence[Gpu]) -> dict[str, str]:
    """As NVIDIA's GPU feature discovery sets them, of the first GPU."""
    if not gpus:
        return {}
    return {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.count": str(len(gpus)),
        "nvidia.com/gpu.product": gpus[0].name.replace(" ", "-"),
        "nvidia.com/gpu.memory": str(gpus[0].memory // 2**20),
    }


def node_status(
    machine: Machine,
    before: Object,
    *,
    sandbox: Sandbox,
    disk: Disk,
    now: datetime,
    limits_reason: str = "",
    images: Sequence[Object] = (),
) -> Object:
    """`limits_reason` is why limits of cpu and memory are not enforced."""
    capacity = {
        "cpu": str(machine.cpus),
        "memory": f"{machine.memory // 1024}Ki",
        "ephemeral-storage": f"{machine.disk // 1024}Ki",
        "pods": str(machine.pods),
        **({GPU_RESOURCE: str(len(machine.gpus))} if machine.gpus else {}),
    }
    old = {condition["type"]: condition for condition in before.get("conditions") or []}
    conditions = []
    health = {
        **_HEALTHY,
        "DiskPressure": _disk_pressure(disk),
        "LimitsEnforced": _limits_enforced(limits_reason),
        OWN_PORTS: _own_ports(sandbox.shared_ports),
    }
    for kind, (status, reason, message) in health.items():
        same = old.get(kind, {}).get("status") == status
        since = old[kind].get("lastTransitionTime") if same else None
        sandbox_note = f" (sandbox {sandbox.level}: {sandbox.reason})" if kind == "Ready" and sandbox.reason else ""
        conditions.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message + sandbox_note,
                "lastHeartbeatTime": format_time(now),
                "lastTransitionTime": since or format_time(now),
            }
        )
    return {
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": conditions,
        "images": list(images),
        "addresses": [
            {"type": "InternalIP", "address": NODE_ADDRESS},
            {"type": "Hostname", "address": machine.hostname},
        ],
        "nodeInfo": {
            "machineID": machine.machine_id,
            "systemUUID": machine.machine_id,
            "bootID": machine.boot_id,
            "kernelVersion": machine.kernel,
            "osImage": machine.os_image,
            "containerRuntimeVersion": f"trainwright://{__version__}",
            "kubeletVersion": f"v{__version__}",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": machine.architecture,
        },
    }


def _limits_enforced(reason: str) -> tuple[str, str, str]:
    if reason:
        return "False", "NoControlGroups", f"limits of cpu and memory are not enforced: {reason}"
    return "True", "ControlGroups", "limits of cpu and memory are enforced by control groups"


def _own_ports(reason: str) -> tuple[str, str, str]:
    if reason:
        return "False", "SharedPorts", shared_ports_text(reason)
    return "True", "SystemCallFilter", "every pod has its own ports, at its own address"


def shared_ports_text(reason: str) -> str:
    """Why pods have the ports of the machine, what that means, and what to do."""
    return (
        f"pods have the ports of this machine: {reason}; two pods cannot listen on the same port. Pods have their own "
        "with Linux 5.9 or later, if a container around the cluster allows seccomp filters with user notification"
    )


def _disk_pressure(disk: Disk) -> tuple[str, str, str]:
    if disk.is_almost_full:
        return "True", "KubeletHasDiskPressure", f"{disk.summary}; {how_to_free(disk.directory)}"
    return "False", "KubeletHasNoDiskPressure", disk.summary


def read_images(directory: Path) -> list[Object]:
    """The images of the store in this directory, the largest first; none if it cannot be read."""
    try:
        images = ImageStore(directory).images()
    except (StoreError, OSError):
        return []
    by_manifest: dict[str, list[Image]] = {}
    for image in images:
        by_manifest.setdefault(image.descriptor.digest, []).append(image)
    listed: list[Object] = [{"names": _names(group), "sizeBytes": _size(group[0])} for group in by_manifest.values()]
    named = [image for image in listed if image["names"]]
    return sorted(named, key=lambda image: -int(image["sizeBytes"]))[:_MOST_IMAGES]


def index_version(directory: Path) -> int:
    """Changes when images are added or removed."""
    try:
        return (directory / "index.json").stat().st_mtime_ns
    except OSError:
        return 0


def _names(images: list[Image]) -> list[str]:
    references = [(image, image.reference) for image in images if image.reference is not None]
    digests = [f"{reference.name}@{image.registry_digest}" for image, reference in references]
    return list(dict.fromkeys([*digests, *(str(reference) for _, reference in references)]))


def _size(image: Image) -> int:
    return sum(layer.size for layer in image.manifest.layers) + image.manifest.config.size


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
        metadata = _node_metadata(self._config.machine, self._config.sandbox)
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
        now = format_micro_time(datetime.now(UTC))
        spec = {"holderIdentity": NODE_NAME, "leaseDurationSeconds": _LEASE_SECONDS, "renewTime": now}
        try:
            await self._client.patch(LEASES, NODE_NAME, {"spec": spec}, namespace=_LEASE_NAMESPACE)
        except NotFound:
            metadata = {"name": NODE_NAME, "namespace": _LEASE_NAMESPACE}
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
            await self._client.create(LEASES, lease)


async def _try(what: str, update: Callable[[], Awaitable[None]]) -> None:
    """Logs an error of the API server; the next period tries again."""
    try:
        await update()
    except (ApiError, Unreachable) as error:
        log.warning("failed to update the %s: %s", what, error)
