"""Output of commands: on a terminal coloured lines and a few live lines below them, elsewhere plain lines."""

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TextIO

import click

from trainwright.cli.errors import DIRECTION

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green", "bright_yellow")
_COLOUR_CODE = re.compile(r"\x1b\[[0-9;:]*m")
_ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movements, clearing
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC and other strings: titles, links
    r"|\x1b[ -/]*[0-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_DIRECTION = re.compile(f"[{DIRECTION}]")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1a\x1c-\x1f\x7f-\x9f]")
_PLAIN = str.maketrans({"→": "->", "…": "...", "×": "x", "━": "=", "╸": ">", "·": "-"})
_RESET = "\x1b[0m"


class Console:
    """Writes lines to one stream. `tty`: it is a terminal, which can rewrite its last lines."""

    def __init__(self, stream: TextIO, *, tty: bool, colours: bool) -> None:
        self._stream = stream
        self._tty = tty
        self._colours = colours
        self._live: tuple[str, ...] = ()
        self._drawn: list[str] = []
        self._batch: list[str] | None = None

    @classmethod
    def of(cls, stream: TextIO | None = None, environment: Mapping[str, str] = os.environ) -> "Console":
        """For a stream, by default standard output. Colours need a terminal and no NO_COLOR."""
        stream = stream or sys.stdout
        tty = stream.isatty() and environment.get("TERM") != "dumb"
        return cls(stream, tty=tty, colours=tty and not environment.get("NO_COLOR"))

    @property
    def tty(self) -> bool:
        return self._tty

    @property
    def width(self) -> int:
        """Columns of the terminal now: the user may resize it at any time."""
        return max(shutil.get_terminal_size().columns, 10)

    @property
    def height(self) -> int:
        return max(shutil.get_terminal_size().lines, 4)

    def style(self, text: str, **style: object) -> str:
        """The text in a colour, `bold` or `dim`, if the stream has colours."""
        return click.style(text, **style) if self._colours and text else text  # type: ignore[arg-type]

    def print(self, text: str, *, colour: str | None = None) -> None:
        text = "\n".join(map(visible, text.split("\n")))  # it may quote a pod, an image or an event
        self._line(self.style(text, fg=colour) if colour else text)

    def print_log(self, label: str, number: int, line: str) -> None:
        """One line of a container's log behind the label of its pod; `number` selects the label's colour."""
        shown = visible(line)
        if self._colours:
            self._line(f"{self.label(label, number)} {_closed(shown)}")
        else:
            self._line(f"{label} {without_colours(shown)}")

    def label(self, label: str, number: int) -> str:
        return self.style(label, fg=_COLOURS[number % len(_COLOURS)])

    def live(self, *lines: str) -> None:
        """Replaces the live lines below all others. Only terminals show them."""
        lines = tuple(line for line in lines if line)
        if not self._tty or (lines == self._live and not self._batch):
            return
        self._redraw(self._batch or [], lines)
        if self._batch is not None:
            self._batch = []

    def prompt(self, text: str) -> None:
        """Asks the user, who answers behind the text and ends the line with Enter."""
        self._redraw([], ())
        self._write(text)
        self._stream.flush()

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Writes everything that is printed meanwhile at once: a terminal is slow if every line redraws the others."""
        self._batch = []
        try:
            yield
        finally:
            lines, self._batch = self._batch, None
            if lines:
                self._redraw(lines, self._live)

    def _line(self, text: str) -> None:
        if self._batch is None:
            self._redraw([text], self._live)
        else:
            self._batch.append(text)

    def _redraw(self, printed: list[str], live: Sequence[str]) -> None:
        """Erases the live lines, prints new lines in their place, and draws the live lines below them."""
        parts = [self._erasure(), *(f"{line}\n" for line in printed)]
        self._live = tuple(live)
        # The last column stays empty: a terminal would begin a new row after it.
        self._drawn = [_closed(cut(line, self.width - 1)) for line in self._live]
        parts.append("\n".join(self._drawn))
        self._write("".join(parts))
        self._stream.flush()

    def _erasure(self) -> str:
        """Clears the rows of the live lines. After a resize a terminal has wrapped them at the new width."""
        if not self._drawn:
            return ""
        width = self.width
        rows = sum(max(-(-cells(line) // width), 1) for line in self._drawn)
        up = f"\x1b[{rows - 1}A" if rows > 1 else ""
        return f"\r{up}\x1b[J"

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            encoding = self._stream.encoding or "ascii"
            self._stream.write(text.translate(_PLAIN).encode(encoding, "replace").decode(encoding))


def visible(line: str) -> str:
    """The text that a terminal would show of a line that rewrites itself, without control codes other than colours."""
    if line.isprintable():
        return line
    line = line.rstrip("\r\n")
    if "\r" in line:
        line = next((part for part in reversed(line.split("\r")) if _has_text(part)), "")
    if "\b" in line:
        line = _without_backspaces(line)
    return _CONTROL.sub("", _ESCAPE.sub(_colour_or_nothing, line))


def plain_text(line: str) -> str:
    """For texts of other programs inside our own lines: without any control code."""
    return _DIRECTION.sub("", without_colours(visible(line)))


def without_colours(text: str) -> str:
    return _COLOUR_CODE.sub("", text) if "\x1b" in text else text


def cells(text: str) -> int:
    """The number of columns that a text occupies: colours none, Chinese, Japanese and Korean characters two."""
    text = without_colours(text)
    return len(text) if text.isascii() else sum(map(_cells, text))


def cut(text: str, width: int) -> str:
    """The beginning of a text that fits into `width` columns."""
    if cells(text) <= width:
        return text
    kept, used = [], 0
    for part in re.split(f"({_COLOUR_CODE.pattern})", text):
        if part.startswith("\x1b"):
            kept.append(part)
            continue
        for character in part:
            used += _cells(character)
            if used > width:
                return "".join(kept)
            kept.append(character)
    return "".join(kept)


def _cells(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _has_text(part: str) -> bool:
    return bool(part.strip("\b \x1b")) and bool(_ESCAPE.sub("", part).strip("\b "))


def _without_backspaces(text: str) -> str:
    """The text after its backspaces; a run of them that deletes everything begins the line anew."""
    kept: list[str] = []
    erased = 0
    for character in text:
        if character == "\b":
            erased += 1
            continue
        if erased:
            del kept[max(len(kept) - erased, 0) :]
            erased = 0
        kept.append(character)
    return "".join(kept)  # trailing backspaces only move the cursor


def _colour_or_nothing(match: re.Match[str]) -> str:
    return match[0] if _COLOUR_CODE.fullmatch(match[0]) else ""


def _closed(text: str) -> str:
    """The text, with its colours ended: they would spread over the following lines."""
    return text if "\x1b" not in text or text.endswith((_RESET, "\x1b[m")) else text + _RESET
