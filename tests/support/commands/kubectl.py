"""kubectl and trainwright as a user calls them, for one running embedded cluster."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.cluster.embedded_cluster import UpCommand

SECONDS = 120


class Commands:
    """Runs real commands; a failure fails the test and shows the output."""

    def __init__(self, up: UpCommand, kubectl: Path) -> None:
        self.up = up
        self._kubectl = kubectl

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        command = [str(self._kubectl), "--context", "trainwright", *arguments]
        return self._run(command, stdin)

    def refused_kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """The error of a command that must fail."""
        command = [str(self._kubectl), "--context", "trainwright", *arguments]
        done = self._finish(command, stdin)
        assert done.returncode != 0, f"{command} succeeded:\n{done.stdout}"
        return done.stderr

    def start_kubectl(self, *arguments: str) -> "subprocess.Popen[str]":
        """For commands that run until they are stopped."""
        command = [str(self._kubectl), "--context", "trainwright", *arguments]
        return subprocess.Popen(command, env=dict(self.up.environment), stdout=subprocess.PIPE, text=True)

    def typed(self, line: str, *, directory: Path) -> str:
        """What a line prints that a user types into a shell, with the cluster's context as the current one."""
        environment = {**self.up.environment, "PATH": f"{self._kubectl.parent}:{self.up.environment['PATH']}"}
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{line} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def trainwright(self, command: str, *arguments: str) -> str:
        data = str(self.up.data.path)
        return self._run([sys.executable, "-m", "trainwright", command, "--data-dir", data, *arguments], None)

    def get(self, *what: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", *what, "-o", "json"))
        return found

    def _finish(self, command: list[str], stdin: str | None) -> "subprocess.CompletedProcess[str]":
        environment = dict(self.up.environment)
        return subprocess.run(
            command, env=environment, input=stdin, capture_output=True, text=True, timeout=SECONDS, check=False
        )

    def _run(self, command: list[str], stdin: str | None) -> str:
        done = self._finish(command, stdin)
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr
