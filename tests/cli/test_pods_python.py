"""Which Python the pods of the embedded cluster use, by the caller's environment."""

import sys
from pathlib import Path

import pytest

from trainwright.cli.pods_python import (
    BY_FLAG,
    PodsPython,
    active_python,
    callers_python,
    default_python,
    install_command,
    python_on_path,
)


@pytest.fixture
def python3(tmp_path: Path) -> Path:
    path = tmp_path / "bin/python3"
    path.parent.mkdir()
    path.symlink_to("/bin/sh")
    (tmp_path / "bin/python").symlink_to("/bin/sh")
    return path


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_the_active_environment_has_a_python(variable: str, python3: Path) -> None:
    assert active_python({variable: str(python3.parents[1])}) == python3.with_name("python")


def test_an_environment_that_does_not_exist_is_ignored(tmp_path: Path) -> None:
    assert active_python({"VIRTUAL_ENV": str(tmp_path)}) is None
    assert active_python({}) is None


def test_the_first_python_of_flag_environment_and_path_is_used(python3: Path) -> None:
    path, environment = {"PATH": f"/nonexistent:{python3.parent}"}, {"VIRTUAL_ENV": str(python3.parents[1])}
    assert default_python(Path("/mine"), {**path, **environment}) == PodsPython(Path("/mine"), BY_FLAG)
    active = PodsPython(python3.with_name("python"), "the active environment")
    assert default_python(None, {**path, **environment}) == active
    assert default_python(None, path) == PodsPython(python3, "python3 on PATH")


def test_without_python3_on_the_path_it_is_the_one_that_runs_trainwright(tmp_path: Path) -> None:
    found = default_python(None, {"PATH": str(tmp_path)})
    assert found == PodsPython(Path(sys.executable), "the one that runs trainwright: PATH has no python3")


def test_a_python3_in_a_relative_directory_of_the_path_is_not_used(
    python3: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(python3.parents[1])
    assert python_on_path({"PATH": "bin"}) is None


def test_packages_are_installed_by_pip_or_without_pip_by_uv(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    nowhere = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert install_command(str(python), nowhere) == f"{python} -m pip install"  # the system's Python

    (tmp_path / "pyvenv.cfg").write_text("")
    assert install_command(str(python), nowhere) == f"{python} -m ensurepip && {python} -m pip install"
    uv = tmp_path / "cache" / "trainwright" / "uv" / "bin" / "uv"
    uv.parent.mkdir(parents=True)
    uv.write_text("")
    uv.chmod(0o755)
    assert install_command(str(python), nowhere) == f"{uv} pip install --python {python}"
    on_path = {**nowhere, "PATH": str(uv.parent)}
    assert install_command(str(python), on_path) == f"uv pip install --python {python}"
    (tmp_path / "lib" / "python3.12" / "site-packages" / "pip").mkdir(parents=True)
    assert install_command(str(python), on_path) == f"{python} -m pip install"
    assert install_command("") == ""


def test_a_python_that_refuses_pip_gets_a_virtual_environment(tmp_path: Path) -> None:
    library = tmp_path / "lib" / "python3.11"
    library.mkdir(parents=True)
    (library / "EXTERNALLY-MANAGED").write_text("")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3.11").write_text("")
    python = tmp_path / "bin" / "python3"
    python.symlink_to("python3.11")
    assert install_command(str(python)) == f"{python} -m venv .venv && . .venv/bin/activate && pip install"

    environment = tmp_path / "env"
    (environment / "lib" / "python3.11" / "site-packages" / "pip").mkdir(parents=True)
    (environment / "bin").mkdir()
    (environment / "pyvenv.cfg").write_text("")
    (environment / "bin" / "python").symlink_to(python)
    assert install_command(str(environment / "bin" / "python")) == f"{environment}/bin/python -m pip install"


def test_run_prefers_the_callers_python_to_the_default_of_the_cluster(python3: Path, tmp_path: Path) -> None:
    path, active = {"PATH": str(python3.parent)}, {"VIRTUAL_ENV": str(python3.parents[1])}
    found = PodsPython(python3.with_name("python"), "the active environment")
    assert callers_python(default_named=True, environment={**path, **active}) == found
    assert callers_python(default_named=False, environment=path) == PodsPython(python3, "python3 on PATH")
    assert callers_python(default_named=True, environment=path) is None
    assert callers_python(default_named=False, environment={"PATH": str(tmp_path / "none")}) is None
