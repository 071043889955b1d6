"""Translates the API server's decoding errors, which name Go types and no list indexes, into the manifest's terms."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from trainwright.objects import Object
from trainwright.objects.quantities import QuantityError, parse_quantity

_TYPE_ERROR = re.compile(
    r"json: cannot unmarshal (?P<given>\w+) into Go struct field \w+\.(?P<path>\S+) of type (?P<expected>\S+)"
)
_EXPECTED = {"string": "a string", "bool": "true or false"}
_GIVEN = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
_AMOUNTS = {"limits", "requests", "overhead", "capacity"}
"""Fields whose values are maps of quantities."""
_SIZE_LIMIT = "sizeLimit"


def explain_type_error(message: str, obj: Object) -> str | None:
    """`spec.containers[0].env[1].value: must be a string, not 1: put it in quotes`; None for other messages."""
    if "quantities must match" in message or "unable to parse quantity" in message:
        return next(_wrong_quantities(obj), None)
    match = _TYPE_ERROR.search(message)
    if match is None:
        return None
    expected, given = _expected(match["expected"]), match["given"]
    found = next(_candidates(obj, match["path"].split("."), given), None)
    if found is None:
        return f"{match['path']}: must be {expected}, not a {given}"
    path, value = found
    hint = ": put it in quotes" if match["expected"] == "string" and given in {"number", "bool"} else ""
    return f"{path.lstrip('.')}: must be {expected}, not {json.dumps(value, ensure_ascii=False)}{hint}"


def _wrong_quantities(value: Any, path: str = "", *, amounts: bool = False) -> Iterator[str]:
    """The server says what a quantity looks like, but not where none is. `amounts`: the values are quantities."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _wrong_quantities(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            below = f"{path}[{key}]" if amounts else f"{path}.{key}".lstrip(".")
            if (amounts or key == _SIZE_LIMIT) and not isinstance(item, list | dict):
                if problem := _quantity_problem(item):
                    yield f"{below}: {problem}"
            else:
                yield from _wrong_quantities(item, below, amounts=key in _AMOUNTS)


def _quantity_problem(value: Any) -> str | None:
    try:
        parse_quantity(value)
    except QuantityError as error:
        return f"{error}; Gi, not GB" if str(value).endswith(("B", "b")) else str(error)
    return None


def _expected(go_type: str) -> str:
    if go_type.startswith("[]"):
        return "a list"
    if go_type.startswith(("int", "uint")):
        return "an integer"
    return _EXPECTED.get(go_type, "an object")


def _candidates(value: Any, steps: Sequence[str], given: str) -> Iterator[tuple[str, Any]]:
    """The values of the JSON type `given` that match the path: the server omits list indexes and map keys."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _below(f"[{index}]", item, steps, given)
    elif steps and isinstance(value, dict) and steps[0] in value:
        yield from _below(f".{steps[0]}", value[steps[0]], steps[1:], given)
    elif not steps and isinstance(value, dict):
        for key, item in value.items():
            yield from _below(f"[{key}]", item, steps, given)
    if not steps and _GIVEN.get(type(value)) == given:
        yield "", value


def _below(step: str, value: Any, steps: Sequence[str], given: str) -> Iterator[tuple[str, Any]]:
    for path, found in _candidates(value, steps, given):
        yield f"{step}{path}", found
