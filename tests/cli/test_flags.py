"""Flag values as users write them, and the flag syntax of Go programs, as Deployments of Go operators use it."""

import errno
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.flags import GoCommand, bool_flag, duration, python_path


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5400),
        ("0.5s", 0.5),
        ("1h1m1s", 3661),
        ("500ms", 0.5),
        ("1.5h", 5400),
        ("1m30.5s", 90.5),
    ],
)
def test_durations_are_parsed(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1", "5 m", "1d", "m", "1e3"])
def test_other_text_is_refused_with_examples(text: str) -> None:
    with pytest.raises(click.BadParameter, match="90s, 5m, 1h30m or 500ms"):
        duration(text)


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        seconds = duration(text)
    except click.BadParameter:
        return
    assert seconds >= 0


def test_a_python_keeps_its_symlink(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to("/bin/sh")
    assert python_path(str(link)) == link


def test_a_python_must_exist(tmp_path: Path) -> None:
    with pytest.raises(click.BadParameter, match="does not exist"):
        python_path(str(tmp_path / "python"))


def test_a_python_must_be_executable(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("")
    with pytest.raises(click.BadParameter, match="not executable"):
        python_path(str(tmp_path / "python"))


def test_python_in_a_closed_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: Path) -> bool:  # root may enter every directory
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(click.BadParameter, match="is in a directory that you may not enter: give the path of a Python"):
        python_path(str(tmp_path / "python"))


@click.command(cls=GoCommand)
@bool_flag("--leader-elect", default=False, help="")
@bool_flag("--zap-devel", default=None, help="")
@click.option("--threads", type=int, default=1)
@click.option("-v", "--verbose", is_flag=True)
def program(leader_elect: bool, zap_devel: bool | None, threads: int, verbose: bool) -> None:
    click.echo(f"{leader_elect} {zap_devel} {threads} {verbose}")


@pytest.mark.parametrize(
    ("words", "output"),
    [
        ((), "False None 1 False"),
        (("--leader-elect",), "True None 1 False"),
        (("-leader-elect",), "True None 1 False"),
        (("--leader-elect=true", "--zap-devel=false"), "True False 1 False"),
        (("-leader-elect=false", "-zap-devel"), "False True 1 False"),
        (("--leader-elect", "--threads", "3"), "True None 3 False"),
        (("-threads=4", "-leader-elect", "-v"), "True None 4 True"),
        (("-threads", "5"), "False None 5 False"),
    ],
)
def test_flags_have_the_syntax_of_go(words: tuple[str, ...], output: str) -> None:
    answer = CliRunner().invoke(program, list(words))
    assert answer.output.strip() == output


@pytest.mark.parametrize("words", [("--leader-elect=maybe",), ("-leader-election",), ("--leader-elect", "no?")])
def test_values_that_go_refuses_are_refused(words: tuple[str, ...]) -> None:
    assert CliRunner().invoke(program, list(words)).exit_code == 2
