"""An earlier revision of this repository with an environment of its own, so that its operator can be measured too."""

import os
import platform
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[2]


def commit_of(revision: str) -> str:
    """The full hash of a branch, a tag or an abbreviated hash."""
    found = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", check=False).decode().strip()
    if not found:
        sys.exit(f"{revision!r} names no commit of this repository: give a branch, a tag or a hash")
    return found


def trainwright_at(commit: str) -> list[str]:
    """The command `trainwright` of that commit. Files and environment are made once and kept in the per-user cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainwright"
    tree = cache / "revisions" / f"{commit}-python{platform.python_version()}"
    if not (tree / "complete").exists():
        print(f"Setting up {commit[:12]} in {tree}", flush=True)
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir(parents=True)
        with tarfile.open(fileobj=BytesIO(_git("archive", "--format=tar", commit))) as archive:
            archive.extractall(tree, filter="data")
        # The same interpreter for both, or the comparison would be one of interpreters.
        subprocess.run([tree / "tools" / "setup"], env={**os.environ, "PYTHON": sys.executable}, check=True)
        (tree / "complete").touch()
    return [str(tree / ".venv" / "bin" / "python"), "-m", "trainwright"]


def _git(*arguments: str, check: bool = True) -> bytes:
    return subprocess.run(["git", "-C", ROOT, *arguments], stdout=subprocess.PIPE, check=check).stdout
