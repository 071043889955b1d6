"""Programs that this one starts: found by absolute paths alone, and Python without the current directory.

A directory that a user works in may be another user's, or hold the files of a stranger's project.
"""

import os
import shutil
import sys


def find_program(name: str, path: str | None = None) -> str | None:
    """The program in the absolute directories of PATH, or of `path`. Empty and relative entries, which stand for the
    current directory, are skipped; a name with a slash is none."""
    if "/" in name or not name:
        return None
    entries = (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep)
    directories = [entry for entry in entries if entry.startswith("/")]
    return shutil.which(name, path=os.pathsep.join(directories)) if directories else None


def own_module(name: str, *arguments: str) -> list[str]:
    """The command that runs a module of this program in a process of its own; `-m` alone would import modules from the
    current directory first."""
    return [sys.executable, "-P", "-m", name, *arguments]


def python_environment() -> dict[str, str]:
    """For a Python that is not ours: without the variables that change what it imports."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
