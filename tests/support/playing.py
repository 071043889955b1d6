"""What a test does to a cluster whose pods are played: submit jobs, and let a kubelet look after their pods."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.background import in_background
from tests.support.cluster.played_kubelet import PlayedKubelet
from tests.support.objects.jobs import JobBuilder
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object


async def submit(client: Client, builder: JobBuilder) -> Object:
    return await client.create(builder.kind.resource, submission(builder))


def submission(builder: JobBuilder) -> Object:
    """The job as a user writes it; what the server gives to it, such as its uid, is the server's."""
    raw = builder.raw()
    metadata = raw["metadata"]
    named = {key: metadata[key] for key in ("name", "namespace", "labels", "annotations") if key in metadata}
    return {**raw, "metadata": named}


@asynccontextmanager
async def playing(client: Client, namespace: str) -> AsyncIterator[PlayedKubelet]:
    """Within the block every pod of the namespace is bound, started and, once deleted, let go."""
    kubelet = PlayedKubelet(client, namespace=namespace)
    await kubelet.register()
    async with in_background(kubelet.run()):
        yield kubelet
