"""Mutation test of the engine: changes its code in small ways, and reports the changes that fail no test.

`make mutate` prints the mutants that survive and that tests/engine/survivors.yaml does not list; there must be none.
`make mutate ARGS="limits rendering.pods"` tests only the named modules, `make mutate BASE=REV` those that differ from
a revision. mutmut works on a copy of the tree, in an environment of its own, because it does not support pytest 9 yet.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).parents[1]
ENGINE = Path("src/trainwright/engine")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainwright"
KNOWN = Path("tests/engine/survivors.yaml")
JOBS = os.environ.get("JOBS") or str(os.cpu_count() or 1)

# The packages of the engine's tests, without plugins that shuffle or measure them.
PACKAGES = ("mutmut==3.8.0", "pytest>=8.4,<9", "pytest-asyncio>=1.2", "pytest-timeout>=2.4", "hypothesis>=6.150")

SURVIVED = {0, 33}
"""mutmut's codes for tests that passed, or for no tests at all. With any other code a test has failed or crashed."""
TIMED_OUT = {24, -24, 36, 152, 255}

CONFIGURATION = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = {modules}
also_copy = ["tests"]
pytest_add_cli_args = ["--ignore=tests/engine/test_survivors.py"]
pytest_add_cli_args_test_selection = ["tests/engine"]
timeout_constant = 30.0  # seconds, added to the time of the tests: a busy machine must not count as a failure
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
    parser = argparse.ArgumentParser(description="Mutation test of the engine.")
    parser.add_argument("module", nargs="*", help="such as limits or policies.limits (default: all)")
    parser.add_argument("--changed-since", metavar="REV", help="only modules that differ from this revision")
    options = parser.parse_args()
    modules = _named(options.module)
    if options.changed_since:
        modules = [module for module in modules if module in _changed_since(options.changed_since)]
    if not modules:
        sys.exit(f"no module of the engine differs from {options.changed_since}")
    environment = _environment()
    copy = CACHE / "mutation" / f"tree-{os.getpid()}"
    _copy_tree(copy, modules)
    started = time.monotonic()
    outcomes = _run(copy, environment)
    survivors = [_mutant(copy, environment, name) for name, code in outcomes.items() if code in SURVIVED]
    shutil.rmtree(copy)
    minutes = (time.monotonic() - started) / 60
    timeouts = sum(code in TIMED_OUT for code in outcomes.values())
    killed = f"{len(outcomes) - len(survivors)} killed by a test ({timeouts} by a timeout)"
    print(f"{len(outcomes)} mutants, {killed}, in {minutes:.1f} minutes")
    _report(survivors)


def _named(names: list[str]) -> list[str]:
    """The paths of the named modules, such as `limits` or `policies.limits`; of all modules if none is named."""
    qualified = {
        ".".join(path.relative_to(ROOT / ENGINE).with_suffix("").parts): str(path.relative_to(ROOT))
        for path in sorted((ROOT / ENGINE).rglob("*.py"))
        if path.stem != "__init__"
    }
    paths = []
    for name in names or qualified:
        found = [module for module in qualified if module == name] or [
            module for module in qualified if module.rpartition(".")[2] == name
        ]
        if not found:
            sys.exit(f"{name} is no module of the engine: choose from {', '.join(qualified)}")
        if len(found) > 1:
            sys.exit(f"{name} is ambiguous: choose from {', '.join(found)}")
        paths.append(qualified[found[0]])
    return paths


def _changed_since(revision: str) -> set[str]:
    """The files of the engine that are new or changed since the revision. A file that was only moved is not."""
    command = ["git", "diff", "--name-status", "--find-renames", "--diff-filter=d", revision, "--", str(ENGINE)]
    listed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    return {line.rpartition("\t")[2] for line in listed.splitlines() if not line.startswith("R100")}


def _environment() -> Path:
    """Created once, with the uv of tools/setup."""
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
    """The exit code of the tests by mutant."""
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
            with suppress(json.JSONDecodeError):  # mutmut is writing the file
                codes = _outcomes(copy).values()
                print(f"{sum(code is not None for code in codes)} of {len(codes)} mutants tested", flush=True)
    outcomes = _outcomes(copy)
    if not outcomes or None in outcomes.values():
        sys.exit(f"mutmut ended with {process.returncode} before all mutants were tested; see {log}")
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
    """`trainwright.engine.plan.xǁPlanǁempty__mutmut_3` -> plan.Plan.empty and the lines that mutmut changed."""
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
    """Fails if a survivor is not in the list of known ones."""
    known = {Mutant(one["function"], one["was"], one["becomes"]) for one in yaml.safe_load((ROOT / KNOWN).read_text())}
    unknown = [mutant for mutant in survivors if mutant not in known]
    for function, was, becomes in unknown:
        print(f"\n{function}\n  - {was}\n  + {becomes}")
    print(f"{len(survivors) - len(unknown)} survivors are listed in {KNOWN}, {len(unknown)} are not")
    sys.exit(bool(unknown))


if __name__ == "__main__":
    main()
