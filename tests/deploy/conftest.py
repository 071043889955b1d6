"""What the tests of the chart and the manifests share: the real Helm, and a cluster on which nothing is installed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands.helm import Helm
from tests.support.commands.real_kubectl import RealKubectl
from tests.support.kubernetes.controlplane import ControlPlane, running_control_plane


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm without a cluster."""
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture
def bare_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real control plane without CustomResourceDefinitions, for one test."""
    with running_control_plane(tmp_path_factory.mktemp("bare-plane")) as plane:
        yield plane


@pytest.fixture
def bare_helm(bare_plane: ControlPlane, tmp_path: Path) -> Helm:
    return Helm(tmp_path, bare_plane.kubeconfig)


@pytest.fixture
def bare_kubectl(bare_plane: ControlPlane) -> RealKubectl:
    return RealKubectl(bare_plane)
