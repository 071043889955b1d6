"""Which cluster the operator's process finds."""

from pathlib import Path

import pytest

from trainwright.kube.client.kubeconfig import ConfigError, merge_into_kubeconfig
from trainwright.operator.main import find_cluster, run_operator
from trainwright.operator.options import OperatorOptions


@pytest.fixture
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Neither a kubeconfig nor a pod; returns a home directory."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def kubeconfig(path: Path, server: str) -> Path:
    merge_into_kubeconfig(path, name="here", server=server, ca_data=b"ca", token="secret")
    return path


def test_a_named_kubeconfig_wins(no_cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(no_cluster / "listed", "https://listed:1")))
    named = kubeconfig(no_cluster / "named", "https://named:2")
    assert find_cluster(OperatorOptions(kubeconfig=named)).server == "https://named:2"
    assert find_cluster(OperatorOptions()).server == "https://listed:1"


def test_without_one_a_pod_uses_its_service_account(no_cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubeconfig(no_cluster / ".kube" / "config", "https://home:3")
    assert find_cluster(OperatorOptions()).server == "https://home:3"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(ConfigError, match=r"/serviceaccount|KUBERNETES_SERVICE_PORT"):
        find_cluster(OperatorOptions())


@pytest.mark.usefixtures("no_cluster")
async def test_a_bad_kubeconfig_ends_the_process_with_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        await run_operator(OperatorOptions(kubeconfig=tmp_path / "missing"))
    assert str(tmp_path / "missing") in str(error.value)
    assert "\n" not in str(error.value)
