"""Words of a Dockerfile: quotes, escapes and variables, by the rules of BuildKit's shell lexer."""

import re
from collections.abc import Callable, Mapping
from typing import Any

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BLANKS = re.compile(r"(\s+)")
_SPECIAL = frozenset("0123456789@*#")
MAX_CHARACTERS = 1024 * 1024
"""The size of an expanded text: variables that refer to each other grow without end."""
_MAX_DEPTH = 50
"""How deep `${A:-${B:-…}}` may be nested."""


class ExpansionError(Exception):
    """A word whose quotes or variables cannot be resolved."""


def expand(word: str, variables: Mapping[str, str], escape: str = "\\") -> str:
    """The word without its quotes and escapes, with the values of its variables; unset ones are empty."""
    return _Scanner(word, variables, escape).text()


def expand_words(text: str, variables: Mapping[str, str], escape: str = "\\") -> list[str]:
    """As `expand`, but split at blanks that are not quoted, also at those in values."""
    return _Scanner(text, variables, escape).words()


def remove_quotes(word: str, escape: str = "\\") -> str:
    return _Scanner(word, None, escape).text()


def split_shell_words(text: str, escape: str = "\\") -> list[str]:
    """The words of a shell command with their quotes and escapes."""
    scanner = _Scanner(text, None, escape, raw=True)
    return scanner.words()


def split_pairs(text: str, escape: str = "\\") -> list[tuple[str, int]]:
    """Words of ENV, LABEL and ARG with their offsets; quotes and escapes stay, and join blanks to a word."""
    words: list[tuple[str, int]] = []
    position, end = 0, len(text)
    while position < end:
        if text[position].isspace():
            position += 1
            continue
        start, word, quote = position, "", ""
        while position < end and (quote or not text[position].isspace()):
            character = text[position]
            position += 1
            if character == escape and quote != "'":
                if position == end:
                    break  # an escape at the end of the line escapes nothing
                word += character + text[position]
                position += 1
                continue
            if quote and character == quote:
                quote = ""
            elif not quote and character in "'\"":
                quote = character
            word += character
        if word:
            words.append((word, start))
    return words


class _Scanner:
    """Reads a text from left to right. Without variables, `$` is an ordinary character."""

    def __init__(
        self, text: str, variables: Mapping[str, str] | None, escape: str, *, raw: bool = False, depth: int = 0
    ) -> None:
        self._source = text
        self._variables = variables
        self._escape = escape
        self._raw = raw
        """True if quotes and escapes are kept."""
        self._depth = depth
        self._expanded = 0
        self._position = 0
        self._words: list[str] = []
        self._word = ""
        self._in_word = False

    def text(self) -> str:
        return self._until("")

    def words(self) -> list[str]:
        self._until("")
        self._end_word()
        return self._words

    def _until(self, stop: str) -> str:
        """Reads up to a stop character, which is consumed; the empty one is the end of the text."""
        result = ""
        while self._position < len(self._source):
            character = self._source[self._position]
            if stop and character == stop:
                self._position += 1
                return result
            self._position += 1
            if character == "'":
                result += self._quoted(self._single_quoted())
            elif character == '"':
                result += self._quoted(self._double_quoted())
            elif character == "$" and self._variables is not None:
                value = self._value(self._variables)
                for piece in filter(None, _BLANKS.split(value)):
                    self._add(piece)
                result += value
            elif character == self._escape:
                if self._raw:
                    result += self._quoted(character)
                if self._position < len(self._source):
                    result += self._quoted(self._take())
            else:
                self._add(character)
                result += character
        if stop:
            raise ExpansionError(f"unexpected end of statement while looking for matching {stop}")
        return result

    def _take(self) -> str:
        self._position += 1
        return self._source[self._position - 1]

    def _add(self, text: str) -> None:
        """Text of blanks alone, or without any."""
        if text.isspace():
            self._end_word()
        else:
            self._word += text
            self._in_word = True

    def _quoted(self, text: str) -> str:
        """Adds text whose blanks do not end the word."""
        self._word += text
        self._in_word = True
        return text

    def _end_word(self) -> None:
        if self._in_word:
            self._words.append(self._word)
        self._word, self._in_word = "", False

    def _single_quoted(self) -> str:
        end = self._source.find("'", self._position)
        if end < 0:
            raise ExpansionError("unexpected end of statement while looking for matching single-quote")
        text = self._source[self._position : end]
        self._position = end + 1
        return f"'{text}'" if self._raw else text

    def _double_quoted(self) -> str:
        result = '"' if self._raw else ""
        while self._position < len(self._source):
            character = self._take()
            if character == '"':
                return result + ('"' if self._raw else "")
            if character == "$" and self._variables is not None:
                result += self._value(self._variables)
                continue
            if character == self._escape and self._position < len(self._source):
                following = self._take()
                if self._raw or following not in {'"', "$", self._escape}:
                    result += character
                result += following
                continue
            result += character
        raise ExpansionError("unexpected end of statement while looking for matching double-quote")

    def _value(self, variables: Mapping[str, str]) -> str:
        value = self._variable(variables)
        self._expanded += len(value)
        if self._expanded > MAX_CHARACTERS:
            raise ExpansionError(f"the values of its variables have more than {MAX_CHARACTERS:,} characters")
        return value

    def _variable(self, variables: Mapping[str, str]) -> str:
        """After a `$`."""
        if not self._source.startswith("{", self._position):
            name = self._name()
            return variables.get(name, "") if name else "$"
        self._position += 1
        if self._source.startswith("}", self._position):
            raise ExpansionError("bad substitution: ${} names no variable")
        name = self._name()
        if not name:
            raise ExpansionError(f"bad substitution: {self._source!r}")
        value = variables.get(name)
        operator = self._operator()
        if operator == "}":
            return value or ""
        word = self._word_of_modifier()
        if modify := _MODIFIERS.get(operator):
            return modify(name, value, word)
        return _substitute(operator, value or "", word, self._escape)

    def _name(self) -> str:
        match = _NAME.match(self._source, self._position)
        if match:
            self._position = match.end()
            return match[0]
        if self._position < len(self._source) and self._source[self._position] in _SPECIAL:
            return self._take()
        return ""

    def _operator(self) -> str:
        if self._position >= len(self._source):
            raise ExpansionError("unexpected end of statement while looking for matching }")
        for operator in ("}", *_MODIFIERS, "##", "#", "%%", "%", "//", "/"):
            if self._source.startswith(operator, self._position):
                self._position += len(operator)
                return operator
        raise ExpansionError(f"unsupported modifier ({self._source[self._position]}) in substitution")

    def _word_of_modifier(self) -> str:
        if self._depth == _MAX_DEPTH:
            raise ExpansionError(f"substitutions are nested deeper than {_MAX_DEPTH}")
        nested = _Scanner(self._source, self._variables, self._escape, depth=self._depth + 1)
        nested._position = self._position
        text = nested._until("}")
        self._position = nested._position
        return text


