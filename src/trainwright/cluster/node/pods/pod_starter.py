"""Starts pods: everything that a pod needs on this node is there before its supervisor runs."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from trainwright.cluster.node.devices.allocation import GPU_RESOURCE, GpuAllocations
from trainwright.cluster.node.machine import how_to_free
from trainwright.cluster.node.network.hosts import API_SERVER_HOST, unresolved_names
from trainwright.cluster.node.network.pod_network import PodNetwork
from trainwright.cluster.node.pods.config.container_image import ContainerImage
from trainwright.cluster.node.pods.config.pod_context import PodContext, PodWarning
from trainwright.cluster.node.pods.config.runtime_config import RuntimeConfig, WaitingReason, generate_runtime_config
from trainwright.cluster.node.pods.images.pod_images import PodImages
from trainwright.cluster.node.pods.node_config import NodeConfig
from trainwright.cluster.node.pods.pod_directory import PodDirectory
from trainwright.cluster.node.pods.pod_recorder import PodRecorder
from trainwright.cluster.node.pods.pod_setup import find_installations, find_open_mpis, make_shared_memory, set_up_pod
from trainwright.cluster.node.pods.running_supervisors import Supervisors
from trainwright.cluster.node.pods.volume_manager import VolumeManager
from trainwright.cluster.node.referenced_objects import PodConfigError
from trainwright.cluster.node.supervisor.containers import container_status
from trainwright.cluster.node.supervisor.files import DISK_FULL
from trainwright.cluster.node.supervisor.sandbox.sandbox import PLAIN
from trainwright.kube.client.async_client import Client
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.kinds.pod_security import ENFORCE, PRIVILEGED
from trainwright.objects.node_annotations import PYTHON
from trainwright.objects.resources import NAMESPACES
from trainwright.objects.times import unix_seconds

_RESOLVE_SECONDS = 5.0


def started_at(pod: Object, now: datetime) -> float:
    """When this node accepted the pod, in seconds since the epoch."""
    reported = unix_seconds((pod.get("status") or {}).get("startTime"))
    return now.timestamp() if reported is None else reported


class Namespaces:
    """The namespaces of pods, as far as this node needs them: whether their policy opens the machine to pods."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.store: Store[Object] = Store()

    async def open_homes(self, name: str) -> bool:
        """Whether pods share the home of the user, as with a hostPath, which every level but `privileged` forbids."""
        # The watch may not have seen a new one yet.
        namespace = self.store.get(name) or await self._client.get(NAMESPACES, name)
        labels = namespace["metadata"].get("labels") or {}
        return bool(labels.get(ENFORCE, PRIVILEGED) == PRIVILEGED)


