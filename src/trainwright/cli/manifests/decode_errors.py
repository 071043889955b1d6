"""Says in a manifest's own words which value a server could not decode: it speaks of Go's types and counts no lists."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from trainwright.objects import Object

_MISFIT = re.compile(
    r"json: cannot unmarshal (?P<given>\w+) into Go struct field \w+\.(?P<path>\S+) of type (?P<wanted>\S+)"
)
_WANTED = {"string": "text", "bool": "true or false"}
_GIVEN = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}


def misfit(message: str, obj: Object) -> str | None:
    """`spec.containers[0].env[1].value: must be text, not 1: put it in quotes`; None if the message is another one."""
    match = _MISFIT.search(message)
    if match is None:
        return None
    wanted, given = _wanted(match["wanted"]), match["given"]
    found = next(_candidates(obj, match["path"].split("."), given), None)
    if found is None:
        return f"{match['path']}: must be {wanted}, not a {given}"
    path, value = found
    hint = ": put it in quotes" if wanted == "text" and given in {"number", "bool"} else ""
    return f"{path.lstrip('.')}: must be {wanted}, not {json.dumps(value, ensure_ascii=False)}{hint}"


def _wanted(go_type: str) -> str:
    if go_type.startswith("[]"):
        return "a list"
    if go_type.startswith(("int", "uint")):
        return "a whole number"
    return _WANTED.get(go_type, "a mapping")


def _candidates(value: Any, steps: Sequence[str], given: str) -> Iterator[tuple[str, Any]]:
    """The values of the JSON type `given` that the path may mean: the server names no places in lists and maps."""
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
