"""The `trainwright` command as a child process."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def all(self) -> str:
        """For messages of failed assertions."""
        return f"exit code {self.code}\n{self.out}\n{self.err}"


def trainwright(
    *arguments: str,
    environment: Mapping[str, str],
    stdin: str | None = None,
    seconds: float = 180,
    directory: Path | None = None,
) -> Result:
    """Runs the command to its end, in `directory`. Without `stdin` the command cannot ask the user."""
    result = subprocess.run(
        command_line(*arguments),
        env=dict(environment),
        cwd=directory,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    return Result(result.returncode, result.stdout, result.stderr)


def command_line(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "trainwright", *arguments]
