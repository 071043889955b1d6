"""What is deleted together without owner references: custom resources and their CRD, a Service and its Endpoints."""

from trainwright.cluster.apiserver.http.requests import ResourceInfo
from trainwright.cluster.apiserver.resources.crds import with_cleanup_finalizer
from trainwright.cluster.apiserver.resources.registry import Registry
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.storage.store import ObjectStore, Stored
from trainwright.objects import Object
from trainwright.objects.resources import CUSTOM_RESOURCE_DEFINITIONS, ENDPOINTS, SERVICES


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
