"""Who shares the home of the machine's owner: pods of namespaces whose policy forbids nothing."""

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.cluster.node import Node, container, running_node
from tests.support.cluster.supervised_pods import LAYERED_DIRECTORY
from trainwright.objects.resources import NAMESPACES


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """With a home that has one file."""
    with TemporaryDirectory(prefix="home-", dir=LAYERED_DIRECTORY) as home:
        monkeypatch.setenv("HOME", home)
        (Path(home) / "secret").write_text("x")
        async with running_node(tmp_path / "node", sandbox="overlay") as running:
            yield running


@pytest.mark.parametrize(
    ("labels", "seen"),
    [
        ({}, "secret\n"),
        ({"pod-security.kubernetes.io/enforce": "privileged"}, "secret\n"),
        ({"pod-security.kubernetes.io/warn": "baseline"}, "secret\n"),
        ({"pod-security.kubernetes.io/enforce": "baseline"}, ""),
    ],
)
async def test_policy_of_a_namespace_decides_whether_pods_share_the_home(
    node: Node, labels: dict[str, str], seen: str
) -> None:
    await node.client.patch(NAMESPACES, "default", {"metadata": {"labels": labels}})
    script = "ls -A $HOME; echo y > $HOME/mine"
    await node.create("p", container(script, env=[{"name": "PATH", "value": "/usr/bin:/bin"}]))
    pod = await node.until_phase("p", "Succeeded")
    assert await node.log(pod) == seen
