"""The subset of kubectl's JSONPath that printer columns use: fields, indexes, slices, `[*]` and `[?(@.a=="b")]`."""

import re
from collections.abc import Callable, Iterable
from typing import Any

from trainwright.objects.paths import value_at

_STEP = re.compile(
    r"""\.(?P<field>[A-Za-z0-9_$-]+(?:\\\.[A-Za-z0-9_$/-]+)*)|\.?\[(?:
        '(?P<quoted>[^']*)'
        |"(?P<double>[^"]*)"
        |(?P<all>\*)
        |(?P<index>-?[0-9]{1,9})
        |(?P<start>-?[0-9]{0,9}):(?P<stop>-?[0-9]{0,9})
        |\?\(@\.(?P<key>[A-Za-z0-9_.-]+)\s*==\s*["'](?P<value>[^"']*)["']\)
    )\]""",
    re.VERBOSE,
)

_SHOWN = 200

Step = Callable[[Any], Iterable[Any]]


class JsonPathError(ValueError):
    """The path has a step that is not supported; the message shows it."""


def compile_path(text: str) -> Callable[[Any], list[Any]]:
    """A function that returns every value at the path, in order."""
    path = text.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps: list[Step] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            raise JsonPathError(f"cannot read JSONPath {text[:_SHOWN]!r} at {path[position : position + _SHOWN]!r}")
        steps.append(_step(match))
        position = match.end()

    def find(value: Any) -> list[Any]:
        values = [value]
        for step in steps:
            values = [found for value in values for found in step(value)]
        return values

    return find


def _step(match: re.Match[str]) -> Step:
    name = match["field"] or match["quoted"] or match["double"]
    if name is not None:
        return _field(name.replace("\\.", "."))
    if match["index"] is not None:
        return _slice(int(match["index"]))
    if match["key"] is not None:
        return _filter(match["key"].split("."), match["value"])
    if match["all"]:
        return lambda value: value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    start, stop = (int(text) if text else None for text in (match["start"], match["stop"]))
    return lambda value: value[start:stop] if isinstance(value, list) else ()


def _field(name: str) -> Step:
    return lambda value: (value[name],) if isinstance(value, dict) and value.get(name) is not None else ()


def _slice(index: int) -> Step:
    def step(value: Any) -> Iterable[Any]:
        return (value[index],) if isinstance(value, list) and -len(value) <= index < len(value) else ()

    return step


def _filter(keys: list[str], wanted: str) -> Step:
    return lambda value: [item for item in value if value_at(item, *keys) == wanted] if isinstance(value, list) else ()
