"""Mutation test of the policies: breaks every line of them a little and sees whether a test notices.

`make mutate` prints the mutants that survive and that tests/engine/survivors.yaml does not judge; there must be none.
mutmut works on a copy of the tree, in an environment of its own: it does not know pytest 9 yet.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).parents[1]
ENGINE = Path("src/trainwright/engine")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainwright"
JUDGED = Path("tests/engine/survivors.yaml")
JOBS = os.environ.get("JOBS") or str(os.cpu_count() or 1)

# What the tests of the engine need, without the plugins that shuffle or measure them.
PACKAGES = ("mutmut==3.8.0", "pytest>=8.4,<9", "pytest-asyncio>=1.2", "pytest-timeout>=2.4", "hypothesis>=6.150")

SURVIVED = {0, 33}
"""How mutmut says that the tests passed, or that there is none. Any other end is a failure or a crash: noticed."""
TIMED_OUT = {24, -24, 36, 152, 255}

CONFIGURATION = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = {modules}
also_copy = ["tests"]
pytest_add_cli_args = ["--ignore=tests/engine/test_survivors.py"]
pytest_add_cli_args_test_selection = ["tests/engine"]
timeout_constant = 30.0  # seconds, added to what the tests took: a busy machine is no reason to call a mutant noticed
timeout_multiplier = 2.0

[tool.pytest.ini_options]
pythonpath = ["."]
asyncio_mode = "auto"
asyncio_default_fixture_loop_scope = "function"
addopts = "--import-mode=importlib -p no:cacheprovider"
"""


class Mutant(NamedTuple):
    function: str
    was: str
    becomes: str


def main() -> None:
    modules = _modules(sys.argv[1:])
    environment = _environment()
    copy = CACHE / "mutation" / f"tree-{os.getpid()}"
    _copy_tree(copy, modules)
    started = time.monotonic()
    outcomes = _run(copy, environment)
    survivors = [_mutant(copy, environment, name) for name, code in outcomes.items() if code in SURVIVED]
    shutil.rmtree(copy)
    minutes = (time.monotonic() - started) / 60
    endless = sum(code in TIMED_OUT for code in outcomes.values())
    noticed = f"{len(outcomes) - len(survivors)} noticed by a test ({endless} because it did not end)"
    print(f"{len(outcomes)} mutants, {noticed}, in {minutes:.1f} minutes")
    _report(survivors)


def _modules(names: list[str]) -> list[str]:
    """`limits` -> its path; all of the engine unless some are named."""
    found = {path.stem: path for path in sorted((ROOT / ENGINE).rglob("*.py")) if path.stem != "__init__"}
    if unknown := [name for name in names if name not in found]:
        sys.exit(f"{unknown[0]} is no module of the engine; there are {', '.join(found)}")
    return [str(found[name].relative_to(ROOT)) for name in names or found]


def _environment() -> Path:
    """Made once, by the uv that tools/setup has left."""
    environment = CACHE / "mutation" / "environment"
    contents = environment / "contents"
    if not contents.exists() or contents.read_text() != str(PACKAGES):
        uv = shutil.which("uv") or str(CACHE / "uv" / "bin" / "uv")
        print(f"Installing mutmut into {environment}", flush=True)
        settings = {"UV_SYSTEM_CERTS": "1", **os.environ}
        python = str(environment / "bin" / "python")
        for command in (
            [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(environment)],
            [uv, "pip", "install", "--quiet", "--python", python, *PACKAGES, "--requirements", "pyproject.toml"],
        ):
            subprocess.run(command, cwd=ROOT, env=settings, check=True)
        contents.write_text(str(PACKAGES))
    return environment


def _copy_tree(copy: Path, modules: list[str]) -> None:
    unwanted = shutil.ignore_patterns("__pycache__")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=unwanted)
    (copy / "pyproject.toml").write_text(CONFIGURATION.format(modules=json.dumps(modules)))


def _run(copy: Path, environment: Path) -> dict[str, int]:
    """By mutant, how the tests ended."""
    command = [str(environment / "bin" / "mutmut"), "run", "--max-children", JOBS]
    path = f"{environment / 'bin'}:{os.environ['PATH']}"
    log = copy / "mutmut.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=copy, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, "PATH": path}
        )
    with process:
        while process.poll() is None:
            _wait_a_minute(process)
            outcomes = _outcomes(copy)
            done = sum(code is not None for code in outcomes.values())
            print(f"{done} of {len(outcomes)} mutants tried", flush=True)
    if not outcomes or None in outcomes.values():
        sys.exit(f"mutmut ended with {process.returncode} before all mutants were tried; {log} says why")
    return {name: code for name, code in outcomes.items() if code is not None}


def _wait_a_minute(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        return


def _outcomes(copy: Path) -> dict[str, int | None]:
    outcomes: dict[str, int | None] = {}
    for meta in sorted((copy / "mutants").rglob("*.meta")):
        outcomes |= json.loads(meta.read_text())["exit_code_by_key"]
    return outcomes


def _mutant(copy: Path, environment: Path, name: str) -> Mutant:
    """`trainwright.engine.draft.xǁDraftǁwake__mutmut_3` -> draft.Draft.wake and the lines that mutmut changed."""
    shown = subprocess.run(
        [environment / "bin" / "mutmut", "show", name], cwd=copy, capture_output=True, text=True, check=True
    ).stdout
    changes = [line for line in shown.splitlines() if line[:1] in {"+", "-"} and line[:3] not in {"+++", "---"}]
    module, _, mangled = name.removeprefix("trainwright.engine.").rpartition(".")
    function = mangled.partition("__mutmut")[0].removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
    return Mutant(f"{module}.{function}", _joined(changes, "-"), _joined(changes, "+"))


def _joined(changes: Iterable[str], sign: str) -> str:
    return " ".join(line[1:].strip() for line in changes if line[0] == sign)


def _report(survivors: list[Mutant]) -> None:
    """Fails if anything survives that nobody has judged."""
    judged = {
        Mutant(one["function"], one["was"], one["becomes"]) for one in yaml.safe_load((ROOT / JUDGED).read_text())
    }
    unjudged = [mutant for mutant in survivors if mutant not in judged]
    for function, was, becomes in unjudged:
        print(f"\n{function}\n  - {was}\n  + {becomes}")
    print(f"{len(survivors) - len(unjudged)} survivors are judged in {JUDGED}, {len(unjudged)} are not")
    sys.exit(bool(unjudged))


if __name__ == "__main__":
    main()
