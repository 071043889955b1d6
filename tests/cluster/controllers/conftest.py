"""The servers for controller tests: the embedded cluster with all controllers, and a real control plane."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cluster.embedded_cluster import embedded_cluster
from trainwright.kube.client.async_client import Client


@dataclass(frozen=True)
class Arena:
    """A cluster without a node. `embedded`: our controllers run there already; else it is upstream's that do."""

    client: Client
    namespace: str
    embedded: bool
    directory: Path


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Arena]:
    async with embedded_cluster(tmp_path / "data", with_node=False) as cluster, Client(cluster.config) as client:
        yield Arena(client, "default", embedded=True, directory=tmp_path / "data")


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.apiserver)])
async def arena(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Arena]:
    """The same behaviour is wanted of our controllers and of those that they stand for."""
    if request.param == "embedded":
        async with embedded_cluster(tmp_path / "data", with_node=False) as cluster, Client(cluster.config) as client:
            yield Arena(client, "default", embedded=True, directory=tmp_path / "data")
    else:
        plane, namespace = request.getfixturevalue("control_plane"), request.getfixturevalue("real_namespace")
        async with Client(plane.config) as client:
            yield Arena(client, namespace, embedded=False, directory=tmp_path)
