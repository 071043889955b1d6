"""kubectl prints the same for the embedded server and the real one.

Each file in `scripts/` is a list of shell lines with the files that they use. What differs between any two servers is
masked: times, ids, addresses.
"""

import asyncio
import difflib
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cluster.embedded_apiserver import running_embedded
from tests.support.cluster.embedded_cluster import embedded_cluster
from tests.support.cluster.raw_api import raw_api
from tests.support.kubernetes.controlplane import ControlPlane
from trainwright.kube.client.kubeconfig import ClusterConfig, merge_into_kubeconfig

pytestmark = pytest.mark.apiserver

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True)
class Script:
    files: dict[str, str]
    commands: list[str]
    controllers: bool
    """Whether Deployments, Jobs and quotas are acted on."""


def script(name: str) -> Script:
    content = yaml.safe_load((SCRIPTS / f"{name}.yaml").read_text())
    return Script(content.get("files") or {}, content["commands"], content.get("controllers", False))


class Shell:
    """Runs shell lines in a directory of its own, where kubectl knows one server and one namespace."""

    def __init__(self, directory: Path, kubectl: Path, config: ClusterConfig, namespace: str) -> None:
        self._directory = directory
        self._namespace = namespace
        (directory / "bin").mkdir(parents=True)
        (directory / "bin" / "kubectl").symlink_to(kubectl)
        kubeconfig = directory / "kubeconfig"
        ca_data, token = config.ca_data or b"", config.token or ""
        merge_into_kubeconfig(kubeconfig, name="cluster", server=config.server, ca_data=ca_data, token=token)
        settings: Any = yaml.safe_load(kubeconfig.read_text())
        settings["contexts"][0]["context"]["namespace"] = namespace
        kubeconfig.write_text(yaml.safe_dump(settings))
        self._environment = {
            "HOME": str(directory),
            "KUBECONFIG": str(kubeconfig),
            "PATH": f"{directory / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TMPDIR": str(directory),
        }

    async def run(self, script: Script) -> list[str]:
        """Each command with its output and its exit code."""
        for name, text in script.files.items():
            (self._directory / name).write_text(text)
        return [f"$ {command}\n{await self._output(command)}" for command in script.commands]

    async def _output(self, command: str) -> str:
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            command,
            cwd=self._directory,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        code = f"exit code {process.returncode}\n" if process.returncode else ""
        return masked(output.decode(), self._namespace) + code


_MASKS = [
    (r"https?://127\.0\.0\.1:\d+", "SERVER"),
    (r"\b(10\.96|127\.[1-9]\d*)\.\d+\.\d+\b", "ADDRESS"),
    (r"\b3[0-2]\d{3}\b", "30000"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UID"),
    (r'(resourceVersion"?: )"?\d+"?', r"\1X"),
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
    (r"\b\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
    (r"/\S*/(LIVE|MERGED)-\d+", r"\1"),
    (r"(?<=pod-template-hash=)\w+", "HASH"),
    (r"(?<=-)[bcdfghjklmnpqrstvwxz2456789]{8,10}\b", "HASH"),
    (r"(?<=-)[bcdfghjklmnpqrstvwxz2456789]{5}\b", "SUFFIX"),
    (r"Resource Version: +\d+", "Resource Version: X"),
    (r"(?<![\w=-])\d+m?s\b|<invalid>", "AGE"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \+0000", "TIME"),
    (r"\b[WE]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ", "LOGGED "),
    (r" {2,}", "  "),  # columns are as wide as their values
]


def masked(text: str, namespace: str) -> str:
    text = text.replace(namespace, "NAMESPACE")
    for pattern, name in _MASKS:
        text = re.sub(pattern, name, text)
    return text


@asynccontextmanager
async def embedded_server(directory: Path, namespace: str, *, controllers: bool) -> AsyncIterator[ClusterConfig]:
    """With the same namespace as the real one."""
    server = embedded_cluster(directory, with_node=False) if controllers else running_embedded(admits_accounts=True)
    async with server as embedded, raw_api(embedded.config, namespace) as api:
        await api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        await api.post(api.path("serviceaccounts"), {"metadata": {"name": "default"}})
        yield embedded.config


# tests/cluster/controllers/workloads/test_kubectl.py compares some commands of `workloads` and `sets` too.
@pytest.mark.thorough("applying", "cluster", "objects", "sets", "workloads")
@pytest.mark.parametrize("name", sorted(path.stem for path in SCRIPTS.iterdir()))
async def test_every_command_prints_the_same(
    name: str, control_plane: ControlPlane, real_namespace: str, kubectl_binary: Path, tmp_path: Path
) -> None:
    commands = script(name)
    async with embedded_server(tmp_path / "data", real_namespace, controllers=commands.controllers) as config:
        ours, real = await asyncio.gather(
            Shell(tmp_path / "embedded", kubectl_binary, config, real_namespace).run(commands),
            Shell(tmp_path / "real", kubectl_binary, control_plane.config, real_namespace).run(commands),
        )
    assert ours == real, differences(real, ours)


def differences(real: list[str], ours: list[str]) -> str:
    """For each command that differs, what the real server (-) and the embedded one (+) print."""
    pairs = ((one.splitlines(), other.splitlines()) for one, other in zip(real, ours, strict=True) if one != other)
    return "\n".join("\n".join(difflib.ndiff(one, other)) + "\n" for one, other in pairs)
