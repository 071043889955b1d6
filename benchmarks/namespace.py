"""The namespace in which benchmarks create jobs and pods."""

import asyncio
from contextlib import suppress

from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, NotFound
from trainwright.objects.resources import NAMESPACES, SERVICE_ACCOUNTS, Resource

NAMESPACE = "bench"


async def create_namespace(client: Client, jobs: Resource) -> None:
    """Creates the namespace and waits until the server serves the jobs' CRD."""
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}}
    with suppress(AlreadyExists):
        await client.create(SERVICE_ACCOUNTS, account)
    while True:
        with suppress(NotFound):
            await client.list(jobs)
            return
        await asyncio.sleep(0.05)
