"""A standby takes over: it sees what the previous leader wrote, even if its own watches lag behind."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from tests.support.harness.job_harness import submit
from tests.support.harness.running_operator import running_operator
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.kubernetes.fake_kubelet import FakeKubelet
from tests.support.objects.jobs import JobBuilder
from tests.support.waiting import eventually
from trainwright.api.kinds import PYTORCH
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import NotFound, Unreachable
from trainwright.kube.client.requests import Request
from trainwright.objects import Object
from trainwright.objects.resources import PODS
from trainwright.operator import JobController


class LaggingClient(Client):
    """A client whose watch of pods delivers nothing."""

    async def stream_lines(self, request: Request) -> AsyncGenerator[bytes, None]:
        if request.path.endswith("/pods"):
            await asyncio.Event().wait()
        async for line in super().stream_lines(request):
            yield line


def no_deletions(request: Request) -> None:
    if request.method == "DELETE":
        raise Unreachable("killed before this was sent")


async def pod(client: Client, namespace: str) -> Object | None:
    try:
        return await client.get(PODS, "digits-master-0", namespace=namespace)
    except NotFound:
        return None


async def restarts(client: Client, namespace: str) -> Object:
    job = await client.get(PYTORCH.resource, "digits", namespace=namespace)
    found: Object = (job.get("status") or {}).get("restarts") or {}
    return found


@pytest.mark.apiserver
async def test_a_failure_that_the_previous_leader_counted_is_not_counted_again(
    control_plane: ControlPlane, client: Client, real_namespace: str
) -> None:
    may_lead = asyncio.Event()

    async def lead() -> None:
        await may_lead.wait()

    async with LaggingClient(control_plane.config) as lagging, asyncio.TaskGroup() as group:
        standby = JobController(lagging, namespace=real_namespace, lead=lead)
        group.create_task(standby.run())
        await standby.synced.wait()

        kubelet = FakeKubelet(client, namespace=real_namespace)
        await kubelet.register()
        async with (
            Client(control_plane.config, gate=no_deletions) as doomed,
            running_operator(doomed, namespace=real_namespace),
        ):
            await submit(client, JobBuilder(namespace=real_namespace).master(policy="OnFailure"))
            await eventually(lambda: pod(client, real_namespace), lambda found: found is not None)
            await kubelet.bind("digits-master-0")
            await kubelet.finish("digits-master-0", exit_code=1)
            await eventually(lambda: restarts(client, real_namespace), lambda counted: counted == {"Master": 1})
        failed = await pod(client, real_namespace)
        assert failed

        may_lead.set()
        await eventually(
            lambda: pod(client, real_namespace),
            lambda found: found is not None and found["metadata"]["uid"] != failed["metadata"]["uid"],
        )
        assert await restarts(client, real_namespace) == {"Master": 1}
        standby.stop()
