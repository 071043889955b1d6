"""An embedded cluster for the tests of commands that need one."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cluster.embedded_cluster import UpCommand, up_command
from tests.support.commands.trainwright import Result, trainwright

Call = Callable[..., Result]


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpCommand]:
    """`trainwright up`, with a home, a data directory and a kubeconfig of its own; its pods are killed at the end."""
    with up_command(tmp_path_factory.mktemp("embedded")) as up:
        yield up


@pytest.fixture
def call(embedded: UpCommand) -> Call:
    """Calls `trainwright COMMAND …` for that cluster."""

    def call(command: str, *arguments: str, stdin: str | None = None, directory: Path | None = None) -> Result:
        words = (command, "--data-dir", str(embedded.data.path), *arguments)
        return trainwright(*words, environment=embedded.environment, stdin=stdin, directory=directory)

    return call
