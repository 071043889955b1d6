"""Why an object of Kubernetes' own kinds cannot be decoded, in the words of Go's JSON decoder that users know."""

import re

from trainwright.cluster.apiserver.schema.structural import Lookup, Schema
from trainwright.objects.field_errors import ErrorType, FieldError

_GO_SCALARS = {"boolean": "bool", "string": "string", "number": "float64"}
_PART = re.compile(r"[^.\[\]]+|\[\d+\]")
_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class BadFieldType(Exception):  # noqa: N818 - says what the field has
    """A field holds another JSON type than its Go type can take: such an object cannot even be decoded."""

    def __init__(self, root: str, error: FieldError, lookup: Lookup) -> None:
        super().__init__(_decoder_message(root, error, lookup))


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
    for part in _PART.findall(error.path):
        schema = schema.get("schema", schema)
        owner = schema.get("$ref", owner)
        resolved = lookup(owner) if "$ref" in schema else schema
        if part.startswith("["):
            schema = resolved.get("items", {})
            continue
        if "properties" in resolved:
            names.append(part)
        schema = resolved.get("properties", {}).get(part) or resolved.get("additionalProperties") or {}
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
