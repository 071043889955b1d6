"""What can be tested of the Dockerfile without a container engine: its steps work in a fresh virtual environment."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.support.commands.helm import ROOT

DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()


def test_the_steps_of_the_dockerfile_install_a_working_operator(tmp_path: Path) -> None:
    source, environment, manager = tmp_path / "src", tmp_path / "environment", tmp_path / "manager"
    source.mkdir()
    for names, target in re.findall(r"^COPY (.+) (/src\S*)$", DOCKERFILE, re.MULTILINE):
        for name in names.split():
            copy_to(ROOT / name, source / target.removeprefix("/src").strip("/"))
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    use_installed_dependencies(environment)
    (step,) = re.findall(r"^RUN (.*?[^\\])\n", DOCKERFILE, re.MULTILINE | re.DOTALL)
    env = {**os.environ, "PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}

    script = step.replace("/src", str(source)).replace("/manager", str(manager))
    subprocess.run(["bash", "-ec", script], env=env, cwd=tmp_path, check=True)

    help_text = subprocess.run([manager, "--help"], env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "Run the operator against a Kubernetes cluster." in help_text.stdout
    assert not source.exists()


def test_the_image_runs_as_a_numeric_user_that_is_not_root() -> None:
    (user,) = re.findall(r"^USER (\d+):\d+$", DOCKERFILE, re.MULTILINE)
    assert int(user) > 0


def test_the_ignore_file_admits_what_is_copied() -> None:
    admitted = re.findall(r"^!(.+)$", (ROOT / "deploy" / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    copied = [name for names in re.findall(r"^COPY (.+) /src\S*$", DOCKERFILE, re.MULTILINE) for name in names.split()]
    assert sorted(admitted) == sorted(copied)


def use_installed_dependencies(environment: Path) -> None:
    """Saves their download: tests/end_to_end/test_installation.py installs them."""
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "of-the-tests.pth").write_text(sysconfig.get_path("purelib"))


def copy_to(path: Path, target: Path) -> None:
    if path.is_dir():
        shutil.copytree(path, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    else:
        shutil.copy(path, target)
