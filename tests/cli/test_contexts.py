"""The contexts of embedded clusters in the user's kubeconfig: none takes that of another."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwright.cli.contexts import add_context, remove_context
from trainwright.cluster.datadir import DataDir
from trainwright.kube.client.kubeconfig import ClusterConfig, ConfigError, load_kubeconfig, merge_into_kubeconfig


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    return tmp_path


@pytest.fixture
def listener() -> Iterator[str]:
    """The address of a server that answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"https://127.0.0.1:{server.getsockname()[1]}"


def cluster(data: DataDir, server: str = "https://127.0.0.1:1") -> ClusterConfig:
    """One that has been started; nothing listens on port 1."""
    data.create()
    token = str(data.path)
    data.credential.write_text(json.dumps({"status": {"token": token}}))
    merge_into_kubeconfig(data.kubeconfig, name="trainwright", server=server, ca_data=b"ca", token=token)
    return ClusterConfig(server=server, ca_data=b"ca", token=token)


@pytest.fixture(params=[".kube/config", "project/kubeconfig"])
def file(request: pytest.FixtureRequest, home: Path) -> Path:
    """Pods may see any of them: with another HOME also those in .kube."""
    path = home / str(request.param)
    path.parent.mkdir()
    return path


def token_of(file: Path, context: str) -> str | None:
    config = load_kubeconfig(file, context=context)
    plugin = config.exec_plugin
    return json.loads(Path(plugin.args[0]).read_text())["status"]["token"] if plugin else config.token


def test_a_kubeconfig_does_not_contain_the_token(home: Path, file: Path) -> None:
    data = DataDir.default()
    add_context(file, cluster(data), data)
    config = load_kubeconfig(file, context="trainwright")
    assert config.exec_plugin is not None
    assert (config.token, config.exec_plugin.args) == (None, (str(data.path / "credential.json"),))
    assert str(data.path) not in file.read_text().replace(str(data.credential), "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
@pytest.mark.parametrize("planted", ["home", "home/.kube", "home/.kube/config"])
def test_the_token_is_not_written_into_a_file_of_another_user(tmp_path: Path, planted: str) -> None:
    kubeconfig = tmp_path / "home" / ".kube" / "config"
    kubeconfig.parent.mkdir(parents=True)
    kubeconfig.write_text("")
    os.chown(tmp_path / planted, 46_666, -1)
    data = DataDir(tmp_path / "data")
    config = cluster(data)
    with pytest.raises(ConfigError, match="belongs to"):
        add_context(kubeconfig, config, data)
    assert kubeconfig.read_text() == ""


def test_every_named_cluster_has_its_own_context(file: Path) -> None:
    for name, context in (("", "trainwright"), ("dev", "trainwright-dev")):
        data = DataDir.of_cluster(name) if name else DataDir.default()
        assert add_context(file, cluster(data), data) == context
        assert token_of(file, context) == str(data.path)
        assert add_context(file, cluster(data), data) == context


def test_the_context_of_a_stopped_cluster_that_has_a_name_is_kept(home: Path, file: Path) -> None:
    default, other = DataDir.default(), DataDir(home / "my data")
    add_context(file, cluster(default), default)
    assert add_context(file, cluster(other), other) == "trainwright-my_data"
    assert token_of(file, "trainwright") == str(default.path)


def test_the_context_of_a_cluster_that_answers_is_kept(home: Path, file: Path, listener: str) -> None:
    first, second = DataDir(home / "a"), DataDir(home / "b")
    add_context(file, cluster(first, listener), first)
    assert add_context(file, cluster(second), second) == "trainwright-b"
    remove_context(file, second)
    assert token_of(file, "trainwright") == str(first.path)
    assert "trainwright-b" not in file.read_text()


def test_the_context_of_a_cluster_that_is_gone_is_replaced(home: Path, file: Path) -> None:
    first, second = DataDir(home / "a"), DataDir(home / "b")
    add_context(file, cluster(first), first)
    assert add_context(file, cluster(second), second) == "trainwright"
    remove_context(file, first)
    assert token_of(file, "trainwright") == str(second.path)
