"""Runs the console blocks of a Markdown page as a reader would, in one shell, and compares what they print.

A block is fenced as ```console; lines that begin with `$ ` are commands, the lines below are their output, in which
`...` matches anything. A block that a test cannot run has a reason in its fence: ```console (not run: REASON). A block
that needs a real cluster is marked as ```console (on a cluster).
"""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```console(?P<note>[^\n]*)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
_MARK = "@@command-ended@@"


@dataclass(frozen=True)
class Step:
    """One command of a page with the output that the page shows."""

    command: str
    expected: str


def read_steps(page: Path, *, on_a_cluster: bool = False) -> list[Step]:
    """The commands of the page for the machine itself, or those for a real cluster."""
    steps = []
    for block in _BLOCK.finditer(page.read_text()):
        if "not run:" not in block["note"] and ("on a cluster" in block["note"]) == on_a_cluster:
            steps += _steps_of(block["body"])
    return steps


def run_steps(steps: list[Step], *, directory: Path, env: dict[str, str], timeout: float) -> list[tuple[int, str]]:
    """The exit code and output of each command; they share one shell, so `cd` and `export` last."""
    script = "\n".join(f"{{ {step.command}\n}} </dev/null 2>&1\nprintf '\\n{_MARK}%s\\n' $?" for step in steps)
    result = subprocess.run(
        ["bash", "-c", script], cwd=directory, env=env, capture_output=True, text=True, timeout=timeout, check=False
    )
    parts = re.split(rf"\n{_MARK}(\d+)\n", result.stdout)
    return [(int(code), output) for output, code in zip(parts[0::2], parts[1::2], strict=False)]


def shows(expected: str, actual: str) -> bool:
    """Whether the output is what the page shows, white space aside."""
    pieces = [re.escape(" ".join(piece.split())) for piece in expected.split("...")]
    pattern = r"\s*.*\s*".join(pieces) if len(pieces) > 1 else pieces[0]
    return re.fullmatch(rf"\s*{pattern}\s*", " ".join(actual.split()), re.DOTALL) is not None


def _steps_of(body: str) -> list[Step]:
    steps: list[Step] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            steps.append(Step(line[2:], ""))
        elif steps and line.startswith("> "):
            steps[-1] = Step(f"{steps[-1].command}\n{line[2:]}", steps[-1].expected)
        elif steps:
            steps[-1] = Step(steps[-1].command, f"{steps[-1].expected}{line}\n")
    return steps
