"""The garbage collector: deletes objects whose owners are deleted, with background, foreground or orphan propagation.

Its caches only select the objects to check. Before it deletes or changes an object, it reads the object and its owners
from the API server, and the deletion has the resourceVersion as a precondition.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from trainwright.kube.client.async_client import Client
from trainwright.kube.client.discovery import discover
from trainwright.kube.client.errors import ApiError, NotFound, Unreachable
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.kube.controller.outcome import Retry
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.kube.controller.workqueue import WorkQueue
from trainwright.objects import Object
from trainwright.objects.metadata import AnyObject, ObjectMeta, OwnerReference
from trainwright.objects.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"

_OWNER = "owner"
_NEEDED_VERBS = {"get", "list", "watch", "patch", "delete"}
_WORKERS = 8
_LONGEST_PAUSE = 30.0

log = logging.getLogger(__name__)


class OwnerState(Enum):
    """In the terms of kube-controller-manager."""

    SOLID = "exists and is not being deleted"
    DANGLING = "does not exist, or has another uid"
    WAITING_FOR_DEPENDENTS = "is being deleted in the foreground"


@dataclass(frozen=True, slots=True)
class Keep:
    """All owners exist, or there are none."""


@dataclass(frozen=True, slots=True)
class RemoveReferences:
    """Another owner exists: only the references to these uids are removed."""

    uids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Delete:
    propagation: str


def decide(
    metadata: ObjectMeta, owners: Sequence[OwnerState], *, has_dependents: bool
) -> Keep | RemoveReferences | Delete:
    """The action for an object. `owners` are the states of its owner references, in the same order."""
    to_remove = [
        reference.uid
        for reference, state in zip(metadata.owner_references, owners, strict=True)
        if state is not OwnerState.SOLID
    ]
    if not to_remove:
        return Keep()
    if OwnerState.SOLID in owners:
        return RemoveReferences(frozenset(to_remove))
    if OwnerState.WAITING_FOR_DEPENDENTS in owners and has_dependents:
        return Delete("Foreground")
    if ORPHAN in metadata.finalizers:
        return Delete("Orphan")
    return Delete("Foreground" if FOREGROUND in metadata.finalizers else "Background")


def blocking_dependents(owner: ObjectMeta, dependents: Iterable[ObjectMeta]) -> list[ObjectMeta]:
    """The dependents that a foreground deletion of `owner` waits for."""
    owners = {reference.uid for reference in owner.owner_references}
    return [
        dependent
        for dependent in dependents
        if any(
            reference.uid == owner.uid and reference.block_owner_deletion for reference in dependent.owner_references
        )
        # Two objects that own each other and are both being deleted would wait forever.
        and not (dependent.uid in owners and dependent.terminating and FOREGROUND in dependent.finalizers)
    ]


class _OwnerKindNotServed(Exception):  # noqa: N818 (not an error: its CRD may follow)
    pass


class GarbageCollector:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._queue = WorkQueue[ObjectKey](longest_delay=_LONGEST_PAUSE)
        self._resources_changed = asyncio.Event()
        self._stores: dict[Resource, Store[AnyObject]] = {}
        self._watching: dict[Resource, asyncio.Task[None]] = {}
        self._keys: dict[str, ObjectKey] = {}
        """The key of each known object by its uid. Its kind is the qualified plural, because kinds of different groups
        may have the same name."""

    async def run(self) -> None:
        definitions = Reflector(
            self._client,
            CUSTOM_RESOURCE_DEFINITIONS,
            Store[AnyObject](),
            convert=AnyObject,
            on_change=lambda _before, _after: self._resources_changed.set(),
        )
        async with asyncio.TaskGroup() as tasks:

            async def watch_all_resources() -> None:
                self._resources_changed.clear()
                await self._watch_all_resources(tasks)
                tasks.create_task(self._watch_new_resources(tasks))

            controller = Controller(
                self._reconcile,
                log=log,
                reflectors=[definitions],
                queue=self._queue,
                workers=_WORKERS,
                before_work=watch_all_resources,
            )
            await controller.run()

    async def _watch_new_resources(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            await self._resources_changed.wait()
            self._resources_changed.clear()
            try:
                await self._watch_all_resources(tasks)
            except (ApiError, Unreachable) as error:
                log.warning("API discovery failed: %s; trying again", error)
                await asyncio.sleep(1)
                self._resources_changed.set()

    async def _watch_all_resources(self, tasks: asyncio.TaskGroup) -> None:
        wanted = {
            served.resource
            for served in await discover(self._client)
            # Events are many and have no owners; upstream ignores them too.
            if served.verbs >= _NEEDED_VERBS and served.resource.kind != "Event"
        }
        for resource in self._watching.keys() - wanted:
            self._watching.pop(resource).cancel()
            del self._stores[resource]
        added = [self._watch(resource, tasks) for resource in sorted(wanted - self._watching.keys(), key=str)]
        for reflector in added:
            await reflector.wait_for_sync()

    def _watch(self, resource: Resource, tasks: asyncio.TaskGroup) -> Reflector[AnyObject]:
        store = Store[AnyObject](
            indexes={_OWNER: lambda entry: (reference.uid for reference in entry.metadata.owner_references)}
        )
        self._stores[resource] = store
        reflector = Reflector(
            self._client,
            resource,
            store,
            convert=AnyObject,
            on_change=lambda before, after: self._changed(resource, before, after),
        )
        self._watching[resource] = tasks.create_task(reflector.run())
        return reflector

    def _changed(self, resource: Resource, before: AnyObject | None, after: AnyObject | None) -> None:
        if before is not None and after is not None and _ownership(before.metadata) == _ownership(after.metadata):
            return  # most changes are changes of the status
        if before is not None:
            self._on_removed(before.metadata, replaced=after is None or after.metadata.uid != before.metadata.uid)
        if after is not None:
            key = _key(resource, after.metadata)
            self._keys[after.metadata.uid] = key
            if after.metadata.owner_references or _is_deleting_dependents(after.metadata):
                self._queue.add(key)

    def _on_removed(self, metadata: ObjectMeta, *, replaced: bool) -> None:
        """Enqueues the dependents of a deleted object, and the owners that wait for its deletion."""
        if replaced:
            self._keys.pop(metadata.uid, None)
            for resource, dependent in self._dependents(metadata.uid):
                self._queue.add(_key(resource, dependent))
        for reference in metadata.owner_references:
            owner = self._cached(reference.uid)
            if owner is not None and owner.terminating:
                self._queue.add(self._keys[reference.uid])

    def _dependents(self, uid: str) -> list[tuple[Resource, ObjectMeta]]:
        return [
            (resource, entry.metadata)
            for resource, store in self._stores.items()
            for entry in store.by_index(_OWNER, uid)
        ]

    async def _reconcile(self, key: ObjectKey) -> Retry | None:
        resource = self._resource(key)
        if resource is None or self._has_all_owners(key):
            return None
        try:
            live = await self._client.get(resource, key.name, namespace=key.namespace or None)
        except NotFound:
            return None
        metadata = msgspec.convert(live["metadata"], ObjectMeta)
        try:
            if metadata.terminating:
                await self._process_deletion(resource, metadata)
            elif metadata.owner_references:
                await self._attempt_to_delete(resource, metadata)
        except _OwnerKindNotServed as error:
            return Retry(str(error))
        return None

    def _has_all_owners(self, key: ObjectKey) -> bool:
        """True if all owners are cached: then no request is needed. Their deletion enqueues the object again."""
        entry = self._entry(key)
        if entry is None or entry.metadata.terminating:
            return False
        owners = [self._cached(reference.uid) for reference in entry.metadata.owner_references]
        return all(owner is not None and not owner.terminating for owner in owners)

    def _resource(self, key: ObjectKey) -> Resource | None:
        return next((resource for resource in self._stores if resource.qualified_plural == key.kind), None)

    def _entry(self, key: ObjectKey) -> AnyObject | None:
        resource = self._resource(key)
        return self._stores[resource].get(key.namespaced_name) if resource is not None else None

    async def _attempt_to_delete(self, resource: Resource, metadata: ObjectMeta) -> None:
        states = [await self._state(resource, metadata, reference) for reference in metadata.owner_references]
        decision = decide(metadata, states, has_dependents=bool(self._dependents(metadata.uid)))
        match decision:
            case RemoveReferences(uids):
                await self._remove_references(resource, metadata, uids)
            case Delete(propagation):
                await self._delete(resource, metadata, propagation)
            case Keep():
                pass

    async def _state(self, resource: Resource, metadata: ObjectMeta, reference: OwnerReference) -> OwnerState:
        """A cached owner exists: its deletion enqueues the object again. Its absence is checked with the API server."""
        owner = self._cached(reference.uid)
        if owner is None or owner.terminating:
            owner = await self._live_owner(resource, metadata, reference)
        if owner is None:
            return OwnerState.DANGLING
        waiting = owner.terminating and FOREGROUND in owner.finalizers
        return OwnerState.WAITING_FOR_DEPENDENTS if waiting else OwnerState.SOLID

    def _cached(self, uid: str) -> ObjectMeta | None:
        if uid not in self._keys:
            return None
        entry = self._entry(self._keys[uid])
        return entry.metadata if entry is not None and entry.metadata.uid == uid else None

    async def _live_owner(
        self, resource: Resource, metadata: ObjectMeta, reference: OwnerReference
    ) -> ObjectMeta | None:
        group, _, _ = reference.api_version.rpartition("/")
        wanted = (group, reference.kind)
        kind = next((served for served in self._stores if (served.group, served.kind) == wanted), None)
        about = f"{resource.kind} {metadata.namespace or ''}/{metadata.name}"
        if kind is None:
            # Its CRD may follow. An owner that cannot be read is never taken as deleted.
            self._resources_changed.set()
            raise _OwnerKindNotServed(
                f"{about} is owned by a {reference.api_version} {reference.kind}, which is not served"
            )
        if kind.namespaced and not metadata.namespace:
            log.warning(
                "%s is cluster-scoped, its owner %s %s is not: it is kept", about, reference.kind, reference.name
            )
            return metadata
        try:
            live = await self._client.get(kind, reference.name, namespace=metadata.namespace or None)
        except NotFound:
            return None
        owner = msgspec.convert(live["metadata"], ObjectMeta)
        return owner if owner.uid == reference.uid else None

    async def _process_deletion(self, resource: Resource, metadata: ObjectMeta) -> None:
        if ORPHAN in metadata.finalizers:
            await self._orphan_dependents(metadata)
            await self._remove_finalizer(resource, metadata, ORPHAN)
        elif FOREGROUND in metadata.finalizers:
            dependents = self._dependents(metadata.uid)
            if blocking_dependents(metadata, (dependent for _, dependent in dependents)):
                for kind, dependent in dependents:
                    self._queue.add(_key(kind, dependent))
            else:
                await self._remove_finalizer(resource, metadata, FOREGROUND)

    async def _orphan_dependents(self, owner: ObjectMeta) -> None:
        """Lists from the API server: a dependent that is not cached yet would be deleted together with the owner."""
        for resource in list(self._stores):
            namespace = owner.namespace if resource.namespaced and owner.namespace else None
            for item in (await self._client.list(resource, namespace=namespace)).items:
                metadata = msgspec.convert(item["metadata"], ObjectMeta)
                if any(reference.uid == owner.uid for reference in metadata.owner_references):
                    await self._remove_references(resource, metadata, frozenset({owner.uid}))

    async def _remove_references(self, resource: Resource, metadata: ObjectMeta, uids: frozenset[str]) -> None:
        # A merge patch replaces the whole list, and our view of its items is trimmed.
        live = await self._client.get(resource, metadata.name, namespace=metadata.namespace or None)
        if live["metadata"]["uid"] != metadata.uid:
            return
        kept = [other for other in live["metadata"].get("ownerReferences") or () if other.get("uid") not in uids]
        version = live["metadata"]["resourceVersion"]
        await self._patch_metadata(resource, metadata, {"resourceVersion": version, "ownerReferences": kept})

    async def _remove_finalizer(self, resource: Resource, metadata: ObjectMeta, finalizer: str) -> None:
        kept = [name for name in metadata.finalizers if name != finalizer]
        await self._patch_metadata(
            resource, metadata, {"resourceVersion": metadata.resource_version, "finalizers": kept}
        )

    async def _patch_metadata(self, resource: Resource, metadata: ObjectMeta, changes: Object) -> None:
        patch: Object = {"metadata": {"uid": metadata.uid, **changes}}
        try:
            await self._client.patch(resource, metadata.name, patch, namespace=metadata.namespace or None)
        except NotFound:
            return

    async def _delete(self, resource: Resource, metadata: ObjectMeta, propagation: str) -> None:
        options: Object = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
            "preconditions": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
        }
        try:
            await self._client.raw("DELETE", resource.path(metadata.namespace or None, metadata.name), body=options)
        except NotFound:
            return


def _key(resource: Resource, metadata: ObjectMeta) -> ObjectKey:
    return ObjectKey(resource.qualified_plural, metadata.namespace, metadata.name)


def _ownership(metadata: ObjectMeta) -> object:
    return metadata.uid, metadata.owner_references, metadata.terminating, metadata.finalizers


def _is_deleting_dependents(metadata: ObjectMeta) -> bool:
    return metadata.terminating and (FOREGROUND in metadata.finalizers or ORPHAN in metadata.finalizers)
