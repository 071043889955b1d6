"""Builds whose FROM cannot be had: the files of this machine stand in for it."""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cluster.images.build.conftest import BASE, Build
from trainwright.cluster.images.build.messages import explain_host_failure
from trainwright.cluster.images.formats import HOST_FILES_LABEL, SKIPPED_LABEL

MISSING = "pytorch/pytorch:1.0-cuda10.0-cudnn7-runtime"


def test_the_files_of_this_machine_stand_in_and_stay_as_they_are(build: Build, request: pytest.FixtureRequest) -> None:
    # Builds have a /tmp of their own.
    seen = Path(tempfile.mkdtemp(dir="/var/tmp"))
    request.addfinalizer(lambda: shutil.rmtree(seen))
    hidden = [seen / "keys", seen / "password"]
    hidden[0].mkdir()
    (hidden[0] / "secret-key").touch()
    hidden[1].write_text("secret")
    (seen / "other").write_text("seen")
    build.write("a.py", "print('ran')")

    image = build(
        f"FROM {MISSING}\nWORKDIR /opt/app\nADD a.py .\n"
        f"RUN ls {seen}/keys && cat {seen}/password {seen}/other\n"
        f"RUN echo x > ~/by-build && cat {Path.home()}/by-build && echo y > /opt/app/made\n",
        hidden=[str(path) for path in hidden],
    )

    assert build.steps[1].startswith(
        f"{MISSING} is not in the store, and no registry answers: the files of this machine"
    )
    assert image.config.config.labels[HOST_FILES_LABEL] == "true"
    assert build.file(image, "/opt/app/made").read_text() == "y\n"
    assert "secret" not in build.output
    assert "seen" in build.output
    assert not Path.home().joinpath("by-build").exists()
    assert not Path("/opt/app").exists()
    with pytest.raises(FileNotFoundError):
        build.file(image, f"{Path.home()}/by-build")


def test_home_directory_in_tmp_is_empty(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine").touch()

    build(f"FROM {MISSING}\nRUN echo x > ~/by-build && ls $HOME\n")

    assert "\nby-build\n" in build.output
    assert "mine" not in build.output
    assert not (tmp_path / "by-build").exists()


def test_new_files_and_directories_of_the_root_are_part_of_the_image(build: Build) -> None:
    build.write("a.py", "print('ran')")

    image = build(
        f"FROM {MISSING}\nWORKDIR /workspace-of-the-build\nCOPY a.py /examples-of-the-build/b/\n"
        "RUN echo y > /file-of-the-build; ln -s file-of-the-build /link-of-the-build; touch here\n"
        "RUN cat /link-of-the-build /examples-of-the-build/b/a.py\n"
    )

    assert "y\nprint('ran')" in build.output
    assert build.file(image, "/examples-of-the-build/b/a.py").read_text() == "print('ran')"
    assert build.file(image, "/workspace-of-the-build/here").exists()
    assert build.file(image, "/link-of-the-build").readlink() == Path("file-of-the-build")
    for name in ("usr", "bin", "dev"):  # mount points are not
        with pytest.raises(FileNotFoundError):
            build.file(image, f"/{name}")


def test_python_and_pip_are_the_named_python_with_a_place_for_packages(build: Build) -> None:
    python = Path(sys.executable)

    image = build(
        f"FROM {MISSING}\n"
        "RUN python -c 'import click, sys; print(sys.prefix, sys.version_info[:2], click.__name__)'\n"
        "RUN python3 -m pip --version && pip --version\n"
        "RUN python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))'\n",
        python=python,
    )

    assert f"/opt/trainwright/python {sys.version_info[:2]} click\n" in build.output
    assert build.output.count("\npip ") == 2
    assert "\n/opt/trainwright/python/lib/python3" in build.output
    assert image.config.config.env[0].startswith("PATH=/opt/trainwright/python/bin:")


@pytest.mark.mpi
def test_libraries_of_the_named_environment_are_found(build: Build) -> None:
    build(
        f"FROM {MISSING}\n"
        "RUN python -c 'import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI)'\n",
        python=Path(sys.executable),
    )

    assert "<module 'mpi4py.MPI' from " in build.output


def test_strict_refuses_the_files_of_this_machine(build: Build) -> None:
    assert build.failure(f"FROM {MISSING}\n", strict=True) == (
        f"Dockerfile:1:1: FROM {MISSING}: {MISSING} is not in the store, and no registry answers; "
        "without --strict the files of this machine would stand in for it"
    )


def test_a_line_that_cannot_work_names_the_cause_and_the_flag(build: Build) -> None:
    message = build.failure(f"FROM {MISSING}\nRUN apk add git\n")

    assert message.startswith(
        "Dockerfile:2:1: RUN apk add git: the command '/bin/sh -c apk add git' returned a non-zero code: 127: "
        "apk is of Alpine, and the files are those of this machine, "
    )
    assert message.endswith("; if the program does not need the line, add --skip-run 'apk *'")


def test_skipped_lines_are_recorded(build: Build) -> None:
    image = build(f"FROM {MISSING}\nRUN apk update\nRUN apk add \\\n  git\nRUN echo done\n", skip_run=["apk *"])

    assert build.steps.count(" ---> Skipped by --skip-run") == 2
    assert json.loads(image.config.config.labels[SKIPPED_LABEL]) == ["apk update", "apk add git"]


@pytest.mark.parametrize(
    ("command", "is_root", "system", "cause"),
    [
        ("add-apt-repository ppa:deadsnakes/ppa -y", True, "Debian 12", "a PPA has packages for Ubuntu"),
        ("apt update", False, "Debian 12", "apt needs root, and an ordinary user builds"),
        (
            "set -e; apt-get install -y x",
            True,
            "Fedora 40",
            "apt-get cannot change the files of this machine, Fedora 40",
        ),
        ("make", True, "Fedora 40", "the files are those of this machine, Fedora 40, not those of base"),
    ],
)
def test_the_cause_depends_on_program_and_user(command: str, is_root: bool, system: str, cause: str) -> None:
    text = explain_host_failure(command, 1, is_root=is_root, system=system, base="base")

    assert text.startswith(cause)
    assert " add --skip-run '" in text


def test_a_base_that_is_there_is_not_replaced(build: Build) -> None:
    image = build(f"FROM {BASE}\nRUN test ! -e {Path(__file__).resolve()}\n")

    assert HOST_FILES_LABEL not in image.config.config.labels
