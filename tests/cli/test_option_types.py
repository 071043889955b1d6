"""Durations and paths of Pythons as users write them."""

from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.option_types import duration, python_path


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
def test_durations_are_read(text: str, seconds: float) -> None:
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


def test_a_python_keeps_its_link(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to("/bin/sh")
    assert python_path(str(link)) == link


def test_a_python_must_exist(tmp_path: Path) -> None:
    with pytest.raises(click.BadParameter, match="is not there"):
        python_path(str(tmp_path / "python"))


def test_a_python_must_be_executable(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("")
    with pytest.raises(click.BadParameter, match="not executable"):
        python_path(str(tmp_path / "python"))
