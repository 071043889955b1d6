"""Installed outside the clone, in an environment of its own, the command runs programs with the user's Python."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


# tests/deploy/test_dockerfile.py installs the command too, and docs/how-to/choose-the-python.md runs a user's Python.
@pytest.mark.thorough
@pytest.mark.skipif(importlib.util.find_spec("ensurepip") is None, reason="this Python cannot create environments")
def test_installed_command_runs_a_program_with_the_python_of_the_user(tmp_path: Path) -> None:
    tool, users = tmp_path / "tool", tmp_path / "users-python"
    subprocess.run([sys.executable, "-m", "venv", tool], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", users], check=True)
    pip = [str(tool / "bin" / "pip"), "install", "--quiet", "--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, str(ROOT)], check=True)
    home = tmp_path / "home"
    home.mkdir()
    (home / "where.py").write_text("import sys; print(f'prefix={sys.prefix}')")
    env = {"HOME": str(home), "PATH": f"{users / 'bin'}:{os.environ['PATH']}", "LANG": "C.UTF-8"}
    trainwright = tool / "bin" / "trainwright"
    run = [str(trainwright), "run", "where.py"]
    try:
        done = subprocess.run(run, cwd=home, env=env, capture_output=True, text=True, check=False)
    finally:
        subprocess.run([trainwright, "down"], env=env, check=False, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"prefix={users}\n" in done.stdout
