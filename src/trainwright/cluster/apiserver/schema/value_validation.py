"""Value validation of OpenAPI schemas (enum, bounds, pattern, format, combinations) with the real server's messages."""

import base64
import binascii
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from trainwright.objects.field_errors import (
    FieldError,
    duplicate,
    invalid,
    invalid_type,
    not_supported,
    required,
    too_long,
    too_many,
)
from trainwright.objects.times import parse_time

_GO_TEXTS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
}


class PatternError(ValueError):
    """The pattern is not a regular expression; the message is Go's."""


@cache
def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Whether a text contains a match."""
    re2, options = _library()
    try:
        compiled = re2.compile(pattern, options=options)
    except (re2.error, UnicodeEncodeError) as error:
        raise PatternError(_go_text(error)) from error
    return lambda text: compiled.search(text) is not None


@cache
def _library() -> tuple[Any, Any]:
    import re2  # only clusters with such CRDs need it

    options = re2.Options()
    options.log_errors = False
    return re2, options


def _go_text(error: Exception) -> str:
    detail = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
    what, _, fragment = detail.partition(": ")
    quoted = f": `{fragment}`" if fragment else ""
    return f"error parsing regexp: {_GO_TEXTS.get(what, what)}{quoted}"


Check = Callable[[Any, str], list[FieldError]]

JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}

_BOUNDS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (lambda value, limit: value >= limit, "should be greater than or equal to {}"),
    "maximum": (lambda value, limit: value <= limit, "should be less than or equal to {}"),
    "exclusiveMinimum": (lambda value, limit: value > limit, "should be greater than {}"),
    "exclusiveMaximum": (lambda value, limit: value < limit, "should be less than {}"),
    "multipleOf": (lambda value, limit: value % limit == 0, "should be a multiple of {}"),
}


def json_type(value: Any) -> str:
    """The type's name as error messages give it."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int():
            return "integer"
        case float():
            return "number"
        case list():
            return "array"
        case _:
            return "object"


def value_checks(schema: dict[str, Any]) -> list[Check]:
    """The checks of `schema` itself, without its type and its fields."""
    checks: list[Check] = []
    if "enum" in schema:
        checks.append(_enum(schema["enum"]))
    checks += _bounds(schema)
    checks += text_checks(schema)
    checks += _size_checks(schema)
    checks += _list_checks(schema)
    checks += _combinations(schema)
    return checks


def _enum(allowed: list[Any]) -> Check:
    return lambda value, path: [] if value in allowed else [not_supported(path, value, allowed)]


def _bounds(schema: dict[str, Any]) -> list[Check]:
    bounds = {name: schema[name] for name in _BOUNDS if isinstance(schema.get(name), (int, float))}
    for side in ("minimum", "maximum"):
        exclusive = f"exclusive{side.capitalize()}"
        if schema.get(exclusive) is True and side in bounds:
            bounds[exclusive] = bounds.pop(side)
        elif isinstance(schema.get(exclusive), bool):
            bounds.pop(exclusive, None)
    return [_bound(*_BOUNDS[name], limit) for name, limit in bounds.items()]


def _bound(holds: Callable[[Any, Any], bool], text: str, limit: float) -> Check:
    def check(value: Any, path: str) -> list[FieldError]:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or holds(value, limit):
            return []
        return [invalid(path, value, f"{path} in body {text.format(limit)}")]

    return check


def text_checks(schema: dict[str, Any]) -> list[Check]:
    """Checks of strings; built-in kinds have times and base64, which Go reads while it decodes."""
    checks: list[Check] = []
    if (shortest := schema.get("minLength")) is not None:
        checks.append(_text(lambda text: len(text) >= shortest, f"should be at least {shortest} chars long"))
    if (longest := schema.get("maxLength")) is not None:
        checks.append(lambda v, path: [too_long(path, longest)] if isinstance(v, str) and len(v) > longest else [])
    if pattern := schema.get("pattern"):
        checks.append(_text(compile_pattern(pattern), f"should match '{pattern}'"))
    if schema.get("format") == "date-time" and schema.get("type") == "string":
        checks.append(_date_time)
    if schema.get("format") == "byte":
        checks.append(_base64)
    return checks


def _text(holds: Callable[[str], bool], text: str) -> Check:
    def check(value: Any, path: str) -> list[FieldError]:
        if not isinstance(value, str) or holds(value):
            return []
        return [invalid(path, value, f"{path} in body {text}")]

    return check


def _date_time(value: Any, path: str) -> list[FieldError]:
    try:
        parse_time(value)
    except ValueError:
        return [invalid_type(path, value, f'{path} in body must be of type date-time: "{value}"')]
    return []


