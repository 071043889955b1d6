"""Suggests the right name for a misspelled one; for a field, from the OpenAPI schema of its kind."""

import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any

Schema = dict[str, Any]

_UNKNOWN = re.compile(r'unknown field "(?P<path>(?:[^"\\]|\\.)+)"')
_STEP = re.compile(r"(?P<name>[^.\[\]]+)|\[(?P<key>[^\]]*)\]")


def unknown_fields(message: str) -> list[str]:
    """The paths in a server's `strict decoding error: unknown field "a.b", unknown field "a.c"`."""
    return [match["path"] for match in _UNKNOWN.finditer(message)]


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The most similar known word, regardless of case; None if no word is similar."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[near[0]] if near else None


def did_you_mean(path: str, schema: Schema, definition: Callable[[str], Schema]) -> str | None:
    """The field of the schema that is most similar to the last step of `path`. `definition` resolves a `$ref`."""
    *parents, last = [match["name"] or match["key"] for match in _STEP.finditer(path)] or [""]
    for step in parents:
        below = _child(_resolved(schema, definition), step)
        if below is None:
            return None
        schema = below
    return nearest(last, _resolved(schema, definition).get("properties") or ())


def _child(schema: Schema, step: str) -> Schema | None:
    """The schema one step below: a property, an item of a list, or a value of a map."""
    named = (schema.get("properties") or {}).get(step)
    values = schema.get("additionalProperties")
    for candidate in (named, schema.get("items"), values):
        if isinstance(candidate, dict):
            return candidate
    return None


def _resolved(schema: Schema, definition: Callable[[str], Schema]) -> Schema:
    reference = schema.get("$ref")
    return definition(str(reference)) if reference else schema
