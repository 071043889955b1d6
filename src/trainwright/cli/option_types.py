"""Values of options that more than one command takes, read and checked."""

import os
import re
from pathlib import Path

import click

_NUMBER = r"\d{1,9}(?:\.\d{1,9})?"
_DURATION = re.compile(rf"(?:(?P<h>{_NUMBER})h)?(?:(?P<m>{_NUMBER})m)?(?:(?P<s>{_NUMBER})s)?(?:(?P<ms>{_NUMBER})ms)?")


def duration(text: str) -> float:
    """Seconds of `90`, `90s`, `5m`, `1h30m` or `500ms`."""
    if re.fullmatch(_NUMBER, text):
        return float(text)
    match = _DURATION.fullmatch(text)
    if not match or not text:
        raise click.BadParameter(f"{text!r} is not a duration: write 90, 90s, 5m, 1h30m or 500ms")
    hours, minutes, seconds, milliseconds = (float(match[unit] or 0) for unit in ("h", "m", "s", "ms"))
    return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000


def python_path(text: str) -> Path:
    """An existing program, by an absolute path that keeps its links: a virtual environment's Python is one."""
    path = Path(text).expanduser().absolute()
    if not path.is_file():
        raise click.BadParameter(f"{path} is not there: give the path of a Python, such as .venv/bin/python")
    if not os.access(path, os.X_OK):
        raise click.BadParameter(f"{path} is not executable: give the path of a Python, such as .venv/bin/python")
    return path
