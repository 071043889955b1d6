"""Output of commands: on a terminal coloured lines and one live line below them, elsewhere plain lines."""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from typing import TextIO

import click

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green", "bright_yellow")
_COLOUR_CODES = re.compile(r"\x1b\[[0-9;]*m")
_UNSAFE = re.compile(r"[\x00-\x08\x0a-\x1a\x1c-\x1f\x7f-\x9f]|\x1b(?!\[[0-9;]*m)")
_PLAIN = str.maketrans({"→": "->", "…": "...", "×": "x"})


class Console:
    """Writes lines to one stream. `tty`: it is a terminal, which can rewrite its last line."""

    def __init__(self, stream: TextIO, *, tty: bool, colours: bool) -> None:
        self._stream = stream
        self._tty = tty
        self._colours = colours
        self._live = ""

    @classmethod
    def of(cls, stream: TextIO | None = None, environment: Mapping[str, str] = os.environ) -> "Console":
        """For a stream, by default standard output. Colours need a terminal and no NO_COLOR."""
        stream = stream or sys.stdout
        tty = stream.isatty() and environment.get("TERM") != "dumb"
        return cls(stream, tty=tty, colours=tty and not environment.get("NO_COLOR"))

    def print(self, text: str, *, colour: str | None = None) -> None:
        self._line(click.style(text, fg=colour) if colour and self._colours else text)

    def print_log(self, label: str, number: int, line: str) -> None:
        """One line of a container's log behind the label of its pod; `number` selects the label's colour."""
        shown = visible(line)
        prefix = click.style(label, fg=_COLOURS[number % len(_COLOURS)]) if self._colours else label
        self._line(f"{prefix} {shown if self._colours else _COLOUR_CODES.sub('', shown)}")

    def live(self, text: str) -> None:
        """Replaces the live line below all others. Only terminals show it."""
        if not self._tty or text == self._live:
            return
        self._erase()
        self._live = text
        self._draw()
        self._stream.flush()

    def _line(self, text: str) -> None:
        self._erase()
        self._write(f"{text}\n")
        self._draw()
        self._stream.flush()

    def _erase(self) -> None:
        if self._live:
            self._stream.write("\r\x1b[K")

    def _draw(self) -> None:
        if self._live:
            self._write(self._live[: shutil.get_terminal_size().columns - 1])

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            encoding = self._stream.encoding or "ascii"
            self._stream.write(text.translate(_PLAIN).encode(encoding, "replace").decode(encoding))


def visible(line: str) -> str:
    """The text that a terminal would show of a line that rewrites itself, without control codes other than colours."""
    parts = [part for part in line.rstrip("\r\n").split("\r") if part]
    return _UNSAFE.sub("", parts[-1]) if parts else ""
