"""The real Helm installs, upgrades and removes a chart on the embedded cluster."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.cluster.embedded_cluster import UpCommand
from tests.support.commands.helm import helm_binary
from tests.support.commands.kubectl import Commands

CHART = Path(__file__).parent / "chart"


@pytest.mark.apiserver
def test_a_chart_is_installed_upgraded_and_removed(up: UpCommand, commands: Commands) -> None:
    def helm(*words: str) -> str:
        environment = {**os.environ, "KUBECONFIG": str(up.kubeconfig)}
        command = [str(helm_binary()), *words, "--timeout", "60s"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=90).stdout

    assert "STATUS: deployed" in helm("install", "web", str(CHART), "--wait")
    commands.kubectl("wait", "--for=condition=complete", "job/web-check", "--timeout=60s")
    assert "hello world" in commands.kubectl("logs", "job/web-check")
    assert commands.kubectl("rollout", "status", "deployment/web").endswith("successfully rolled out\n")
    assert "REVISION: 2" in helm("upgrade", "web", str(CHART), "--wait", "--set", "who=you")
    helm("uninstall", "web", "--wait")
    assert "web" not in commands.kubectl("get", "deployments,services,configmaps,jobs,secrets", "-o", "name")
