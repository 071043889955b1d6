"""The persistent volume controller: binds claims to volumes, provisions directories and reclaims them.

`persistentvolume_binding` decides. There is one worker, so that two claims never choose the same volume.
"""

import asyncio
import errno
import logging
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from trainwright.cluster.controllers import persistentvolume_binding as binding
from trainwright.cluster.controllers.persistentvolume_binding import (
    PersistentVolume,
    PersistentVolumeClaim,
    PodVolume,
    StorageClass,
    claim_names,
)
from trainwright.cluster.linux.trees import remove_tree
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, NotFound
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.deduplicator import Deduplicator
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.kube.controller.workqueue import WorkQueue
from trainwright.objects import Object
from trainwright.objects.kinds.pods import PodAddressStatus
from trainwright.objects.metadata import ObjectMeta, View
from trainwright.objects.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES, Resource

log = logging.getLogger(__name__)

_BY_CLAIM = "claim"
Item = TypeVar("Item", bound=PersistentVolumeClaim | PersistentVolume)


class _PodSpec(View, frozen=True):
    node_name: str = ""
    volumes: tuple[PodVolume, ...] = ()


class PodWithClaims(View, frozen=True):
    """A pod and its claims."""

    metadata: ObjectMeta
    spec: _PodSpec = _PodSpec()
    status: PodAddressStatus = PodAddressStatus()

    @property
    def claims(self) -> list[ObjectKey]:
        """The keys of its claims."""
        names = claim_names(self.metadata.name, self.spec.volumes)
        return [ObjectKey(PERSISTENT_VOLUME_CLAIMS.kind, self.metadata.namespace, name) for name in names]

    @property
    def may_use_claims(self) -> bool:
        """True if it is scheduled and not finished."""
        return bool(self.spec.node_name) and not self.status.finished


