"""What the tests of the chart and the manifests share: the real Helm."""

import pytest

from tests.support.commands.helm import Helm


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm without a cluster."""
    return Helm(tmp_path_factory.mktemp("helm"))
