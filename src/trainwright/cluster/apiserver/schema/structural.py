"""Structural schemas, compiled once to closures that prune, default and validate an object in a single walk.

Custom resources have the OpenAPI v3 schema of their CRD, built-in kinds the one that the real server publishes.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from trainwright.cluster.apiserver.schema.value_validation import JSON_TYPES, json_type, text_checks, value_checks
from trainwright.objects import Object, field_errors
from trainwright.objects.field_errors import FieldError
from trainwright.objects.json_numbers import MAX_INT64, MIN_INT64
from trainwright.objects.quantities import QuantityError, format_quantity, parse_quantity

Schema = dict[str, Any]
Lookup = Callable[[str], Schema]


@dataclass(slots=True)
class Findings:
    """Unknown fields, which are already removed from the object, and violations of the schema."""

    unknown: list[str] = field(default_factory=list)
    errors: list[FieldError] = field(default_factory=list)
    default_bytes: int = 0
    """The size of the defaults that were set, as JSON."""


Walk = Callable[[Any, str, Findings], Any]
"""Takes a value and its path, returns the value to keep."""


@dataclass(frozen=True, slots=True)
class _Field:
    walk: Walk
    nullable: bool
    default: Any


_NO_DEFAULT = object()
_MAX_DEFAULT_BYTES = 3 * 1024 * 1024
"""The size of all defaults in one object, which cannot be stored beyond it: each element of a list can get them."""


def compile_schema(schema: Schema, lookup: Lookup | None = None, *, root: bool = False) -> Walk:
    """The walk for values of `schema`. At the `root` of an object it skips apiVersion, kind and metadata."""
    if "$ref" in schema:
        return _reference(schema["$ref"], lookup)
    own = _own_walk(schema, lookup, root=root)
    # The strategies of built-in kinds validate their values.
    checks = value_checks(schema) if lookup is None else text_checks(schema)
    if not checks:
        return own

    def walk(value: Any, path: str, found: Findings) -> Any:
        before = len(found.errors)
        value = own(value, path, found)
        if value is not None and len(found.errors) == before:
            for check in checks:
                found.errors.extend(check(value, path))
        return value

    return walk


def _reference(name: str, lookup: Lookup | None) -> Walk:
    """Definitions may refer to each other in circles, so each is compiled at its first use."""
    if lookup is None:
        raise ValueError(f"$ref {name!r} in a schema without definitions")
    compiled: list[Walk] = []

    def walk(value: Any, path: str, found: Findings) -> Any:
        if not compiled:
            compiled.append(compile_schema(lookup(name), lookup))
        return compiled[0](value, path, found)

    return walk


def _own_walk(schema: Schema, lookup: Lookup | None, *, root: bool) -> Walk:
    if is_int_or_string(schema):
        return _typed("integer,string", (int, str))
    match schema.get("format"):
        case "quantity":
            return _quantity
        case "schema-or-boolean":
            return _or_boolean(compile_schema(schema["schema"], lookup))
    match schema.get("type"):
        case "object":
            return _object(schema, lookup, root=root)
        case "array":
            return _array(schema, lookup)
        case "integer":
            return _integer if lookup is None else _go_integer(schema)
        case str(name) if name in JSON_TYPES:
            return _typed(name, JSON_TYPES[name])
        case _:
            return _anything


def is_int_or_string(schema: Schema) -> bool:
    return bool(schema.get("x-kubernetes-int-or-string")) or schema.get("format") == "int-or-string"


def _anything(value: Any, _path: str, _found: Findings) -> Any:
    return value


def _typed(name: str, types: tuple[type, ...]) -> Walk:
    allow_bool = bool in types

    def walk(value: Any, path: str, found: Findings) -> Any:
        if not isinstance(value, types) or (isinstance(value, bool) and not allow_bool):
            found.errors.append(wrong_type(path, value, name))
        return value

    return walk


def _integer(value: Any, path: str, found: Findings) -> Any:
    if isinstance(value, float) and value.is_integer() and MIN_INT64 <= value < MAX_INT64:
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        found.errors.append(wrong_type(path, value, "integer"))
    return value


def _go_integer(schema: Schema) -> Walk:
    """An integer of a built-in kind: Go decodes its text, so that 1.0 is none, and neither is one of too many bits."""
    limit = 2**31 if schema.get("format") == "int32" else 2**63

    def walk(value: Any, path: str, found: Findings) -> Any:
        if not isinstance(value, int | float) or isinstance(value, bool):
            found.errors.append(wrong_type(path, value, "integer"))
        elif isinstance(value, float) or not -limit <= value < limit:
            found.errors.append(replace(wrong_type(path, value, "integer"), shown=f"number {value}"))
        return value

    return walk


def _or_boolean(walk: Walk) -> Walk:
    return lambda value, path, found: value if isinstance(value, bool) else walk(value, path, found)


def _quantity(value: Any, path: str, found: Findings) -> Any:
    """Manifests may have numbers here; strings are stored."""
    try:
        parse_quantity(value)
    except QuantityError as error:
        found.errors.append(field_errors.invalid(path, value, str(error)))
        return value
    return value if isinstance(value, str) else format_quantity(parse_quantity(value))


def wrong_type(path: str, value: Any, expected: str) -> FieldError:
    given = json_type(value)
    return field_errors.invalid_type(path, given, f'{path} in body must be of type {expected}: "{given}"')


def _array(schema: Schema, lookup: Lookup | None) -> Walk:
    item = compile_schema(schema.get("items", {}), lookup)
    nullable = bool(schema.get("items", {}).get("nullable"))

    def walk(value: Any, path: str, found: Findings) -> Any:
        if not isinstance(value, list):
            found.errors.append(wrong_type(path, value, "array"))
            return value
        for index, element in enumerate(value):
            if element is not None or not nullable:
                value[index] = item(element, f"{path}[{index}]", found)
        return value

    return walk


@dataclass(frozen=True, slots=True)
class _ObjectWalk:
    """The walk over an object with known fields; `others` are the values of a map."""

    fields: dict[str, _Field]
    others: _Field | None
    defaults: dict[str, tuple[Any, int]]
    """With their sizes as JSON."""
    required: tuple[str, ...]
    ignored: frozenset[str]
    keeps_unknown: bool

    def __call__(self, value: Any, path: str, found: Findings) -> Any:
        if not isinstance(value, dict):
            found.errors.append(wrong_type(path, value, "object"))
            return value
        for name, (default, size) in self.defaults.items():
            if value.get(name) is None and not (name in value and self.fields[name].nullable):
                found.default_bytes += size
                if found.default_bytes > _MAX_DEFAULT_BYTES:
                    if found.default_bytes - size <= _MAX_DEFAULT_BYTES:
                        found.errors.append(field_errors.too_long(path, _MAX_DEFAULT_BYTES))
                    break
                value[name] = copy.deepcopy(default)
        prefix = f"{path}." if path else ""
        for name in tuple(value):
            if name not in self.ignored:
                self._walk_field(value, name, prefix + name, found)
        found.errors.extend(field_errors.required(prefix + name) for name in self.required if name not in value)
        return value

    def _walk_field(self, value: Object, name: str, path: str, found: Findings) -> None:
        known = self.fields.get(name, self.others)
        if known is None:
            if not self.keeps_unknown:
                found.unknown.append(path)
                del value[name]
        elif value[name] is not None:
            value[name] = known.walk(value[name], path, found)
        elif not known.nullable:
            del value[name]


def _object(schema: Schema, lookup: Lookup | None, *, root: bool) -> Walk:
    fields = {name: _field(sub, lookup) for name, sub in schema.get("properties", {}).items()}
    additional = schema.get("additionalProperties")
    embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    required = (*schema.get("required", ()), *(("apiVersion", "kind") if embedded else ()))
    return _ObjectWalk(
        fields=fields,
        others=_field(additional, lookup) if isinstance(additional, dict) else None,
        defaults={
            name: (sub.default, len(name) + len(msgspec.json.encode(sub.default)))
            for name, sub in fields.items()
            if sub.default is not _NO_DEFAULT
        },
        # The strategies of built-in kinds report their missing fields.
        required=required if lookup is None else (),
        ignored=frozenset({"apiVersion", "kind", "metadata"}) if root or embedded else frozenset(),
        keeps_unknown=_keeps_unknown(schema, builtin=lookup is not None),
    )


def _keeps_unknown(schema: Schema, *, builtin: bool) -> bool:
    """A bare `type: object` of a built-in kind, such as FieldsV1, has any fields."""
    if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("additionalProperties") is True:
        return True
    return builtin and "properties" not in schema and "additionalProperties" not in schema


def _field(schema: Schema, lookup: Lookup | None) -> _Field:
    default = schema.get("default", _NO_DEFAULT)
    return _Field(compile_schema(schema, lookup), bool(schema.get("nullable")), default)


Transition = Callable[[Any, Any, str], list[FieldError]]


def compile_transitions(schema: Schema) -> Transition | None:
    """The walk over new and old value that enforces `self == oldSelf`; None if the schema has no such rule."""
    rules = [rule for rule in schema.get("x-kubernetes-validations", ()) if is_enforced(rule)]
    fields = {name: below for name, sub in schema.get("properties", {}).items() if (below := compile_transitions(sub))}
    additional = schema.get("additionalProperties")
    others = compile_transitions(additional) if isinstance(additional, dict) else None
    if not rules and not fields and others is None:
        return None

    def walk(new: Any, old: Any, path: str) -> list[FieldError]:
        found = [field_errors.invalid(path, new, message_of(rule)) for rule in rules] if new != old else []
        if isinstance(new, dict) and isinstance(old, dict):
            for name in new.keys() & old.keys():
                below = fields.get(name, others)
                if below is not None:
                    found += below(new[name], old[name], f"{path}.{name}" if path else name)
        return found

    return walk


def is_enforced(rule: Object) -> bool:
    return "".join(str(rule.get("rule", "")).split()) == "self==oldSelf"


def message_of(rule: Object) -> str:
    return str(rule.get("message") or f"failed rule: {rule['rule']}")


def unenforced_rules(schema: Schema, path: str = "") -> list[tuple[str, str]]:
    """Path and text of each CEL rule that this server does not evaluate."""
    found = [
        (path or "<root>", str(r.get("rule"))) for r in schema.get("x-kubernetes-validations", ()) if not is_enforced(r)
    ]
    for name, sub in schema.get("properties", {}).items():
        found += unenforced_rules(sub, f"{path}.{name}" if path else name)
    if isinstance(additional := schema.get("additionalProperties"), dict):
        found += unenforced_rules(additional, f"{path}[*]")
    if isinstance(items := schema.get("items"), dict):
        # No rule is evaluated inside a list, because its elements are not matched with the old ones.
        inside = unenforced_rules(items, f"{path}[*]")
        found += inside + [(f"{path}[*]", text) for text in _enforced_below(items)]
    return found


def _enforced_below(schema: Schema) -> list[str]:
    texts = [str(rule["rule"]) for rule in schema.get("x-kubernetes-validations", ()) if is_enforced(rule)]
    for sub in schema.get("properties", {}).values():
        texts += _enforced_below(sub)
    return texts
