"""Writes and deletes objects: admission by webhooks, quotas and allocated addresses around an update of the store."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from ipaddress import IPv4Network

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.admission.plugin_chain import PluginChain
from trainwright.cluster.apiserver.admission.plugins.resource_quota import QuotaLocks
from trainwright.cluster.apiserver.admission.webhooks.registered_webhooks import (
    CREATE,
    DELETE,
    UPDATE,
    AdmissionRequest,
    Operation,
)
from trainwright.cluster.apiserver.admission.webhooks.webhook_admission import WebhookAdmission
from trainwright.cluster.apiserver.http.request_bodies import name_mismatch
from trainwright.cluster.apiserver.http.requests import ApiRequest, ResourceInfo
from trainwright.cluster.apiserver.http.responses import encode, in_version
from trainwright.cluster.apiserver.resources.crds import with_cleanup_finalizer
from trainwright.cluster.apiserver.resources.registry import Registry
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.storage.store import ObjectStore, ObjectTooLargeError, Removed, Stored, TryUpdate
from trainwright.cluster.apiserver.writes.create_update import DecodedObject, decode_object, removed_if_finalized
from trainwright.cluster.apiserver.writes.deletion import DeleteOptions, deleted_object
from trainwright.cluster.apiserver.writes.service_allocator import ServiceAllocator
from trainwright.objects import Object, copied
from trainwright.objects.resources import CUSTOM_RESOURCE_DEFINITIONS, ENDPOINTS, SERVICES

_WRITE_TRIES = 5

Propose = Callable[[Stored | None], DecodedObject]
"""From the stored object to the one that the client wants."""

Complete = Callable[[DecodedObject, Stored | None], Object | Removed]
"""From the wanted object to the one to store: defaults, validation, managed fields."""


class _ChangedMeanwhile(Exception):  # noqa: N818 - not an error
    """Another write came first."""


class ObjectWriter:
    def __init__(
        self,
        store: ObjectStore,
        registry: Registry,
        plugins: PluginChain,
        webhooks: WebhookAdmission,
        service_network: IPv4Network,
    ) -> None:
        self._store = store
        self._plugins = plugins
        self._webhooks = webhooks
        self._dependents = Dependents(store, registry)
        self._services = ServiceAllocator(store, service_network)
        self._quotas = QuotaLocks(store)

    async def complete_services(self) -> None:
        """Gives stored Services the addresses that they lack."""
        await self._services.complete_stored()

    async def write(
        self, request: ApiRequest, info: ResourceInfo, try_update: TryUpdate, *, dry_run: bool | None = None
    ) -> Stored:
        """Stores the result of `try_update`, except in a dry run."""
        kind = info.kind
        dry_run = request.dry_run if dry_run is None else dry_run
        key = (info.scope, info.name)
        try_update = self._services.allocating(kind.key, try_update, key, dry_run=dry_run)
        if dry_run:
            current = self._store.get(kind.key, info.scope, info.name)
            result = try_update(current)
            obj = result.last if isinstance(result, Removed) else result
            return Stored(key, current.version if current else 0, encode(obj), obj)
        async with self._quotas.hold(info.scope):
            try:
                change = await self._store.guaranteed_update(kind.key, info.scope, info.name, try_update)
            except ObjectTooLargeError as error:
                self._services.release(kind.key, key)
                raise errors.StatusError(500, "", str(error)) from error
        if change is None:
            return existing(info, self._store.get(kind.key, info.scope, info.name))
        if change.removed and (crd := self._dependents.released_by(kind)):
            await self._finalize(crd, request)
        return change.new

    async def write_admitted(self, request: ApiRequest, propose: Propose, complete: Complete) -> Stored:
        """Stores what `complete` makes of the proposed object.

        If webhooks have to be asked, the object is not locked meanwhile: the write is tried again if another one came
        first, as often as the real server does it.
        """
        info, warnings = request.info, list(request.warnings)
        operation = _operation(request, UPDATE)
        if not self._webhooks.concerns(operation) and not self._webhooks.concerns(replace(operation, verb=CREATE)):
            return await self.write(request, info, lambda current: complete(propose(current), current))
        for _ in range(_WRITE_TRIES):
            request.warnings[:] = warnings
            current = self._store.get(info.kind.key, info.scope, info.name)
            old = None if current is None else in_version(info.kind, current.obj)
            result = complete(await self.mutate(request, _copy(propose(current)), old), current)
            new = result.last if isinstance(result, Removed) else result
            await self.validate(request, in_version(info.kind, new), old)
            if request.dry_run or current is self._store.get(info.kind.key, info.scope, info.name):
                with suppress(_ChangedMeanwhile):
                    return await self.write(request, info, _unless_changed(current, result))
        raise errors.modified(info.kind.resource, info.name)

    async def mutate(self, request: ApiRequest, decoded: DecodedObject, old: Object | None) -> DecodedObject:
        """The object after the mutating webhooks; decoded again if one has changed it."""
        kind, info = request.info.kind, request.info
        operation = _operation(request, CREATE if old is None else UPDATE)
        if not self._webhooks.concerns(operation):
            return decoded
        sent = copied(decoded.obj)
        kind.strategy.set_defaults(sent)

        def default(obj: Object) -> Object:
            if not isinstance(obj.get("metadata"), dict):
                raise errors.internal("an admission webhook removed the metadata of the object")
            fresh = decode_object(kind, copied(obj)).obj
            kind.strategy.set_defaults(fresh)
            return fresh

        changed = await self._webhooks.mutate(AdmissionRequest(operation, sent, old, request.warnings), default)
        if changed is sent or changed is None:
            return decoded
        name = changed["metadata"].get("name")
        if info.name and name != info.name:
            raise name_mismatch(name, info.name)
        return decode_object(kind, changed)

    async def validate(self, request: ApiRequest, new: Object, old: Object | None) -> None:
        """Raises the rejection of a validating webhook."""
        operation = _operation(request, CREATE if old is None else UPDATE)
        await self._webhooks.validate(AdmissionRequest(operation, new, old, request.warnings))

    async def delete(self, info: ResourceInfo, options: DeleteOptions, request: ApiRequest) -> tuple[Stored, bool]:
        """The object after the delete, and whether it was removed."""
        removed = False
        dry_run = options.dry_run or request.dry_run
        await self._ask_webhooks_to_delete(replace(request, info=info, verb="delete"), dry_run=dry_run)

        def try_update(current: Stored | None) -> Object | Removed:
            nonlocal removed
            obj = self._dependents.keep_for_cleanup(info, existing(info, current).obj)
            self._plugins.admit_delete(info.kind, info.name)
            deleted = deleted_object(info.kind, obj, options, request.now)
            removed = isinstance(deleted, Removed)
            return deleted

        stored = await self.write(request, info, try_update, dry_run=dry_run)
        if not dry_run and (dependents := self._dependents.deleted_with(info, removed=removed)):
            await self.delete_all(*dependents, DeleteOptions(), request)
        return stored, removed

    async def delete_all(
        self, kind: ResourceType, objects: Iterable[Stored], options: DeleteOptions, request: ApiRequest
    ) -> None:
        """An object that is gone meanwhile is no error."""
        for stored in objects:
            try:
                await self.delete(ResourceInfo(kind, stored.key[0] or None, stored.key[1]), options, request)
            except errors.StatusError as error:
                if error.code != 404:
                    raise

    async def _finalize(self, crd: ResourceInfo, request: ApiRequest) -> None:
        """Removes a deleted CRD after its last custom resource."""

        def try_update(current: Stored | None) -> Object | Removed:
            kept = self._dependents.keep_for_cleanup(crd, existing(crd, current).obj)
            return removed_if_finalized(crd.kind, kept)

        await self.write(request, crd, try_update, dry_run=False)

    async def _ask_webhooks_to_delete(self, request: ApiRequest, *, dry_run: bool) -> None:
        """Asks both kinds of webhooks."""
        info = request.info
        operation = _operation(request, DELETE, dry_run=dry_run)
        if not self._webhooks.concerns(operation):
            return
        doomed = existing(info, self._store.get(info.kind.key, info.scope, info.name)).obj
        asked = AdmissionRequest(operation, None, doomed, request.warnings)
        await self._webhooks.mutate(asked, lambda obj: obj)
        await self._webhooks.validate(asked)


def existing(info: ResourceInfo, stored: Stored | None) -> Stored:
    if stored is None:
        raise errors.not_found(info.kind.resource, info.name)
    return stored


def _unless_changed(expected: Stored | None, result: Object | Removed) -> TryUpdate:
    def try_update(current: Stored | None) -> Object | Removed:
        if current is not expected:
            raise _ChangedMeanwhile
        return result

    return try_update


def _copy(decoded: DecodedObject) -> DecodedObject:
    """A write that is tried again starts from the same object."""
    return DecodedObject(copied(decoded.obj), decoded.findings)


def _operation(request: ApiRequest, verb: str, *, dry_run: bool | None = None) -> Operation:
    """The write as webhooks see it."""
    info = request.info
    options = {
        "fieldManager": request.query.get("fieldManager"),
        "fieldValidation": request.query.get("fieldValidation"),
    }
    dry = request.dry_run if dry_run is None else dry_run
    kinds = {CREATE: "CreateOptions", DELETE: "DeleteOptions"}
    kind = "PatchOptions" if request.verb == "patch" else kinds.get(verb, "UpdateOptions")
    shown: Object = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    shown |= {key: value for key, value in options.items() if value}
    return Operation(
        verb=verb,
        kind=info.kind,
        subresource=info.subresource,
        scope=info.scope,
        name=info.name,
        user=request.user,
        dry_run=dry,
        options=shown | ({"dryRun": ["All"]} if dry else {}),
    )


class Dependents:
    def __init__(self, store: ObjectStore, registry: Registry) -> None:
        self._store = store
        self._registry = registry

    def keep_for_cleanup(self, info: ResourceInfo, obj: Object) -> Object:
        """The object to delete: a CRD has a finalizer as long as it has custom resources."""
        if info.kind.resource != CUSTOM_RESOURCE_DEFINITIONS:
            return obj
        return with_cleanup_finalizer(obj, needed=self._store.count(info.name) > 0)

    def deleted_with(self, info: ResourceInfo, *, removed: bool) -> tuple[ResourceType, list[Stored]] | None:
        """The objects that go with a deleted one; `removed`: nothing has kept it."""
        resource = info.kind.resource
        if resource == CUSTOM_RESOURCE_DEFINITIONS and not removed:
            for served in self._registry.of_crd(info.name):
                return served, list(self._store.list(served.key))
        elif resource == SERVICES and removed:
            # A new Service of this name must not start with the old endpoints.
            endpoints = self._registry.of(ENDPOINTS)
            old = self._store.get(endpoints.key, info.scope, info.name)
            return endpoints, [old] if old else []
        return None

    def released_by(self, kind: ResourceType) -> ResourceInfo | None:
        """The deleted CRD that nothing keeps any more, after a custom resource of this kind was removed."""
        if not kind.custom or self._store.count(kind.key):
            return None
        info = ResourceInfo(self._registry.of(CUSTOM_RESOURCE_DEFINITIONS), None, kind.key)
        stored = self._store.get(info.kind.key, "", kind.key)
        return info if stored is not None and "deletionTimestamp" in stored.obj["metadata"] else None
