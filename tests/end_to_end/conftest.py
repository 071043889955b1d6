"""Each test has its own `trainwright up`, and commands for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster.embedded_cluster import UpCommand, up_command
from tests.support.commands.kubectl import Commands


@pytest.fixture
def up(tmp_path: Path) -> Iterator[UpCommand]:
    with up_command(tmp_path) as running:
        yield running


@pytest.fixture
def commands(up: UpCommand, kubectl_binary: Path) -> Commands:
    return Commands(up, kubectl_binary)
