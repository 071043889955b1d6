"""A `trainwright up` of its own for each test, and commands that talk to it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.cluster import UpCommand, end_all_pods, up_command
from tests.support.commands import Commands


@pytest.fixture
async def up(tmp_path: Path) -> AsyncIterator[UpCommand]:
    with up_command(tmp_path) as running:
        yield running
        if running.process.poll() is None:
            await end_all_pods(running.config)


@pytest.fixture
def commands(up: UpCommand, kubectl_binary: Path) -> Commands:
    return Commands(up, kubectl_binary)