def _base64(value: Any, path: str) -> list[FieldError]:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return [invalid(path, value, "illegal base64 data")]
    return []


def _size_checks(schema: dict[str, Any]) -> list[Check]:
    checks: list[Check] = []
    for noun, kind in (("items", list), ("properties", dict)):
        suffix = noun.capitalize()
        if (least := schema.get(f"min{suffix}")) is not None:
            checks.append(_at_least(kind, least, noun))
        if (most := schema.get(f"max{suffix}")) is not None:
            checks.append(_at_most(kind, most))
    return checks


def _at_least(kind: type, least: int, noun: str) -> Check:
    def check(value: Any, path: str) -> list[FieldError]:
        if not isinstance(value, kind) or len(value) >= least:  # type: ignore[arg-type]  # kind is list or dict
            return []
        return [invalid(path, len(value), f"{path} in body should have at least {least} {noun}")]  # type: ignore[arg-type]  # as above

    return check


def _at_most(kind: type, most: int) -> Check:
    def check(value: Any, path: str) -> list[FieldError]:
        return [too_many(path, len(value), most)] if isinstance(value, kind) and len(value) > most else []  # type: ignore[arg-type]  # kind is list or dict

    return check


def _list_checks(schema: dict[str, Any]) -> list[Check]:
    match schema.get("x-kubernetes-list-type"):
        case "set":
            return [_no_duplicates(lambda element: element)]
        case "map":
            keys = schema.get("x-kubernetes-list-map-keys", [])
            return [_no_duplicates(lambda element: {key: element[key] for key in keys if key in element})]
    return []


def _no_duplicates(identity: Callable[[Any], Any]) -> Check:
    def check(value: Any, path: str) -> list[FieldError]:
        seen: set[bytes] = set()
        found = []
        for index, element in enumerate(value if isinstance(value, list) else ()):
            key = identity(element)
            text = msgspec.json.encode(key, order="deterministic")
            if text in seen:
                found.append(duplicate(f"{path}[{index}]", key))
            seen.add(text)
        return found

    return check


def _combinations(schema: dict[str, Any]) -> list[Check]:
    """allOf, anyOf, oneOf and not. In a structural schema they only validate; they never prune or default."""
    checks: list[Check] = [_subschema(sub) for sub in schema.get("allOf", ())]
    if options := [_subschema(sub) for sub in schema.get("anyOf", ())]:
        checks.append(_count(options, lambda valid: valid >= 1, "at least one schema (anyOf)"))
    if options := [_subschema(sub) for sub in schema.get("oneOf", ())]:
        checks.append(_count(options, lambda valid: valid == 1, "one and only one schema (oneOf)"))
    if "not" in schema:
        refused = _subschema(schema["not"])
        checks.append(
            lambda value, path: (
                [] if refused(value, path) else [invalid("<nil>", "", f'"{path}" must not validate the schema (not)')]
            )
        )
    return checks


def _count(options: list[Check], enough: Callable[[int], bool], wanted: str) -> Check:
    def check(value: Any, path: str) -> list[FieldError]:
        outcomes = [option(value, path) for option in options]
        valid = sum(not outcome for outcome in outcomes)
        if enough(valid):
            return []
        how_many = "" if "anyOf" in wanted else f". Found {valid or 'none'} valid"
        found = [invalid("<nil>", "", f'"{path}" must validate {wanted}{how_many}')]
        return found + (outcomes[0] if not valid else [])

    return check


def _subschema(schema: dict[str, Any]) -> Check:
    """The check of one schema of a combination, with types and required fields."""
    own = value_checks(schema)
    wanted = JSON_TYPES.get(schema.get("type", ""))
    fields = {name: _subschema(sub) for name, sub in schema.get("properties", {}).items()}
    items = _subschema(schema["items"]) if isinstance(schema.get("items"), dict) else None
    needed = schema.get("required", ())

    def check(value: Any, path: str) -> list[FieldError]:
        if wanted and (not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted)):
            given, expected = json_type(value), schema["type"]
            return [invalid_type(path, given, f'{path} in body must be of type {expected}: "{given}"')]
        found = [error for check_keyword in own for error in check_keyword(value, path)]
        if isinstance(value, dict):
            found += [required(f"{path}.{name}") for name in needed if name not in value]
            for name in fields.keys() & value.keys():
                found += fields[name](value[name], f"{path}.{name}")
        if items and isinstance(value, list):
            for index, element in enumerate(value):
                found += items(element, f"{path}[{index}]")
        return found

    return check
