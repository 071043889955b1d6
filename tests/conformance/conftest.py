"""Where the numbered items are played: a namespace of the real API server, with our operator and a played kubelet."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.cluster.controlplane import ControlPlane
from tests.support.cluster.stages import PlayedStage, Stage, embedded_stage, played_stage
from trainwright.api.kinds import KINDS
from trainwright.kube.client.async_client import Client
from trainwright.operator import install_crds


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(control_plane.config) as client:
        await install_crds(client, KINDS.values())
        yield client


@pytest.fixture
async def scene(control_plane: ControlPlane, real_namespace: str, tmp_path: Path) -> AsyncIterator[PlayedStage]:
    async with played_stage(control_plane.config, real_namespace, tmp_path) as stage:
        yield stage


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.apiserver)])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    """For items that are cheap enough to be played on both clusters."""
    if request.param == "embedded":
        async with embedded_stage(tmp_path) as embedded:
            yield embedded
    else:
        config = request.getfixturevalue("control_plane").config
        async with played_stage(config, request.getfixturevalue("real_namespace"), tmp_path) as played:
            yield played
