"""Programs that the command line starts: none of the current directory, none that a tenant names."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import trainwright
from trainwright.cli.commands.doctor import check_python
from trainwright.cli.commands.jobs import stack
from trainwright.cli.pods_python import install_command, python_on_path
from trainwright.cluster.datadir import DataDir
from trainwright.cluster.images.build.host_python import describe_python
from trainwright.kube.client import exec_plugin
from trainwright.kube.client.kubeconfig import ConfigError, ExecPlugin
from trainwright.programs import find_program, own_module, python_environment

SOURCE = Path(trainwright.__file__).parent
SHADOWED = ("random", "zipfile", "csv", "email", "sysconfig", "json", "pathlib", "trainwright")


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory: its modules and programs write a file."""
    directory = tmp_path / "project"
    directory.mkdir()
    mark = tmp_path / "executed"
    for name in SHADOWED:
        (directory / f"{name}.py").write_text(f"open({str(mark)!r}, 'w')\n")
    for name in ("python3", "git", "kubectl", "py-spy", "login", "docker-credential-x"):
        (directory / name).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (directory / name).chmod(0o755)
    monkeypatch.chdir(directory)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    return mark


def test_doctor_imports_nothing_of_the_current_directory(planted: Path, tmp_path: Path) -> None:
    (found,) = check_python(DataDir(tmp_path / "data"))
    assert found.level != "FAIL", found.text
    assert not planted.exists()


def test_an_image_build_imports_nothing_of_the_current_directory(planted: Path) -> None:
    assert describe_python(Path(sys.executable)).version
    assert not planted.exists()


def test_our_own_processes_import_nothing_of_the_current_directory(planted: Path) -> None:
    printed = subprocess.run(own_module("trainwright", "version"), capture_output=True, text=True, check=True).stdout
    assert printed.startswith("trainwright ")
    assert not planted.exists()


@pytest.mark.parametrize("path", ["", ".", ":", "::.:bin", "project:."])
def test_the_current_directory_is_no_directory_of_programs(
    planted: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    assert find_program("git", path) is None
    assert python_on_path({"PATH": path}) is None
    monkeypatch.setenv("PATH", path)
    assert find_program("kubectl") is None
    with pytest.raises(ConfigError, match="cannot run login"):
        exec_plugin.run(ExecPlugin(where="user", command="login", api_version="v1", interactive_mode="Never"))
    assert not planted.exists()


@pytest.mark.parametrize("name", ["", "../git", "/bin/sh", "./git"])
def test_a_path_is_no_name_of_a_program(name: str) -> None:
    assert find_program(name) is None


def test_a_program_of_an_absolute_directory_is_found(planted: Path) -> None:
    assert find_program("git", f".:{Path.cwd()}") == str(Path.cwd() / "git")


def test_python_variables_of_the_caller_do_not_reach_other_pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("PYTHONSTARTUP", "/somewhere")
    assert not [name for name in python_environment() if name.startswith("PYTHON")]


def test_a_suggested_command_is_one_word_per_word() -> None:
    assert install_command("/opt/x; rm -rf ~/bin/python").startswith("'/opt/x; rm -rf ~/bin/python' -m pip install")


def test_py_spy_is_not_looked_for_where_a_pod_says(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a process and the annotations are a tenant's words; py-spy is started as the user."""
    names = {node.id for node in ast.walk(ast.parse(Path(stack.__file__).read_text())) if isinstance(node, ast.Name)}
    assert "PYTHON" not in names
    monkeypatch.setenv("PATH", "")
    assert stack.find_py_spy("python", "./python", "../project/python") in {
        None,
        find_program("py-spy", str(Path(sys.executable).parent)),
    }


# The source

_STARTS = re.compile(
    r"(?:subprocess\.(?:run|Popen|check_output|check_call|call)|create_subprocess_\w+|posix_spawnp?|execv\w*)\("
)
_BARE_PYTHON = re.compile(r"""sys\.executable,\s*["']-[mc]["']""")


def sources() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_every_python_is_started_by_the_module_for_it() -> None:
    bare = [path for path in sources() if path.name != "programs.py" and _BARE_PYTHON.search(path.read_text())]
    assert not bare, "use trainwright.programs.own_module: -m and -c import modules of the current directory"


def test_programs_are_found_without_the_current_directory() -> None:
    """shutil.which with a fixed path is fine; without one it looks into every entry of PATH."""
    bare = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"shutil.which", "which"}:
                given = {keyword.arg for keyword in node.keywords}
                if "path" not in given:
                    bare.append(f"{path}:{node.lineno}")
    assert not bare, "use trainwright.programs.find_program"


def test_no_shell_is_started() -> None:
    """A pod's own shell runs in the pod; on this machine words are arguments."""
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                assert name not in {"os.system", "os.popen", "asyncio.create_subprocess_shell"}, path
                assert not any(keyword.arg == "shell" for keyword in node.keywords), f"{path}:{node.lineno}"


def test_programs_are_no_relative_words() -> None:
    """The first word of a command that is written out is an absolute path or a variable."""
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _STARTS.match(f"{ast.unparse(node.func)}("):
                first = node.args[0] if node.args else None
                word = first.elts[0] if isinstance(first, ast.List | ast.Tuple) and first.elts else first
                if isinstance(word, ast.Constant):
                    assert str(word.value).startswith("/"), f"{path}:{node.lineno}"
