"""What the tests of the chart and the manifests share: the real Helm, and a cluster on which nothing is installed."""

from collections.abc import Iterator

import pytest

from tests.support.cluster.controlplane import ControlPlane, running_control_plane
from tests.support.commands.helm import Helm
from tests.support.commands.real_kubectl import RealKubectl


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm without a cluster."""
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def bare_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real control plane without CustomResourceDefinitions."""
    with running_control_plane(tmp_path_factory.mktemp("bare-plane")) as plane:
        yield plane


@pytest.fixture(scope="session")
def bare_helm(bare_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"), bare_plane.kubeconfig)


@pytest.fixture(scope="session")
def bare_kubectl(bare_plane: ControlPlane) -> RealKubectl:
    return RealKubectl(bare_plane)
