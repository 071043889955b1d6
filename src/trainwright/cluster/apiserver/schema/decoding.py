"""Decodes objects by their schema: unknown fields are pruned, defaults set, violations reported.

An object of a built-in kind with a value of the wrong type is refused in the words of Go's JSON decoder.
"""

import re
from dataclasses import replace
from functools import cached_property

from trainwright.cluster.apiserver.schema.structural import (
    Findings,
    Lookup,
    Schema,
    Transition,
    Walk,
    compile_schema,
    compile_transitions,
)
from trainwright.objects import Object
from trainwright.objects.field_errors import ErrorType, FieldError

_GO_SCALARS = {"boolean": "bool", "string": "string", "number": "float64"}
_SEGMENT = re.compile(r"[^.\[\]]+|\[\d+\]")
_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class DecodeError(Exception):
    """A field has another JSON type than its Go type, so the object cannot be decoded."""

    def __init__(self, root: str, error: FieldError, lookup: Lookup) -> None:
        super().__init__(_decoder_message(root, error, lookup))


class ObjectSchema:
    """A kind's schema, compiled when its first object is decoded."""

    def __init__(self, root: Schema, lookup: Lookup, *, builtin: str = "") -> None:
        """`builtin` is the name of a built-in kind's definition; empty for a custom resource."""
        self.root = root
        self.lookup = lookup
        self.custom = not builtin
        self._builtin = builtin

    def decode(self, obj: Object) -> Findings:
        """Prunes and defaults `obj` in place. The findings are its unknown fields and its violations of the schema."""
        metadata, found = Findings(), Findings()
        if self.custom:
            self._metadata_walk(obj["metadata"], "metadata", metadata)
        if metadata.errors:
            wrong = metadata.errors[0]
            below = replace(wrong, path=wrong.path.removeprefix("metadata."))
            raise DecodeError("ObjectMeta", below, self.lookup)
        self._walk(obj, "", found)
        if not self.custom and found.errors:
            raise DecodeError(self._builtin, found.errors[0], self.lookup)
        if self.custom:
            found.unknown = sorted([*metadata.unknown, *found.unknown])
        return found

    @cached_property
    def _walk(self) -> Walk:
        return compile_schema(self.root, None if self.custom else self.lookup, root=self.custom)

    @cached_property
    def _metadata_walk(self) -> Walk:
        return compile_schema({"$ref": "ObjectMeta"}, self.lookup)

    @cached_property
    def _transitions(self) -> Transition | None:
        return compile_transitions(self.root) if self.custom else None

    @property
    def has_validation_rules(self) -> bool:
        """True if the schema has CEL rules that are enforced."""
        return self._transitions is not None

    def transition_errors(self, new: Object, old: Object) -> list[FieldError]:
        return self._transitions(new, old, "") if self._transitions else []


def _decoder_message(root: str, error: FieldError, lookup: Lookup) -> str:
    """`json: cannot unmarshal string into Go struct field Container.spec.containers.tty of type bool`."""
    if error.type is ErrorType.INVALID:
        return _QUANTITY if "quantity" in error.detail else error.detail
    if error.type is not ErrorType.TYPE_INVALID:
        return str(error)
    given = error.shown.strip('"')
    given = {"boolean": "bool", "integer": "number"}.get(given, given)
    owner, names = root, []
    schema: Schema = {"$ref": root}
    for segment in _SEGMENT.findall(error.path):
        schema = schema.get("schema", schema)
        owner = schema.get("$ref", owner)
        resolved = lookup(owner) if "$ref" in schema else schema
        if segment.startswith("["):
            schema = resolved.get("items", {})
            continue
        if "properties" in resolved:
            names.append(segment)
        schema = resolved.get("properties", {}).get(segment) or resolved.get("additionalProperties") or {}
    return f"json: cannot unmarshal {given} into Go struct field {owner}.{'.'.join(names)} of type {_go_type(schema)}"


def _go_type(schema: Schema) -> str:
    if "$ref" in schema:
        return f"v1.{schema['$ref']}"
    match schema.get("type"):
        case "array":
            return f"[]{_go_type(schema.get('items', {}))}"
        case "object":
            return f"map[string]{_go_type(schema.get('additionalProperties') or {'type': 'string'})}"
        case "integer":
            return str(schema.get("format", "int64"))
        case name:
            return _GO_SCALARS.get(str(name), "string")