class PersistentVolumeController:
    """`directory` contains the volumes of the default StorageClass."""

    def __init__(self, client: Client, recorder: EventRecorder, directory: Path) -> None:
        self._client = client
        self._recorder = recorder
        self._directory = directory
        self._volumes = Store[PersistentVolume]()
        self._claims = Store[PersistentVolumeClaim]()
        self._classes = Store[StorageClass]()
        self._pods = Store[PodWithClaims](indexes={_BY_CLAIM: lambda pod: map(str, pod.claims)})
        self._places: dict[type, tuple[Resource, Store[Any]]] = {
            PersistentVolume: (PERSISTENT_VOLUMES, self._volumes),
            PersistentVolumeClaim: (PERSISTENT_VOLUME_CLAIMS, self._claims),
        }
        self._reported = Deduplicator[str, str]()
        """By uid of the claim: its event is recorded once, not with every change of another object."""

        volumes, claims = PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS
        self._queue = WorkQueue[ObjectKey](longest_delay=30.0)
        self.controller = Controller(
            self._reconcile,
            log=log,
            reflectors=[
                Reflector(client, volumes, self._volumes, convert=PersistentVolume, on_change=self._volume_changed),
                Reflector(client, claims, self._claims, convert=PersistentVolumeClaim, on_change=self._claim_changed),
                Reflector(client, STORAGE_CLASSES, self._classes, convert=StorageClass, on_change=self._class_changed),
                Reflector(client, PODS, self._pods, convert=PodWithClaims, on_change=self._pod_changed),
            ],
            queue=self._queue,
            workers=1,
        )

    # Event handlers

    def _volume_changed(self, before: PersistentVolume | None, after: PersistentVolume | None) -> None:
        volume = after or before
        if volume is None:
            return
        self._queue.add(volume.key)
        for claim in self._claims.all():
            if claim.spec.volume_name == volume.name or claim.status.phase != "Bound":
                self._queue.add(claim.key)

    def _claim_changed(self, before: PersistentVolumeClaim | None, after: PersistentVolumeClaim | None) -> None:
        claim = after or before
        if claim is None:
            return
        if after is None:
            self._reported.forget(claim.metadata.uid)
        self._queue.add(claim.key)
        for volume in self._volumes.all():
            if volume.spec.claim_ref is not None and volume.spec.claim_ref.key == claim.key:
                self._queue.add(volume.key)

    def _class_changed(self, _before: StorageClass | None, _after: StorageClass | None) -> None:
        for claim in self._claims.all():
            if claim.status.phase != "Bound":
                self._queue.add(claim.key)

    def _pod_changed(self, before: PodWithClaims | None, after: PodWithClaims | None) -> None:
        if before is None or after is None or before.may_use_claims != after.may_use_claims:
            for pod in (before, after):
                for key in pod.claims if pod is not None else ():
                    self._queue.add(key)

    # Reconciliation

    async def _reconcile(self, key: ObjectKey) -> None:
        try:
            if key.kind == PERSISTENT_VOLUMES.kind:
                await self._reconcile_volume(key.name)
            else:
                await self._reconcile_claim(key)
        except NotFound:
            return  # deleted meanwhile; its event enqueues what is left to do

    async def _reconcile_claim(self, key: ObjectKey) -> None:
        claim = self._claims.get(key.namespaced_name)
        if claim is None or (claim := await self._protect(claim, binding.CLAIM_PROTECTION)) is None:
            return
        step = binding.decide_claim(
            claim,
            volumes={volume.name: volume for volume in self._volumes.all()},
            classes={item.name: item for item in self._classes.all()},
            has_consumer=bool(self._pods.by_index(_BY_CLAIM, str(key))),
        )
        match step:
            case binding.AssignClass(name):
                await self._patch(claim, {"spec": {"storageClassName": name}})
            case binding.Bind(volume):
                await self._bind(claim, volume)
            case binding.Provision(storage_class):
                await self._provision(claim, storage_class)
            case binding.StayPending(reason, message, warning):
                await self._set_phase(claim, "Pending")
                self._record(claim, "Warning" if warning else "Normal", reason, message)
            case binding.MarkLost(reason, message):
                await self._mark_lost(claim, reason, message)
            case binding.Keep():
                pass

    async def _reconcile_volume(self, name: str) -> None:
        volume = self._volumes.get(name)
        if volume is None or (volume := await self._protect(volume, binding.VOLUME_PROTECTION)) is None:
            return
        claim = await self._live_claim(volume)
        match binding.decide_volume(volume, claim):
            case binding.SetPhase(phase):
                await self._set_phase(volume, phase)
            case binding.Unbind():
                await self._patch(volume, {"spec": {"claimRef": None}})
            case binding.Reclaim():
                await self._reclaim(volume)
            case binding.Keep():
                pass
        if claim is None and volume.spec.claim_ref is not None:
            self._queue.add(volume.spec.claim_ref.key)

    async def _live_claim(self, volume: PersistentVolume) -> PersistentVolumeClaim | None:
        """Reads a claim that is not cached: a volume must not be released because a watch is behind."""
        reference = volume.spec.claim_ref
        if reference is None or not reference.uid:
            return None
        known = self._claims.get(reference.key.namespaced_name)
        if known is not None and known.metadata.uid == reference.uid:
            return known
        try:
            live = await self._client.get(PERSISTENT_VOLUME_CLAIMS, reference.name, namespace=reference.namespace)
        except NotFound:
            return None
        return msgspec.convert(live, PersistentVolumeClaim)

    async def _bind(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        """Four writes, volume first. After a kill in between, the next reconciliation writes the rest."""
        if volume.spec.claim_ref is None or volume.spec.claim_ref.uid != claim.metadata.uid:
            change: Object = {"spec": {"claimRef": claim.metadata.reference(PERSISTENT_VOLUME_CLAIMS.kind)}}
            if volume.spec.claim_ref is None:
                change["metadata"] = {"annotations": {binding.BOUND_BY_CONTROLLER: "yes"}}
            volume = await self._patch(volume, change)
        volume = await self._set_phase(volume, "Bound")
        if claim.spec.volume_name != volume.name or binding.BIND_COMPLETED not in claim.metadata.annotations:
            annotations = {binding.BIND_COMPLETED: "yes"}
            if not claim.spec.volume_name:
                annotations[binding.BOUND_BY_CONTROLLER] = "yes"
            change = {"metadata": {"annotations": annotations}, "spec": {"volumeName": volume.name}}
            claim = await self._patch(claim, change)
        wanted = binding.ClaimStatus(
            phase="Bound", access_modes=volume.spec.access_modes, capacity=volume.spec.capacity
        )
        if claim.status != wanted:
            await self._patch(claim, {"status": msgspec.to_builtins(wanted)}, subresource="status")

    async def _provision(self, claim: PersistentVolumeClaim, storage_class: StorageClass) -> None:
        name = f"pvc-{claim.metadata.uid}"
        path = self._directory / f"{claim.metadata.namespace}-{claim.metadata.name}-{claim.metadata.uid[:8]}"
        path.mkdir(parents=True, exist_ok=True)
        # Pods may run as any user; the data directory above keeps other users out.
        path.chmod(0o777)
        try:
            created = await self._client.create(
                PERSISTENT_VOLUMES, provisioned_volume(claim, storage_class, name, path)
            )
        except AlreadyExists:
            created = await self._client.get(PERSISTENT_VOLUMES, name)  # created before a kill
        volume = msgspec.convert(created, PersistentVolume)
        self._volumes.remember(volume)
        self._record(claim, "Normal", "ProvisioningSucceeded", f"Successfully provisioned volume {name}")
        await self._bind(claim, volume)

    async def _mark_lost(self, claim: PersistentVolumeClaim, reason: str, message: str) -> None:
        if claim.status.phase == "Lost":
            return
        try:
            live = await self._client.get(PERSISTENT_VOLUMES, claim.spec.volume_name)
        except NotFound:
            live = None
        if live is not None and binding.is_bound_to(msgspec.convert(live, PersistentVolume), claim):
            self._volumes.remember(msgspec.convert(live, PersistentVolume))
            return  # the watch was behind
        await self._set_phase(claim, "Lost")
        self._record(claim, "Warning", reason, message)

    async def _reclaim(self, volume: PersistentVolume) -> None:
        """Removes only directories that this controller has provisioned."""
        path = Path(volume.spec.host_path.path) if volume.spec.host_path is not None else None
        ours = volume.metadata.annotations.get(binding.PROVISIONED_BY) == binding.PROVISIONER
        if not ours or path is None or path.parent != self._directory:
            await self._set_failed(volume, "its directory was not made by this cluster")
            return
        try:
            if path.exists() and not path.is_symlink():
                await asyncio.to_thread(remove_tree, str(path))
                if path.exists():
                    raise OSError(errno.EACCES, "some files could not be removed", str(path))
        except OSError as error:
            await self._set_failed(volume, f"{error.filename}: {error.strerror}")
            return
        await self._client.delete(PERSISTENT_VOLUMES, volume.name, uid=volume.metadata.uid)

    async def _set_failed(self, volume: PersistentVolume, why: str) -> None:
        text = f"The data is not removed: {why}. Remove it and the PersistentVolume by hand."
        await self._set_phase(volume, "Failed")
        self._recorder.record(_reference("PersistentVolume", volume.metadata), "Warning", "VolumeFailedDelete", text)

    # Finalizers that protect claims and volumes in use

    async def _protect(self, item: Item, finalizer: str) -> Item | None:
        """Adds the finalizer. Returns None if the object is being deleted and its finalizer was removed."""
        finalizers = item.metadata.finalizers
        if not item.metadata.terminating:
            if finalizer in finalizers:
                return item
            return await self._patch(item, {"metadata": {"finalizers": [*finalizers, finalizer]}})
        if finalizer not in finalizers or await self._in_use(item):
            return item
        kept = [name for name in finalizers if name != finalizer]
        await self._patch(item, {"metadata": {"finalizers": kept}}, remember=False)
        return None

    async def _in_use(self, item: PersistentVolumeClaim | PersistentVolume) -> bool:
        if isinstance(item, PersistentVolume):
            return item.status.phase == "Bound"
        if any(pod.may_use_claims for pod in self._pods.by_index(_BY_CLAIM, str(item.key))):
            return True
        live = await self._client.list(PODS, namespace=item.metadata.namespace)
        pods = (msgspec.convert(pod, PodWithClaims) for pod in live.items)
        return any(pod.may_use_claims and item.key in pod.claims for pod in pods)

    # Writes: each has the resourceVersion of the decision as a precondition, and its response is cached

    async def _set_phase(self, item: Item, phase: str) -> Item:
        if item.status.phase == phase:
            return item
        return await self._patch(item, {"status": {"phase": phase}}, subresource="status")

    async def _patch(
        self, item: Item, change: Object, *, subresource: str | None = None, remember: bool = True
    ) -> Item:
        metadata = item.metadata
        resource, store = self._places[type(item)]
        patch = _with_precondition(change, metadata)
        response = await self._client.patch(
            resource, metadata.name, patch, namespace=metadata.namespace or None, subresource=subresource
        )
        written = msgspec.convert(response, type(item))
        if remember:
            store.remember(written)
        return written

    def _record(self, claim: PersistentVolumeClaim, type_: str, reason: str, message: str) -> None:
        if self._reported.update(claim.metadata.uid, [message]):
            self._recorder.record(_reference("PersistentVolumeClaim", claim.metadata), type_, reason, message)


def provisioned_volume(claim: PersistentVolumeClaim, storage_class: StorageClass, name: str, path: Path) -> Object:
    """The volume for a claim: pre-bound to it, with the reclaim policy of the class."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {binding.PROVISIONED_BY: binding.PROVISIONER}},
        "spec": {
            "capacity": {"storage": claim.spec.resources.requests.get("storage", "0")},
            "accessModes": list(claim.spec.access_modes),
            "persistentVolumeReclaimPolicy": storage_class.reclaim_policy,
            "storageClassName": storage_class.name,
            "volumeMode": "Filesystem",
            "hostPath": {"path": str(path), "type": "DirectoryOrCreate"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": claim.metadata.namespace,
                "name": claim.metadata.name,
                "uid": claim.metadata.uid,
            },
        },
    }


def default_storage_class() -> Object:
    """The default StorageClass: it provisions directories."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "standard", "annotations": {binding.DEFAULT_CLASS: "true"}},
        "provisioner": binding.PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }


def _with_precondition(change: Object, metadata: ObjectMeta) -> Object:
    version = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
    return {**change, "metadata": {**change.get("metadata", {}), **version}}


def _reference(kind: str, metadata: ObjectMeta) -> Object:
    reference: Object = {"apiVersion": "v1", "kind": kind, "name": metadata.name, "uid": metadata.uid}
    return {**reference, "namespace": metadata.namespace} if metadata.namespace else reference