@dataclass(eq=False, kw_only=True)
class PodStarter:
    node: NodeConfig
    supervisors: Supervisors
    recorder: PodRecorder
    network: PodNetwork
    volumes: VolumeManager
    namespaces: Namespaces
    images: PodImages
    gpus: GpuAllocations
    clock: Callable[[], datetime]
    waiting_for_names: set[str] = field(default_factory=set)
    """Uids of pods whose peers have no address yet; to be started again when names change."""
    _first_seen: dict[str, float] = field(default_factory=dict)

    def see(self, uid: str) -> None:
        """From now on the pod waits for its peers' names, for some seconds."""
        self._first_seen.setdefault(uid, time.monotonic())

    def forget(self, uid: str) -> None:
        self._first_seen.pop(uid, None)
        self.waiting_for_names.discard(uid)

    def has_other_addresses(self, pod: Object, directory: PodDirectory) -> bool:
        """True if the pod was set up when the cluster had another range of addresses: its own or those of Services are
        no longer valid."""
        config = directory.runtime_config
        if config is None:
            return True
        variables = self.network.service_variables(pod)
        hosts = {container["env"].get(API_SERVER_HOST) for container in config["containers"]}
        return config["address"] != self.network.add_pod(pod) or not hosts <= {None, variables.get(API_SERVER_HOST)}

    async def start(self, pod: Object, directory: PodDirectory) -> tuple[WaitingReason, ...]:
        """Starts the supervisor of a pod; returns why the pod has to wait if it cannot be started yet."""
        try:
            return await self._start(pod, directory)
        except OSError as error:  # for example a full disk, or no process can be started
            text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            if error.errno in DISK_FULL:
                text = f"{text}; {how_to_free(self.node.directory)}"
            waiting = (WaitingReason(reason="FailedCreatePodSandBox", message=text),)
            self.recorder.warn_of_waiting(pod, waiting)
            return waiting

    async def _start(self, pod: Object, directory: PodDirectory) -> tuple[WaitingReason, ...]:
        if not self.gpus.allocate(pod):
            text = f"{GPU_RESOURCE}: too few of the {len(self.node.machine.gpus)} GPUs of this node are free"
            return (WaitingReason(reason="InsufficientGPUs", message=text),)
        try:
            objects = await self.volumes.objects_for_start(pod)
        except PodConfigError as error:
            reasons = (WaitingReason(reason="FailedMount", message=str(error)),)
            self.recorder.warn_of_waiting(pod, reasons)
            return reasons
        images = await self.images.prepare(pod, directory)
        if not isinstance(images, dict):
            return images
        context = self.context(
            pod,
            directory,
            images,
            private_homes=() if await self.namespaces.open_homes(pod["metadata"]["namespace"]) else self.node.homes,
        )
        config = generate_runtime_config(pod, context, objects)
        if not isinstance(config, RuntimeConfig):
            self.recorder.warn_of_waiting(pod, config)
            return config
        if waiting := self._wait_for_names(pod, config, context):
            return waiting
        self.network.write_hosts_files()  # the hosts file must exist before the supervisor mounts it
        if any((context.gpus or {}).values()):
            make_shared_memory(Path(context.shared_memory))
        # In a thread: it waits for the disk.
        if waiting := await asyncio.to_thread(set_up_pod, directory, config, self.node.find_hidden):
            self.recorder.warn_of_waiting(pod, waiting)
            return waiting
        await self.supervisors.start(pod["metadata"]["uid"], directory)
        self.recorder.warn(pod, *config.warnings)
        return ()

    def context(
        self,
        pod: Object,
        directory: PodDirectory,
        images: Mapping[str, ContainerImage] | None = None,
        *,
        private_homes: tuple[str, ...] = (),
    ) -> PodContext:
        pythons = self._pythons(pod, images or {})
        return PodContext(
            node=self.node,
            address=self.network.add_pod(pod),
            directory=str(directory.path),
            hosts_file=str(self.network.hosts_file(pod)),
            private_homes=private_homes,
            installations={python: find_installations(python) for python in pythons},
            started_at=started_at(pod, self.clock()),
            service_variables=self._service_variables(pod),
            names=self.network.addresses_for(pod) if self.node.sandbox.level == PLAIN else {},
            gpus=self.gpus.of_pod(pod["metadata"]["uid"]) if self.node.machine.gpus else None,
            shared_memory=f"{self.node.shared_memory}/{pod['metadata']['namespace']}",
            images=images or {},
            has_resolver=os.path.exists("/etc/resolv.conf"),  # noqa: PTH110 - on every start
            open_mpis=find_open_mpis(pythons),
        )

    def _service_variables(self, pod: Object) -> dict[str, str]:
        """At `plain` without those of the API server: no token is where clients look for it, and JAX fails then."""
        found = self.node.service_variables | self.network.service_variables(pod)
        if self.node.sandbox.level == PLAIN:
            return {name: value for name, value in found.items() if not name.startswith("KUBERNETES_")}
        return found

    def _pythons(self, pod: Object, images: Mapping[str, ContainerImage]) -> list[str]:
        """The Pythons of containers on the files of this machine."""
        of_pod = (pod["metadata"].get("annotations") or {}).get(PYTHON) or self.node.settings.python
        return [of_pod, *(image.python for image in images.values() if image.python)]

    def _wait_for_names(self, pod: Object, config: RuntimeConfig, context: PodContext) -> tuple[WaitingReason, ...]:
        """At `plain` names are replaced by addresses before the start, so the pod waits a while for its peers."""
        uid, namespace = pod["metadata"]["uid"], pod["metadata"]["namespace"]
        self.waiting_for_names.discard(uid)
        if self.node.sandbox.level != PLAIN:
            return ()
        containers = [*config.pod_json["initContainers"], *config.pod_json["containers"]]
        missing = set().union(*(unresolved_names(found["env"], namespace, context.names) for found in containers))
        if not missing:
            return ()
        names = ", ".join(sorted(missing))
        if time.monotonic() - self._first_seen[uid] < _RESOLVE_SECONDS:
            self.waiting_for_names.add(uid)
            # Without a message: usual for peers that start together.
            return (WaitingReason(reason=container_status.CONTAINER_CREATING, message=""),)
        text = f"started with unresolved names: {names}; at sandbox plain names are resolved only before the start"
        self.recorder.warn(pod, PodWarning("UnresolvedName", text))
        return ()
