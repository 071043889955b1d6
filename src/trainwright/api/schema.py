"""Renders msgspec types as the structural schemas that a CRD requires."""

from typing import Any

import msgspec

from trainwright.objects import Object

_BOUNDS_OF_TYPES = {-(2**31), 2**31 - 1, -(2**63), 2**63 - 1}
"""Implied by `format`; upstream's schema leaves them out too."""


def structural_schema(type_: type[Any]) -> Object:
    """The schema of a type without references, nullable fields and keywords that Kubernetes does not support."""
    (reference,), definitions = msgspec.json.schema_components([type_], ref_template="{name}")
    schema: Object = _inline(reference, definitions)
    return schema


def _inline(schema: Any, definitions: dict[str, Any]) -> Any:
    if "$ref" in schema:
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return _inline({**definitions[schema["$ref"]], **beside}, definitions)
    if "anyOf" in schema and not schema.get("x-kubernetes-int-or-string"):
        present = [choice for choice in schema["anyOf"] if choice != {"type": "null"}]
        beside = {key: value for key, value in schema.items() if key != "anyOf"}
        return _inline({**present[0], **beside}, definitions)
    inlined = {key: value for key, value in schema.items() if _is_kept(key, value)}
    if "properties" in inlined:
        inlined["properties"] = {name: _inline(part, definitions) for name, part in inlined["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in inlined:
            inlined[key] = _inline(inlined[key], definitions)
    return inlined


def _is_kept(key: str, value: Any) -> bool:
    if key in {"minimum", "maximum"}:
        return value not in _BOUNDS_OF_TYPES
    return key not in {"title", "default"} and (key, value) != ("required", [])
