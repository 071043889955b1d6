"""Stores with objects, for tests of code that reads the store without an API server."""

from trainwright.cluster.apiserver.storage.store import ObjectStore, Removed
from trainwright.objects import Object
from trainwright.objects.resources import Resource


async def store_with(*objects: tuple[Resource, Object]) -> ObjectStore:
    """In memory."""
    store = ObjectStore(None)
    for resource, obj in objects:
        await put(store, resource, obj)
    return store


async def put(store: ObjectStore, resource: Resource, obj: Object) -> None:
    """Creates or replaces the object as it is. Its `uid` is its name, unless it has one."""
    metadata = {"uid": obj["metadata"]["name"], **obj["metadata"]}
    namespace = metadata.get("namespace", "")
    stored = {**obj, "metadata": metadata}
    await store.guaranteed_update(resource.qualified_plural, namespace, metadata["name"], lambda _old: stored)


async def remove(store: ObjectStore, resource: Resource, namespace: str, name: str) -> None:
    stored = store.get(resource.qualified_plural, namespace, name)
    assert stored is not None
    last = stored.obj
    await store.guaranteed_update(resource.qualified_plural, namespace, name, lambda _old: Removed(last))
