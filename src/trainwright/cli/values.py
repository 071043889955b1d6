"""Values of options that more than one command takes, read and checked."""

import os
import re
from pathlib import Path

import click

_DURATION = re.compile(r"(?:(?P<h>\d{1,9})h)?(?:(?P<m>\d{1,9})m)?(?:(?P<s>\d{1,9}(?:\.\d{1,9})?)s?)?")


def duration(text: str) -> float:
    """Seconds of `90`, `90s`, `5m` or `1h30m`."""
    match = _DURATION.fullmatch(text)
    if not match or not text:
        raise click.BadParameter(f"{text!r} is not a duration: write 90, 90s, 5m or 1h30m")
    return float(match["h"] or 0) * 3600 + float(match["m"] or 0) * 60 + float(match["s"] or 0)


def python_path(text: str) -> Path:
    """An existing program, by an absolute path that keeps its links: a virtual environment's Python is one."""
    path = Path(text).expanduser().absolute()
    if not path.is_file():
        raise click.BadParameter(f"{path} is not there: give the path of a Python, such as .venv/bin/python")
    if not os.access(path, os.X_OK):
        raise click.BadParameter(f"{path} is not executable: give the path of a Python, such as .venv/bin/python")
    return path
