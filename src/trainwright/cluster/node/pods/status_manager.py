"""The status manager of the node: writes the statuses of pods to the API, and deletes the objects of ended pods."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from trainwright.cluster.node.devices.allocation import GpuAllocations
from trainwright.cluster.node.network.pod_network import PodNetwork
from trainwright.cluster.node.pods.config.runtime_config import WaitingReason
from trainwright.cluster.node.pods.images.pod_images import PodImages
from trainwright.cluster.node.pods.pod_directory import PodDirectory
from trainwright.cluster.node.pods.pod_recorder import PodRecorder
from trainwright.cluster.node.pods.pod_status import (
    FINISHED_PHASES,
    is_finished,
    pod_status,
    same_status,
    shutdown_restarts,
    transitions,
)
from trainwright.cluster.node.supervisor.pod_json import PodState
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import Conflict, NotFound
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.kinds.nodes import NODE_ADDRESS
from trainwright.objects.node_annotations import HOST_FILES, LISTENING, SANDBOX, SHUTDOWN_RESTARTS
from trainwright.objects.resources import PODS


@dataclass(eq=False, kw_only=True)
class StatusManager:
    """`sandbox` is the level in force, which every pod shows. Responses are remembered in `store`."""

    client: Client
    store: Store[Object]
    recorder: PodRecorder
    network: PodNetwork
    images: PodImages
    gpus: GpuAllocations
    sandbox: str
    clock: Callable[[], datetime]

    async def update(
        self, pod: Object, directory: PodDirectory, state: PodState | None, waiting: tuple[WaitingReason, ...]
    ) -> Object:
        """Writes the status if it differs, and returns the pod as it is then. `state` is what its supervisor has
        recorded; None before its start, then `waiting` says why."""
        if state is None and is_finished(pod):
            return pod
        before = pod.get("status") or {}
        metadata = pod["metadata"]
        uid, name, namespace = metadata["uid"], metadata["name"], metadata["namespace"]
        address = self.network.address_of(uid) or before.get("podIP") or self.network.add_pod(pod)
        image_ids = self.images.ids(uid, directory) if state is not None else {}
        status = pod_status(
            pod,
            address=address,
            host_address=NODE_ADDRESS,
            state=state,
            waiting=waiting,
            image_ids=image_ids,
            now=self.clock(),
        )
        if status["phase"] in FINISHED_PHASES:
            self.gpus.release(uid)  # before the status lets the scheduler bind the next pod
        annotations: dict[str, str | None] = {SANDBOX: self.sandbox}
        if state is not None and (restarts := shutdown_restarts(state)):
            annotations[SHUTDOWN_RESTARTS] = str(restarts)
        if containers := self.images.over_host_files(uid):
            annotations[HOST_FILES] = ",".join(containers)
        present = metadata.get("annotations") or {}
        listening = ",".join(map(str, state.get("listening") or ())) if state is not None else ""
        if listening or LISTENING in present:
            annotations[LISTENING] = listening or None  # also if a user has written something else
        annotated = all(present.get(key) == value for key, value in annotations.items())
        if annotated and same_status(before, status):
            return pod
        # The status subresource accepts annotations too: one write for both.
        change = {"metadata": {"uid": uid, "annotations": annotations}, "status": status}
        try:
            pod = await self.client.patch(PODS, name, change, namespace=namespace, subresource="status")
        except (NotFound, Conflict):
            return pod  # deleted, or replaced by another pod of the same name, as the watch will show
        self.store.remember(pod)
        for event in transitions(pod, before, status, pulled=self.images.pulled_for(uid)):
            self.recorder.record_about(pod, event.field_path, event.reason, event.message, type_=event.type)
        if is_finished(pod):
            self.network.finish_pod(uid)
        return pod

    async def delete_object(self, pod: Object) -> None:
        """Deletes a pod whose processes have ended from the API."""
        metadata = pod["metadata"]
        with contextlib.suppress(NotFound, Conflict):  # already deleted, or another pod has the name
            await self.client.delete(
                PODS, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"], grace_period_seconds=0
            )
