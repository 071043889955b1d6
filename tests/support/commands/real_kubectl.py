"""kubectl for the real control plane of the tests."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.kubernetes.controlplane import ControlPlane
from trainwright.objects import Object

_SECONDS = 180


class RealKubectl:
    """Runs kubectl with the administrator's kubeconfig, or with another one."""

    def __init__(self, plane: ControlPlane, kubeconfig: Path | None = None) -> None:
        self._command = [str(plane.kubectl), "--kubeconfig", str(kubeconfig or plane.kubeconfig)]

    def run(self, *arguments: str | Path, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        command = [*self._command, *map(str, arguments)]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=_SECONDS, check=False)

    def __call__(self, *arguments: str | Path, stdin: str | None = None) -> str:
        """What the command prints; a failure fails the test."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {arguments} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def refusal(self, *arguments: str | Path, stdin: str | None = None) -> str:
        """The error of a command that must fail."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode != 0, f"kubectl {arguments} succeeded:\n{done.stdout}"
        return done.stderr

    def get(self, *arguments: str) -> Any:
        return json.loads(self("get", *arguments, "-o", "json"))

    def items(self, *arguments: str) -> list[Object]:
        found: list[Object] = self.get(*arguments)["items"]
        return found
