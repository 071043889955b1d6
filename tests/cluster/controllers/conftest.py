"""The servers for controller tests: the embedded cluster with all controllers, and a real control plane."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cluster.embedded_cluster import embedded_cluster
from trainwright.kube.client.async_client import Client


@dataclass(frozen=True)
class ControllerCluster:
    """A cluster without a node, with our controllers if it is `embedded`, else with kube-controller-manager's."""

    client: Client
    namespace: str
    embedded: bool
    directory: Path


@asynccontextmanager
async def _running_controllers(directory: Path) -> AsyncIterator[ControllerCluster]:
    async with embedded_cluster(directory, with_node=False) as running, Client(running.config) as client:
        yield ControllerCluster(client, "default", embedded=True, directory=directory)


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[ControllerCluster]:
    async with _running_controllers(tmp_path / "data") as running:
        yield running


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.apiserver)])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ControllerCluster]:
    """The same tests pass with our controllers and with those of kube-controller-manager."""
    if request.param == "embedded":
        async with _running_controllers(tmp_path / "data") as running:
            yield running
    else:
        plane, namespace = request.getfixturevalue("control_plane"), request.getfixturevalue("real_namespace")
        async with Client(plane.config) as client:
            yield ControllerCluster(client, namespace, embedded=False, directory=tmp_path)
