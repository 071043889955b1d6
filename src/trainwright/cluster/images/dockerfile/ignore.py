"""Patterns of .dockerignore files, and of sources of COPY and ADD: Go's, with `**`."""

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass


class PatternError(Exception):
    """A pattern with a syntax error."""


def glob_regex(pattern: str) -> re.Pattern[str]:
    """`*` and `?` do not match a slash; `**` matches any number of directories."""
    result, position = "", 0
    while position < len(pattern):
        character = pattern[position]
        position += 1
        if character == "*":
            if pattern.startswith("*", position):
                position += 1
                if pattern.startswith("/", position):
                    position += 1
                result += ".*" if position >= len(pattern) else "(?:.*/)?"
            else:
                result += "[^/]*"
        elif character == "?":
            result += "[^/]"
        elif character == "\\":
            if position >= len(pattern):
                raise PatternError(f"syntax error in pattern {pattern!r}: it ends with an escape")
            result += re.escape(pattern[position])
            position += 1
        elif character == "[":
            text, position = _character_class(pattern, position)
            result += text
        else:
            result += re.escape(character)
    try:
        return re.compile(result, re.DOTALL)
    except re.error as error:
        raise PatternError(f"syntax error in pattern {pattern!r}: {error}") from error


def _character_class(pattern: str, position: int) -> tuple[str, int]:
    """After a `[`: characters and ranges, negated by `^`; a backslash escapes."""
    result = "["
    if pattern.startswith("^", position):
        result += "^/"
        position += 1
    start = position
    while position < len(pattern):
        if pattern[position] == "]" and position > start:
            return result + "]", position + 1
        first, position = _character(pattern, position)
        result += re.escape(first)
        if pattern.startswith("-", position) and not pattern.startswith("-]", position):
            last, position = _character(pattern, position + 1)
            result += f"-{re.escape(last)}"
    raise PatternError(f"syntax error in pattern {pattern!r}: [ without ]")


def _character(pattern: str, position: int) -> tuple[str, int]:
    if pattern.startswith("\\", position):
        position += 1
    if position >= len(pattern):
        raise PatternError(f"syntax error in pattern {pattern!r}: [ without ]")
    return pattern[position], position + 1


@dataclass(frozen=True, slots=True)
class _Pattern:
    regex: re.Pattern[str]
    exception: bool


class IgnoreRules:
    """What a .dockerignore file leaves out of the context."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._patterns = [_Pattern(glob_regex(text), exception) for text, exception in map(_clean, lines) if text]
        self.has_exceptions = any(pattern.exception for pattern in self._patterns)

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def ignores(self, path: str) -> bool:
        """`path` is relative to the context. A pattern that matches a directory matches everything in it."""
        ancestors = [path]
        while (slash := ancestors[-1].rfind("/")) > 0:
            ancestors.append(ancestors[-1][:slash])
        ignored = False
        for pattern in self._patterns:
            if pattern.exception == ignored and any(pattern.regex.fullmatch(ancestor) for ancestor in ancestors):
                ignored = not pattern.exception
        return ignored


def _clean(line: str) -> tuple[str, bool]:
    """The pattern of a line as Go's filepath.Clean writes it, and whether it is an exception; empty for comments."""
    if line.startswith("#"):
        return "", False
    text = line.strip()
    exception = text.startswith("!")
    text = text[1:].strip() if exception else text
    if not text:
        if exception:
            raise PatternError('illegal exclusion pattern: "!"')
        return "", False
    text = posixpath.normpath(text)
    if text.startswith("//"):
        text = text[1:]
    return (text[1:] if len(text) > 1 and text.startswith("/") else text), exception


def read_ignore_rules(text: str) -> IgnoreRules:
    return IgnoreRules(text.removeprefix("\ufeff").splitlines())