def _required(name: str, value: str | None, word: str, *, also_empty: bool) -> str:
    if value is None or (also_empty and not value):
        raise ExpansionError(
            f"{name}: {word or ('not allowed to be empty' if also_empty else 'not allowed to be unset')}"
        )
    return value


_MODIFIERS: dict[str, Callable[[str, str | None, str], str]] = {
    ":-": lambda _, value, word: value or word,
    ":+": lambda _, value, word: word if value else "",
    ":?": lambda name, value, word: _required(name, value, word, also_empty=True),
    "-": lambda _, value, word: word if value is None else value,
    "+": lambda _, value, word: "" if value is None else word,
    "?": lambda name, value, word: _required(name, value, word, also_empty=False),
}


def _substitute(operator: str, value: str, word: str, escape: str) -> str:
    """`#`, `##`, `%`, `%%` remove a prefix or suffix that matches a pattern; `/` and `//` replace what matches."""
    if operator in {"/", "//"}:
        pattern, _, replacement = word.partition("/")
        return _replace(value, _compile(_tokens(pattern, escape, greedy=True)), replacement, first=operator == "/")
    tokens = _tokens(word, escape, greedy=len(operator) == 2)
    if operator[0] == "#":
        match = _compile(tokens).match(value)
        return value[match.end() :] if match else value
    match = _compile(tokens[::-1]).match(value[::-1])
    return value[: len(value) - match.end()] if match else value


def _replace(value: str, pattern: Any, replacement: str, *, first: bool) -> str:
    parts, end, size = [], 0, len(value)
    for match in pattern.finditer(value):
        size += len(replacement)
        if size > MAX_CHARACTERS:
            raise ExpansionError(f"the text after replacement has more than {MAX_CHARACTERS:,} characters")
        parts += [value[end : match.start()], replacement]
        end = match.end()
        if first:
            break
    return "".join([*parts, value[end:]])


def _compile(tokens: list[str]) -> Any:
    """In linear time, as BuildKit: with Python's own module some patterns take years."""
    import re2  # few Dockerfiles have patterns

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile("(?s)" + "".join(tokens), options=options)
    except re2.error as error:
        raise ExpansionError(f"the pattern is too long: {error}") from error


def _tokens(pattern: str, escape: str, *, greedy: bool) -> list[str]:
    """The parts of a shell pattern as regular expressions."""
    found, position = [], 0
    while position < len(pattern):
        character = pattern[position]
        position += 1
        if character == "*":
            found.append(".*" if greedy else ".*?")
        elif character == "?":
            found.append(".")
        elif character == escape and position < len(pattern):
            found.append(re.escape(pattern[position]))
            position += 1
        else:
            found.append(re.escape(character))
    return found
