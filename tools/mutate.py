"""Mutation test of the policies: breaks every line of them a little and sees whether a test notices.

`make mutate` prints the mutants that survive and that tests/engine/survivors.yaml does not judge; there must be none.
mutmut works on a copy of the tree, in an environment of its own: it does not know pytest 9 yet.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainwright"
JUDGED = ROOT / "tests" / "engine" / "survivors.yaml"
PACKAGES = ["mutmut==3.8.0", "pytest>=8.4,<9", "pytest-asyncio", "pytest-timeout", "hypothesis", "looptime"]
KILLED = 1

CONFIGURATION = """
[tool.mutmut]
paths_to_mutate = {paths}
tests_dir = ["tests/engine"]
also_copy = ["src", "tests", "pyproject.toml"]

[tool.pytest.ini_options]
pythonpath = ["."]
asyncio_mode = "auto"
asyncio_default_fixture_loop_scope = "function"
addopts = "--import-mode=importlib -p no:cacheprovider"
markers = ["apiserver: not here", "torch: not here"]
"""

Mutant = tuple[str, str, str]
"""The function, the line as it was, the line as it became."""


def main() -> None:
    modules = sys.argv[1:] or [path.stem for path in sorted((ROOT / "src/trainwright/engine").glob("*.py"))]
    copy = CACHE / "mutation" / "tree"
    environment = _environment()
    _copy_tree(copy, [f"src/trainwright/engine/{name}.py" for name in modules if name != "__init__"])
    command = [environment / "bin" / "mutmut", "run", "--max-children", str(os.cpu_count() or 1)]
    path = f"{environment / 'bin'}:{os.environ['PATH']}"
    log = copy / "mutmut.log"
    with log.open("wb") as output:
        done = subprocess.run(
            command, cwd=copy, stdout=output, stderr=subprocess.STDOUT, check=False, env={**os.environ, "PATH": path}
        )
    outcomes = _outcomes(copy)
    if not outcomes:
        sys.exit(f"mutmut ended with {done.returncode} and tried nothing; {log} says why")
    _report(outcomes, {name: _mutant(copy, environment, name) for name in outcomes if outcomes[name] != KILLED})


def _environment() -> Path:
    """Made once, by the uv that tools/setup has left."""
    environment = CACHE / "mutation" / "environment"
    if not (environment / "complete").exists():
        uv = shutil.which("uv") or str(CACHE / "uv" / "bin" / "uv")
        print(f"Installing mutmut into {environment}", flush=True)
        settings = {"UV_SYSTEM_CERTS": "1", **os.environ}
        python = environment / "bin" / "python"
        for command in (
            [uv, "venv", "--quiet", "--clear", "--python", sys.executable, environment],
            [uv, "pip", "install", "--quiet", "--python", python, *PACKAGES, "--requirements", "pyproject.toml"],
        ):
            subprocess.run(command, cwd=ROOT, env=settings, check=True)
        (environment / "complete").touch()
    return environment


def _copy_tree(copy: Path, modules: list[str]) -> None:
    shutil.rmtree(copy, ignore_errors=True)
    unwanted = shutil.ignore_patterns("__pycache__")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=unwanted)
    (copy / "pyproject.toml").write_text(CONFIGURATION.format(paths=json.dumps(modules)))


def _outcomes(copy: Path) -> dict[str, int]:
    """By mutant: how the tests ended; a mutant that was not run, or ended in some odd way, counts as it is."""
    outcomes: dict[str, int] = {}
    for meta in sorted((copy / "mutants").rglob("*.meta")):
        outcomes |= json.loads(meta.read_text())["exit_code_by_key"]
    return outcomes


def _mutant(copy: Path, environment: Path, name: str) -> Mutant:
    shown = subprocess.run(
        [environment / "bin" / "mutmut", "show", name], cwd=copy, capture_output=True, text=True, check=True
    ).stdout
    changes = [line for line in shown.splitlines() if line[:1] in "+-" and line[:3] not in {"+++", "---"}]
    was = " ".join(line[1:].strip() for line in changes if line[0] == "-")
    becomes = " ".join(line[1:].strip() for line in changes if line[0] == "+")
    module, _, function = name.removeprefix("trainwright.engine.").rpartition(".")
    return f"{module}.{function.partition('__mutmut')[0].removeprefix('x_')}", was, becomes


def _report(outcomes: dict[str, int], left: dict[str, Mutant]) -> None:
    judged = {
        (one["function"], one["was"], one["becomes"]): one["verdict"]
        for one in yaml.safe_load(JUDGED.read_text() if JUDGED.exists() else "") or []
    }
    counts = Counter(outcomes.values())
    print(f"{len(outcomes)} mutants, {counts[KILLED]} noticed by a test, {len(left)} not:", dict(counts))
    unjudged = {name: mutant for name, mutant in left.items() if mutant not in judged}
    for name, (function, was, becomes) in unjudged.items():
        print(f"\n{function} ({outcomes[name]})\n  - {was}\n  + {becomes}")
    print(f"\n{len(left) - len(unjudged)} survivors are judged in {JUDGED.relative_to(ROOT)}, {len(unjudged)} are not")
    sys.exit(bool(unjudged))


if __name__ == "__main__":
    main()
