"""The first moments of a job on a real API server: its pods are created before its status is written."""

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
PODS_OF_JOB = ["digits-master-0", "digits-worker-0", "digits-worker-1"]


class InterruptedClient(Client):
    """A client that awaits `before_first_pod` when the plan is made and before its first pod is sent."""

    before_first_pod: Callable[[], Awaitable[object]] | None = None

    async def send(self, request: Request) -> Response:
        if self.before_first_pod and request.method == "POST" and request.path.endswith("/pods"):
            callback, self.before_first_pod = self.before_first_pod, None
            await callback()
        return await super().send(request)


@asynccontextmanager
async def interrupted_operator(
    client: Client, control_plane: ControlPlane, namespace: str
) -> AsyncIterator[tuple[JobHarness, InterruptedClient]]:
    """An operator, seen by `client`, and the client that the operator itself uses."""
    async with (
        InterruptedClient(control_plane.config) as interrupted,
        running_operator(interrupted, namespace=namespace) as operator,
    ):
        yield JobHarness(client, namespace, operator), interrupted


async def test_a_job_that_is_suspended_while_its_pods_are_created_keeps_none(
    client: Client, control_plane: ControlPlane, real_namespace: str
) -> None:
    async with interrupted_operator(client, control_plane, real_namespace) as (harness, interrupted):
        interrupted.before_first_pod = lambda: harness.suspend("digits")
        await harness.submit(JobBuilder().master().workers(2))
        suspended = await harness.wait_for_conditions(
            "digits", upstream.created("digits"), upstream.suspended("digits")
        )
        assert interrupted.before_first_pod is None
        assert "startTime" not in suspended["status"]
        await harness.wait_for_children("digits", [])
        expected = [(verb, name) for verb in ("Create", "Delete") for name in PODS_OF_JOB]
        await harness.wait_for_only_events(
            "digits",
            *(("Normal", f"Successful{verb}Pod", f"{verb}d pod: {name}") for verb, name in expected),
            *(("Normal", f"Successful{verb}Service", f"{verb}d service: {name}") for verb, name in expected),
            ("Normal", "PyTorchJobSuspended", "PyTorchJob digits is suspended."),
        )

        await harness.suspend("digits", False)
        await harness.wait_for_children("digits", PODS_OF_JOB)


async def test_a_job_that_is_scaled_while_its_pods_are_created_has_the_right_ones_in_the_end(
    client: Client, control_plane: ControlPlane, real_namespace: str
) -> None:
    async with interrupted_operator(client, control_plane, real_namespace) as (harness, interrupted):
        interrupted.before_first_pod = lambda: harness.change("digits", pytorchReplicaSpecs={"Worker": {"replicas": 1}})
        await harness.submit(JobBuilder().master().workers(2))
        await harness.wait_for_conditions("digits", upstream.created("digits"))
        await harness.settle()
        await harness.wait_for_children("digits", PODS_OF_JOB[:2])


async def test_a_job_that_a_quota_holds_up_shows_it_and_goes_on_when_there_is_room(
    client: Client, real_namespace: str
) -> None:
    """Upstream writes no status at all: the row on jobs without one of docs/compatibility.md."""
    await _allow_pods(client, real_namespace, 1)
    async with running_operator(client, namespace=real_namespace) as operator:
        harness = JobHarness(client, real_namespace, operator)
        await harness.submit(JobBuilder().master().workers(2))
        await harness.wait_for_conditions("digits", upstream.created("digits"))

        async def refusals() -> list[str]:
            return [message for _, reason, message in await harness.events("digits") if reason == "FailedCreatePod"]

        refused = await eventually(refusals, bool)
        assert all(message.startswith("Error creating: pods ") and "exceeded quota" in message for message in refused)
        assert "startTime" in await harness.status("digits")
        await eventually(lambda: harness.pods("digits"), lambda pods: len(pods) == 1)

        await client.delete(QUOTAS, "few", namespace=real_namespace)
        await harness.wait_for_children("digits", PODS_OF_JOB)
        assert await harness.conditions("digits") == [upstream.created("digits")]


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
