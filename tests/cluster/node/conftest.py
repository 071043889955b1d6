"""Supervised pods at every level that this machine allows to every kind of user."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support.cluster.node import Node, running_node
from tests.support.cluster.supervised_pods import SupervisedPod, User, supervised, users
from trainwright.cluster.node.supervisor.sandbox.detection import Sandbox

_USERS = users()


@dataclass(frozen=True)
class PodRunner:
    """Runs supervised pods as one user at one sandbox level."""

    user: User
    sandbox: Sandbox
    node: Path
    shared: Path
    """A directory that the user may write to."""

    def run(self, *containers: dict[str, Any], **fields: Any) -> AbstractContextManager[SupervisedPod]:
        return supervised(self.user, self.node, self.sandbox, *containers, **fields)


@pytest.fixture(scope="session")
def strongest() -> Callable[[User], Sandbox]:
    found: dict[str, Sandbox] = {}

    def find(user: User) -> Sandbox:
        if user.name not in found:
            with TemporaryDirectory() as directory:
                user.own(Path(directory))
                found[user.name] = user.sandbox(Path(directory))
        return found[user.name]

    return find


@pytest.fixture(params=_USERS, ids=lambda user: user.name)
def overlay(request: pytest.FixtureRequest, strongest: Callable[[User], Sandbox]) -> Iterator[PodRunner]:
    """For each user. Where overlay does not work the machine says why, and the test fails: it is not left out."""
    sandbox = strongest(request.param)
    assert sandbox.level == "overlay", f"overlay does not work here: {sandbox.reason}"
    with _pod_runner(request.param, sandbox) as found:
        yield found


@pytest.fixture(params=_USERS, ids=lambda user: user.name)
def plain(request: pytest.FixtureRequest) -> Iterator[PodRunner]:
    with _pod_runner(request.param, Sandbox("plain")) as found:
        yield found


@pytest.fixture(
    params=[(user, level) for user in _USERS for level in ("overlay", "plain")],
    ids=lambda param: f"{param[0].name}-{param[1]}",
)
def runner(request: pytest.FixtureRequest, strongest: Callable[[User], Sandbox]) -> Iterator[PodRunner]:
    """For each user at each level."""
    user, level = request.param
    sandbox = Sandbox("plain") if level == "plain" else strongest(user)
    assert sandbox.level == level, f"overlay does not work here: {sandbox.reason}"
    with _pod_runner(user, sandbox) as found:
        yield found


@pytest.fixture(params=["overlay", "plain"])
async def node(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Node]:
    """An agent on an API server, at each level."""
    async with running_node(tmp_path / "node", sandbox=request.param) as running:
        yield running


@contextmanager
def _pod_runner(user: User, sandbox: Sandbox) -> Iterator[PodRunner]:
    with TemporaryDirectory(prefix="trainwright-node-") as directory:  # pytest's own are closed to other users
        Path(directory).chmod(0o755)
        node, shared = Path(directory) / "node", Path(directory) / "shared"
        for path in (node, shared):
            path.mkdir()
            user.own(path)
        yield PodRunner(user, sandbox, node, shared)
