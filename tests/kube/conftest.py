"""The servers that clients are tested with: one that answers by a script, and the real kube-apiserver."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.servers.scripted_server import ScriptedServer, scripted_server
from trainwright.kube.client.async_client import Client


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as running:
        yield running


@pytest.fixture
async def client(control_plane: ControlPlane, real_namespace: str) -> AsyncIterator[Client]:
    async with Client(replace(control_plane.config, namespace=real_namespace)) as client:
        yield client
