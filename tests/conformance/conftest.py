"""Harnesses for the numbered items: the real API server or the embedded cluster, with our operator."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.harness.cluster_harness import (
    ClusterHarness,
    RealClusterHarness,
    embedded_cluster_harness,
    real_cluster_harness,
)
from tests.support.kubernetes.controlplane import ControlPlane
from trainwright.kube.client.async_client import Client


@pytest.fixture
async def client(job_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(job_plane.config) as client:
        yield client


@pytest.fixture
async def harness(job_plane: ControlPlane, real_namespace: str, tmp_path: Path) -> AsyncIterator[RealClusterHarness]:
    async with real_cluster_harness(job_plane.config, real_namespace, tmp_path) as cluster:
        yield cluster


@pytest.fixture(
    params=[
        pytest.param("embedded", marks=pytest.mark.thorough("embedded", sample=2)),
        pytest.param("real", marks=pytest.mark.apiserver),
    ]
)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ClusterHarness]:
    """For items that are quick enough to be run on both clusters."""
    if request.param == "embedded":
        async with embedded_cluster_harness(tmp_path) as embedded:
            yield embedded
    else:
        config = request.getfixturevalue("job_plane").config
        async with real_cluster_harness(config, request.getfixturevalue("real_namespace"), tmp_path) as real:
            yield real
