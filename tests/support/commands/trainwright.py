"""The `trainwright` command as users call it: a child process, and what it answered."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def all(self) -> str:
        """For messages of failed assertions."""
        return f"exit code {self.code}\n{self.out}\n{self.err}"


def trainwright(
    *arguments: str, environment: Mapping[str, str], stdin: str | None = None, seconds: float = 60
) -> Answer:
    """Calls the command to its end; without `stdin` there is nobody to ask."""
    result = subprocess.run(
        command_line(*arguments),
        env=dict(environment),
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    return Answer(result.returncode, result.stdout, result.stderr)


def command_line(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "trainwright", *arguments]
