"""Stopping an operator takes a bounded time, even if the API server does not respond."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.harness.job_harness import submit
from tests.support.harness.running_operator import running_operator, settled
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.objects.jobs import JobBuilder
from tests.support.waiting import eventually
from trainwright.kube.client.async_client import Client
from trainwright.kube.controller import controller
from trainwright.objects.resources import PODS
from trainwright.operator import JobController, job_controller

pytestmark = pytest.mark.apiserver

WORKERS = 150


@contextmanager
def frozen(plane: ControlPlane) -> Iterator[None]:
    """Within the block the API server accepts connections but does not respond."""
    os.kill(plane.apiserver.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(plane.apiserver.pid, signal.SIGCONT)


async def test_stopping_does_not_wait_for_an_api_server_that_does_not_respond(
    control_plane: ControlPlane, real_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "DRAIN_SECONDS", 0.2)
    monkeypatch.setattr(job_controller, "_EVENT_SECONDS", 0.1)
    async with Client(control_plane.config) as client, Client(control_plane.config) as other:
        ours = JobController(client, namespace=real_namespace, parallel_writes=2)
        working = asyncio.create_task(ours.run())
        await ours.ready.wait()
        await submit(other, JobBuilder("job", namespace=real_namespace).master().workers(WORKERS))
        await eventually(lambda: pods(other, real_namespace), lambda names: len(names) > 2)
        with frozen(control_plane):
            ours.stop()
            async with asyncio.timeout(15):
                await working
        made = await pods(other, real_namespace)
        assert len(made) < WORKERS + 1

        async with running_operator(client, namespace=real_namespace) as next_one:
            await eventually(lambda: pods(other, real_namespace), lambda names: len(names) == WORKERS + 1)
            await settled(next_one)
        # The first pods were not replaced.
        assert made.items() <= (await pods(other, real_namespace)).items()


async def pods(client: Client, namespace: str) -> dict[str, str]:
    found = (await client.list(PODS, namespace=namespace)).items
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in found}
