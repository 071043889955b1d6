"""The Python of pods on the embedded cluster, as the caller's environment determines it."""

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwright.programs import find_program

BY_FLAG = "--python"
"""The origin of a Python that the user named."""
ACTIVE = "the active environment"
ON_PATH = "python3 on PATH"


@dataclass(frozen=True, slots=True)
class PodsPython:
    path: Path
    origin: str
    """Why it is used."""


def default_python(flag: Path | None, environment: Mapping[str, str] = os.environ) -> PodsPython:
    """The Python of pods whose job names none: that of `up --python`, else the caller's, else the one that runs
    trainwright, which an installation by pipx has for itself."""
    if flag:
        return PodsPython(flag, BY_FLAG)
    if active := active_python(environment):
        return PodsPython(active, ACTIVE)
    if found := python_on_path(environment):
        return PodsPython(found, ON_PATH)
    return PodsPython(Path(sys.executable), "the one that runs trainwright: PATH has no python3")


def callers_python(*, default_named: bool, environment: Mapping[str, str] = os.environ) -> PodsPython | None:
    """The Python that `run` gives to jobs; None leaves them the cluster's default. `default_named`: a user chose that
    with `up --python`, so only an active environment comes before it."""
    found = default_python(None, environment)
    if found.origin == ACTIVE or (found.origin == ON_PATH and not default_named):
        return found
    return None


def active_python(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The Python of the active virtual or conda environment."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = environment.get(variable)
        # The symlink is not resolved: its target is the Python without the packages of the environment.
        if prefix and os.access(python := Path(prefix).absolute() / "bin" / "python", os.X_OK):
            return python
    return None


def python_on_path(environment: Mapping[str, str] = os.environ) -> Path | None:
    found = find_program("python3", environment.get("PATH", os.defpath))
    return Path(found) if found else None


def install_command(python: str, environment: Mapping[str, str] = os.environ) -> str:
    """The command that installs packages for this Python, to be followed by their names; empty without a Python.

    Virtual environments that uv has made have no pip. The Python of a distribution such as Debian refuses pip: an
    environment is made from it and activated, so that `run` uses it.
    """
    if not python:
        return ""
    prefix = Path(python).parent.parent
    in_environment = (prefix / "pyvenv.cfg").exists()
    is_managed = not in_environment and _is_externally_managed(python)
    python = shlex.quote(python)  # an annotation may name it, and users copy the command
    if is_managed:
        return f"{python} -m venv .venv && . .venv/bin/activate && pip install"
    if not in_environment or any(prefix.glob("lib/python3*/site-packages/pip")):
        return f"{python} -m pip install"
    if uv := _uv(environment):
        return f"{uv} pip install --python {python}"
    return f"{python} -m ensurepip && {python} -m pip install"


def _is_externally_managed(python: str) -> bool:
    """True if its standard library has the mark at which pip refuses to install packages."""
    program = Path(python).resolve()
    return any(program.parent.parent.glob(f"lib/{program.name}*/EXTERNALLY-MANAGED"))


def _uv(environment: Mapping[str, str]) -> str | None:
    """`uv` from PATH, or the one that `make` has installed for this user."""
    if find_program("uv", environment.get("PATH", os.defpath)):
        return "uv"
    cached = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache", "trainwright", "uv", "bin", "uv")
    return str(cached) if os.access(cached, os.X_OK) else None
