"""The first moments of a job on a real API server: its pods come before its status, and much may happen in between."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.support.harness.job_harness import JobHarness
from tests.support.harness.running_operator import running_operator
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.objects import upstream
from tests.support.objects.jobs import JobBuilder
from tests.support.waiting import eventually
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import Forbidden
from trainwright.kube.client.requests import Request, Response
from trainwright.objects.resources import PODS, Resource

pytestmark = pytest.mark.apiserver

QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
EVERYBODY = ["digits-master-0", "digits-worker-0", "digits-worker-1"]


class Overtaken(Client):
    """A client that lets something happen before its first pod goes out, when the plan for it is made."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def send(self, request: Request) -> Response:
        if self.meanwhile and request.method == "POST" and request.path.endswith("/pods"):
            happen, self.meanwhile = self.meanwhile, None
            await happen()
        return await super().send(request)


@asynccontextmanager
async def overtaken_operator(
    client: Client, control_plane: ControlPlane, namespace: str
) -> AsyncIterator[tuple[JobHarness, Overtaken]]:
    """What `client` sees of the work of an operator, and the client of that operator."""
    async with (
        Overtaken(control_plane.config) as overtaken,
        running_operator(overtaken, namespace=namespace) as operator,
    ):
        yield JobHarness(client, namespace, operator), overtaken


async def test_a_job_that_is_suspended_while_its_pods_are_created_keeps_none(
    client: Client, control_plane: ControlPlane, real_namespace: str
) -> None:
    async with overtaken_operator(client, control_plane, real_namespace) as (scene, overtaken):
        overtaken.meanwhile = lambda: scene.suspend("digits")
        await scene.submit(JobBuilder().master().workers(2))
        suspended = await scene.wait_for_conditions("digits", upstream.created("digits"), upstream.suspended("digits"))
        assert overtaken.meanwhile is None
        assert "startTime" not in suspended["status"]
        await scene.wait_for_children("digits", [])
        told = [(verb, name) for verb in ("Create", "Delete") for name in EVERYBODY]
        await scene.wait_for_only_events(
            "digits",
            *(("Normal", f"Successful{verb}Pod", f"{verb}d pod: {name}") for verb, name in told),
            *(("Normal", f"Successful{verb}Service", f"{verb}d service: {name}") for verb, name in told),
            ("Normal", "PyTorchJobSuspended", "PyTorchJob digits is suspended."),
        )

        await scene.suspend("digits", False)
        await scene.wait_for_children("digits", EVERYBODY)


async def test_a_job_that_is_scaled_while_its_pods_are_created_has_the_right_ones_in_the_end(
    client: Client, control_plane: ControlPlane, real_namespace: str
) -> None:
    async with overtaken_operator(client, control_plane, real_namespace) as (scene, overtaken):
        overtaken.meanwhile = lambda: scene.change("digits", pytorchReplicaSpecs={"Worker": {"replicas": 1}})
        await scene.submit(JobBuilder().master().workers(2))
        await scene.wait_for_conditions("digits", upstream.created("digits"))
        await scene.settle()
        await scene.wait_for_children("digits", EVERYBODY[:2])


async def test_a_job_that_a_quota_holds_up_shows_it_and_goes_on_when_there_is_room(
    client: Client, real_namespace: str
) -> None:
    """Upstream writes no status at all: the row on jobs without one of docs/compatibility.md."""
    await _allow_pods(client, real_namespace, 1)
    async with running_operator(client, namespace=real_namespace) as operator:
        scene = JobHarness(client, real_namespace, operator)
        await scene.submit(JobBuilder().master().workers(2))
        await scene.wait_for_conditions("digits", upstream.created("digits"))

        async def refusals() -> list[str]:
            return [message for _, reason, message in await scene.events("digits") if reason == "FailedCreatePod"]

        refused = await eventually(refusals, bool)
        assert all(message.startswith("Error creating: pods ") and "exceeded quota" in message for message in refused)
        assert "startTime" in await scene.status("digits")
        await eventually(lambda: scene.pods("digits"), lambda pods: len(pods) == 1)

        await client.delete(QUOTAS, "few", namespace=real_namespace)
        await scene.wait_for_children("digits", EVERYBODY)
        assert await scene.conditions("digits") == [upstream.created("digits")]


async def _allow_pods(client: Client, namespace: str, most: int) -> None:
    """Returns when the API server keeps to it: admission reads quotas, and what is used of them, with a delay."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}}
    await client.create(QUOTAS, quota, namespace=namespace)
    await eventually(lambda: _refusal_of_a_pod(client, namespace), lambda refusal: "exceeded quota" in refusal)
    await client.patch(QUOTAS, "few", {"spec": {"hard": {"pods": str(most)}}}, namespace=namespace)
    await eventually(lambda: _refusal_of_a_pod(client, namespace), lambda refusal: not refusal)


async def _refusal_of_a_pod(client: Client, namespace: str) -> str:
    """Why a pod would be refused now; empty if it would be created."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trial"},
        "spec": {"containers": [{"name": "main", "image": "example.com/trial:1"}]},
    }
    try:
        await client.raw("POST", PODS.path(namespace), body=pod, params={"dryRun": "All"})
    except Forbidden as error:
        return error.message
    return ""
