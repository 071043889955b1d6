"""Logical lines of a Dockerfile: parser directives, comments, continuation lines and here-documents.

The rules are those of BuildKit's parser: https://docs.docker.com/reference/dockerfile/#format
"""

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from trainwright.cluster.images.dockerfile.words import ExpansionError, remove_quotes, split_shell_words

_DIRECTIVE = re.compile(r"^#\s*([a-zA-Z][a-zA-Z0-9]*)\s*=\s*(.+?)\s*$")
_HEREDOC = re.compile(r"^(\d*)<<(-?)([^<]*)$")
_WITH_HEREDOCS = frozenset({"ADD", "COPY", "RUN"})


class DockerfileError(Exception):
    """A Dockerfile that cannot be built as it is written."""

    def __init__(self, message: str, *, line: int, column: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.message}"


@dataclass(frozen=True, slots=True)
class Heredoc:
    name: str
    content: str
    expand: bool
    """True if variables in it are expanded: its name was not quoted."""
    descriptor: str = ""


@dataclass(slots=True)
class LogicalLine:
    """One instruction as written, its continuation lines joined."""

    text: str
    line: int
    """The number of its first physical line, from 1."""
    segments: list[tuple[int, int, int]] = field(default_factory=list)
    """For each physical line: the offset in `text` where it begins, its number, the column of its first character."""
    heredocs: list[Heredoc] = field(default_factory=list)
    heredoc_text: str = ""
    """The lines of its here-documents as written."""

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of the character at an offset of `text`."""
        index = bisect_right(self.segments, offset, key=lambda segment: segment[0]) - 1
        start, line, column = self.segments[max(index, 0)]
        return line, column + offset - start

    def error(self, message: str, offset: int = 0) -> DockerfileError:
        line, column = self.position(offset)
        return DockerfileError(message, line=line, column=column)


@dataclass(frozen=True, slots=True)
class Lines:
    lines: list[LogicalLine]
    escape: str
    directives: dict[str, str]
    warnings: list[str]


def read_lines(text: str) -> Lines:
    physical = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    directives = _read_directives(physical)
    escape = directives.get("escape", "\\")
    continued = re.compile(rf"(?:^|[^{re.escape(escape)}]){re.escape(escape)}[ \t]*$")
    found: list[LogicalLine] = []
    warnings: list[str] = []
    number = 0
    while number < len(physical):
        raw = physical[number]
        number += 1
        stripped = raw.lstrip()
        if not stripped or stripped.startswith("#"):
            continue
        logical = LogicalLine("", number)
        start = len(raw) - len(stripped)
        while True:
            is_continued = continued.search(stripped)
            logical.segments.append((len(logical.text), number, start + 1))
            logical.text += stripped.rstrip(" \t")[: -len(escape)] if is_continued else stripped
            if not is_continued:
                break
            number, empty = _next_line(physical, number)
            if empty is not None:
                warnings.append(f"line {empty}: empty line in the continuation of line {logical.line}")
            if number >= len(physical):
                break
            stripped, start = physical[number], 0
            number += 1
        number = _read_heredocs(logical, physical, number, escape)
        logical.text = logical.text.rstrip()
        if logical.text:  # it may have been an escape alone
            found.append(logical)
    return Lines(found, escape, directives, warnings)


def _read_directives(physical: list[str]) -> dict[str, str]:
    """`# escape=` and others, which must be the first lines of the file."""
    found: dict[str, str] = {}
    for number, line in enumerate(physical, 1):
        match = _DIRECTIVE.match(line.lstrip())
        if match is None:
            break
        name, value = match[1].lower(), match[2]
        if name not in {"syntax", "escape", "check"}:
            break
        if name in found:
            raise DockerfileError(f"only one {name} parser directive can be used", line=number)
        if name == "escape" and value not in {"\\", "`"}:
            raise DockerfileError(f"invalid escape token {value!r}: it must be ` or \\", line=number)
        found[name] = value
    return found


def _next_line(physical: list[str], number: int) -> tuple[int, int | None]:
    """Skips comments and empty lines inside a continuation; and the number of an empty one."""
    empty = None
    while number < len(physical):
        line = physical[number].strip()
        if line and not line.startswith("#"):
            break
        if not line and number + 1 < len(physical):
            empty = number + 1
        number += 1
    return number, empty


def _read_heredocs(logical: LogicalLine, physical: list[str], number: int, escape: str) -> int:
    """Reads the here-documents that a line opens; returns the index of the line after them."""
    keyword, _, rest = logical.text.partition(" ")
    if "<<" not in logical.text or keyword.upper() not in _WITH_HEREDOCS or rest.lstrip().startswith("["):
        return number
    taken: list[str] = []
    for name, expand, strip_tabs, descriptor in _opened_heredocs(rest, escape):
        content: list[str] = []
        while True:
            if number >= len(physical):
                raise logical.error(f"here-document {name!r} has no end: no line is {name!r} alone")
            line = physical[number]
            number += 1
            taken.append(line)
            kept = line.lstrip("\t") if strip_tabs else line
            if kept == name:
                break
            content.append(kept + "\n")
        logical.heredocs.append(Heredoc(name, "".join(content), expand, descriptor))
    logical.heredoc_text = "\n".join(taken)
    return number


def _opened_heredocs(text: str, escape: str) -> Iterable[tuple[str, bool, bool, str]]:
    try:
        words = split_shell_words(text, escape)
    except ExpansionError:
        return
    for word in words:
        match = _HEREDOC.match(word)
        if match is None or not match[3]:
            continue
        try:
            name = remove_quotes(match[3], escape)
        except ExpansionError:
            continue
        if name and not any(character.isspace() for character in name):
            yield name, name == match[3], match[2] == "-", match[1]
