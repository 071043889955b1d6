"""What every cluster has before anybody asks: a service account in each first namespace, and a default StorageClass."""

import asyncio

from trainwright.cluster.controllers.persistentvolume_controller import default_storage_class
from trainwright.cluster.controllers.serviceaccount_controller import default_account
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists
from trainwright.objects import Object
from trainwright.objects.resources import NAMESPACES, SERVICE_ACCOUNTS, STORAGE_CLASSES, Resource


async def bootstrap(client: Client) -> None:
    """Creates what is missing. Existing objects are left as they are, whatever was changed in them."""
    namespaces = [one["metadata"]["name"] for one in (await client.list(NAMESPACES)).items]
    await asyncio.gather(
        _ensure(client, STORAGE_CLASSES, default_storage_class()),
        *(_ensure(client, SERVICE_ACCOUNTS, default_account(name)) for name in namespaces),
    )


async def _ensure(client: Client, resource: Resource, obj: Object) -> None:
    try:
        await client.create(resource, obj)
    except AlreadyExists:
        return
