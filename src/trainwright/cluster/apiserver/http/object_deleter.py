"""Deletes objects, and what goes with them: the custom resources of a CRD, the Endpoints of a Service."""

from collections.abc import Iterable
from dataclasses import replace

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.admission.plugin_chain import admit_delete
from trainwright.cluster.apiserver.http.object_writer import ObjectWriter, existing, with_cleanup_finalizer
from trainwright.cluster.apiserver.http.requests import ApiRequest, ResourceInfo
from trainwright.cluster.apiserver.resources.registry import Registry
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.storage.store import ObjectStore, Removed, Stored
from trainwright.cluster.apiserver.writes.deletion import DeleteOptions, deleted_object
from trainwright.objects import Object
from trainwright.objects.resources import CUSTOM_RESOURCE_DEFINITIONS, ENDPOINTS, SERVICES


class ObjectDeleter:
    def __init__(self, store: ObjectStore, registry: Registry, writer: ObjectWriter) -> None:
        self._store = store
        self._registry = registry
        self._writer = writer

    async def delete(self, info: ResourceInfo, options: DeleteOptions, request: ApiRequest) -> tuple[Stored, bool]:
        """The object after the delete, and whether it was removed."""
        kind = info.kind
        removed = False
        dry_run = options.dry_run or request.dry_run
        await self._writer.admit_delete(replace(request, info=info, verb="delete"), dry_run=dry_run)

        def try_update(current: Stored | None) -> Object | Removed:
            nonlocal removed
            obj = existing(info, current).obj
            if kind.resource == CUSTOM_RESOURCE_DEFINITIONS:
                obj = with_cleanup_finalizer(obj, needed=self._store.count(info.name) > 0)
            admit_delete(kind, info.name)
            deleted = deleted_object(kind, obj, options, request.now)
            removed = isinstance(deleted, Removed)
            return deleted

        stored = await self._writer.write(request, info, try_update, dry_run=dry_run)
        if kind.resource == CUSTOM_RESOURCE_DEFINITIONS and not removed and not options.dry_run:
            for served in self._registry.of_crd(info.name)[:1]:
                await self.delete_all(served, self._store.list(served.key), DeleteOptions(), request)
        if kind.resource == SERVICES and removed and not dry_run:
            # A new Service of this name must not start with the old endpoints.
            endpoints = self._registry.of(ENDPOINTS)
            old = self._store.get(endpoints.key, info.scope, info.name)
            await self.delete_all(endpoints, [old] if old else [], DeleteOptions(), request)
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
