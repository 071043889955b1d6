"""What the operator's tests share: a client of the real API server that serves our kinds, and a way to write jobs."""

from collections.abc import AsyncIterator

import pytest

from tests.support.cluster.controlplane import ControlPlane
from trainwright.api.kinds import KINDS
from trainwright.kube.client.async_client import Client
from trainwright.operator import install_crds


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(control_plane.config) as client:
        await install_crds(client, KINDS.values())
        yield client
