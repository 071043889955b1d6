"""Decodes values with msgspec and turns its errors into Kubernetes' field errors."""

import re
from typing import Any, TypeVar

import msgspec

from trainwright.api.errors import InvalidJob, invalid
from trainwright.objects.field_errors import FieldError, required

T = TypeVar("T")

_LOCATED = re.compile(r"(?P<problem>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_WRONG_TYPE = re.compile(r"Expected `(?P<expected>[^`]*)`, got `(?P<got>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_TYPES = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
_STEP = re.compile(r"\.(?P<key>[^.\[]+)|\[(?P<index>\d+)\]")


def read(value: Any, type_: type[T], path: str) -> T:
    """`value` as `type_`. Raises InvalidJob, which names the field below `path`."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as problem:
        raise InvalidJob([_explain(str(problem), value, path)]) from None
    except UnicodeError:
        raise InvalidJob([invalid(path, type(value).__name__, "contains text that is not valid Unicode")]) from None


def problem_with(value: Any, type_: type[Any], path: str) -> FieldError | None:
    try:
        read(value, type_, path)
    except InvalidJob as error:
        return error.errors[0]
    return None


def is_readable(value: Any, type_: type[Any]) -> bool:
    return problem_with(value, type_, "") is None


def _explain(text: str, value: Any, prefix: str) -> FieldError:
    located = _LOCATED.fullmatch(text)
    problem, below = (located["problem"], located["path"] or "") if located else (text, "")
    path = prefix + below
    if missing := _MISSING.fullmatch(problem):
        return required(f"{path}.{missing['name']}", "must be specified")
    wrong = _WRONG_TYPE.fullmatch(problem)
    detail = f"must be {_plain(wrong['expected'])}, not {_plain(wrong['got'])}" if wrong else _lower(problem)
    return invalid(path, _at(value, below), detail)


def _at(value: Any, path: str) -> Any:
    """The invalid value, or the map that contains it: msgspec's path has no keys of maps."""
    for step in _STEP.finditer(path.partition("[...]")[0]):
        value = value[int(step["index"])] if step["index"] else value[step["key"]]
    return value if isinstance(value, str | int | float | None) else type(value).__name__


def _plain(types: str) -> str:
    """msgspec's names of types, `int | null`, in words."""
    names = types.split(" | ")
    return " or ".join(_TYPES.get(name, name) for name in names if name != "null" or len(names) == 1)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:].replace("`", "")
