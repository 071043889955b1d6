"""What the operator's tests share: a client of the real API server that serves our kinds, and a way to write jobs."""

from collections.abc import AsyncIterator

import pytest

from tests.support.kubernetes.controlplane import ControlPlane
from trainwright.kube.client.async_client import Client


@pytest.fixture
async def client(job_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(job_plane.config) as client:
        yield client
