"""Creates, deletes, adopts and releases the pods of an owner, with the events that users know."""

import asyncio
from collections.abc import Sequence

import msgspec

from trainwright.cluster.controllers.workloads.plans.owned_pods import claim_pods
from trainwright.cluster.controllers.workloads.reconcile.workload_caches import WorkloadCaches
from trainwright.kube.client.errors import ApiError, Conflict, NotFound, Unreachable, is_namespace_terminating
from trainwright.kube.client.requests import PatchKind
from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod, read_pod
from trainwright.objects.metadata import controller_reference
from trainwright.objects.resources import PODS

_FIRST_BATCH = 1


class PodControl:
    """`component` is the source of the events. Responses are remembered in the store of pods.

    `created`, `deleted`, `not_created` and `not_deleted` are the texts of the events.
    """

    def __init__(
        self,
        caches: WorkloadCaches,
        component: str,
        *,
        created: str = "Created pod: {pod}",
        deleted: str = "Deleted pod: {pod}",
        not_created: str = "Error creating: {error}",
        not_deleted: str = "Error deleting: {error}",
    ) -> None:
        self._created = created
        self._deleted = deleted
        self._not_created = not_created
        self._not_deleted = not_deleted
        self._caches = caches
        self._client = caches.client
        self._pods = caches.pods
        self._component = component

    async def create(self, owner: Object, rendered: Sequence[Object]) -> tuple[int, str]:
        """Creates pods in batches that double in size. After a failure no further batch starts, so that many pods that
        would all fail cost one request. Returns the number of created pods and the first error."""
        created, size, waiting = 0, _FIRST_BATCH, list(rendered)
        while waiting:
            batch, waiting = waiting[:size], waiting[size:]
            errors = await asyncio.gather(*(self._create(owner, pod) for pod in batch))
            created += errors.count("")
            if failed := next(filter(None, errors), ""):
                return created, failed
            size *= 2
        return created, ""

    async def delete(self, owner: Object, pods: Sequence[Pod]) -> str:
        """Returns the first error."""
        errors = await asyncio.gather(*(self._delete(owner, pod) for pod in pods))
        return next(filter(None, errors), "")

    def owned(self, owner: Object) -> Sequence[Pod]:
        """The pods of the owner as they are in the cache."""
        return claim_pods(owner, self._caches.pods_for(owner)).owned

    async def claim(self, owner: Object, *, finalizer: str = "") -> Sequence[Pod]:
        """Releases the pods that the owner does not select any more, and adopts orphans that it selects. Returns those
        that it then owns."""
        claim = claim_pods(owner, self._caches.pods_for(owner))
        await asyncio.gather(*(self._release(owner, pod) for pod in claim.released))
        await asyncio.gather(*(self._adopt(controller_reference(owner), pod, finalizer) for pod in claim.adopted))
        return self.owned(owner) if claim.adopted or claim.released else claim.owned

    async def _adopt(self, reference: Object, pod: Pod, finalizer: str) -> None:
        change: Object = {"ownerReferences": [*map(_reference, pod.metadata.owner_references), reference]}
        if finalizer:
            change["finalizers"] = [*dict.fromkeys([*pod.metadata.finalizers, finalizer])]
        await self._patch(pod, change)

    async def _release(self, owner: Object, pod: Pod) -> None:
        uid = owner["metadata"]["uid"]
        kept = [_reference(reference) for reference in pod.metadata.owner_references if reference.uid != uid]
        await self._patch(pod, {"ownerReferences": kept or None})

    async def remove_finalizer(self, pod: Pod, finalizer: str) -> None:
        await self._patch(pod, {"finalizers": [name for name in pod.metadata.finalizers if name != finalizer] or None})

    async def _create(self, owner: Object, rendered: Object) -> str:
        try:
            pod = await self._client.create(PODS, rendered)
        except (ApiError, Unreachable) as error:
            if not is_namespace_terminating(error):
                text = self._text(self._not_created, owner, rendered["metadata"].get("name", ""), str(error))
                self._record(owner, "Warning", "FailedCreate", text)
            return str(error)
        self._pods.remember(read_pod(pod))
        self._record(owner, "Normal", "SuccessfulCreate", self._text(self._created, owner, pod["metadata"]["name"]))
        return ""

    async def _delete(self, owner: Object, pod: Pod) -> str:
        metadata = pod.metadata
        try:
            deleted = await self._client.delete(PODS, metadata.name, namespace=metadata.namespace, uid=metadata.uid)
        except (NotFound, Conflict):
            return ""  # it is gone, or another pod has its name
        except (ApiError, Unreachable) as error:
            text = self._text(self._not_deleted, owner, metadata.name, str(error))
            self._record(owner, "Warning", "FailedDelete", text)
            return str(error)
        self._remember_deleted(deleted, pod)
        self._record(owner, "Normal", "SuccessfulDelete", self._text(self._deleted, owner, metadata.name))
        return ""

    async def _patch(self, pod: Pod, metadata: Object) -> None:
        """A merge patch with the version that the change was decided on."""
        known = pod.metadata
        patch: Object = {"metadata": {**metadata, "uid": known.uid, "resourceVersion": known.resource_version}}
        try:
            changed = await self._client.patch(PODS, known.name, patch, namespace=known.namespace, kind=PatchKind.MERGE)
        except (NotFound, Conflict):
            return  # the watch shows what has happened
        if changed["metadata"].get("deletionTimestamp") and not changed["metadata"].get("finalizers"):
            self._remember_deleted(changed, pod)
        else:
            self._pods.remember(read_pod(changed))

    def _remember_deleted(self, response: Object, pod: Pod) -> None:
        metadata = response.get("metadata") or {}
        if metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"):
            self._pods.remember(read_pod(response))
        else:
            self._pods.forget(pod.metadata.namespaced_name, uid=pod.metadata.uid)

    def _text(self, text: str, owner: Object, pod: str, error: str = "") -> str:
        return text.format(pod=pod, kind=owner["kind"], owner=owner["metadata"]["name"], error=error)

    def _record(self, owner: Object, type_: str, reason: str, message: str) -> None:
        self._caches.recorder.record(owner, type_, reason, message, component=self._component)


def _reference(reference: msgspec.Struct) -> Object:
    return {key: value for key, value in msgspec.to_builtins(reference).items() if value is not None}
