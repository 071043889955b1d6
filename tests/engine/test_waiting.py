"""The script in which workers wait, run by a real shell."""

import subprocess
from pathlib import Path

import pytest

from tests.support.jobs import JobBuilder
from tests.support.planning import child, decide
from trainwright.engine import InitContainer, Settings


def script(tries: int) -> str:
    settings = Settings(init_container=InitContainer(max_tries=tries, pause_seconds=0))
    pod = child(decide(JobBuilder().master().workers(1), settings=settings), "digits-worker-0")
    command: str = pod["spec"]["initContainers"][0]["command"][2]
    return command


def run(tmp_path: Path, tools: dict[str, str], tries: int) -> subprocess.CompletedProcess[str]:
    """Runs the script where only these tools exist."""
    for name, body in {"sleep": "exit 0", **tools}.items():
        tool = tmp_path / name
        tool.write_text(f"#!/bin/sh\n{body}\n")
        tool.chmod(0o755)
    return subprocess.run(
        ["/bin/sh", "-c", script(tries)], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("tool", ["nslookup", "getent"])
def test_one_of_the_two_tools_is_enough(tmp_path: Path, tool: str) -> None:
    done = run(tmp_path, {tool: 'echo "$@"'}, tries=3)
    assert done.returncode == 0
    assert "digits-master-0" in done.stdout
    assert "waiting for master" not in done.stdout


def test_it_waits_as_often_as_it_is_told_and_then_fails(tmp_path: Path) -> None:
    done = run(tmp_path, {"getent": "exit 2"}, tries=3)
    assert done.returncode == 1
    assert done.stdout.splitlines() == ["waiting for master"] * 3


def test_it_goes_on_when_the_name_appears(tmp_path: Path) -> None:
    found = f'if [ -e "{tmp_path}/there" ]; then exit 0; fi; : > "{tmp_path}/there"; exit 2'
    done = run(tmp_path, {"getent": found}, tries=5)
    assert done.returncode == 0
    assert done.stdout.splitlines() == ["waiting for master"]
