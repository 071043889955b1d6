"""Field sets as paths, and their FieldsV1 form `{"f:spec": {".": {}, "f:replicas": {}}}`.

A path is a tuple of FieldsV1 elements: `f:NAME` a field, `k:{…}` an element of a keyed list, `v:…` one of a set.
"""

import json
from typing import Any

from trainwright.cluster.apiserver.schema.structural import Lookup, Schema
from trainwright.objects import Object

Path = tuple[str, ...]

NODE = object()
"""The value of a path that has children."""

_KEY_DEFAULTS = {"protocol": "TCP"}
"""Ports are also keyed by protocol, which manifests may omit."""

_NOT_MANAGED = frozenset(
    {(), ("f:apiVersion",), ("f:kind",), ("f:metadata",)}
) | frozenset(
    ("f:metadata", f"f:{name}")
    for name in (
        "name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink",
        "deletionTimestamp", "deletionGracePeriodSeconds",
    )
)  # fmt: skip


def flatten(obj: Object, schema: Schema, lookup: Lookup) -> dict[Path, Any]:
    """Every path of the object that a manager can own, with its value. An atomic list or map is one value."""
    found: dict[Path, Any] = {}
    for name, value in obj.items():
        below = child_schema(schema, name, lookup)
        _flatten(value, {"$ref": "ObjectMeta"} if name == "metadata" else below, lookup, (f"f:{name}",), found)
    return {path: value for path, value in found.items() if is_managed(path)}


def is_managed(path: Path) -> bool:
    """Whether a manager can own the field; clients may write anything into managedFields."""
    return path[:2] not in _NOT_MANAGED


def _flatten(value: Any, schema: Schema, lookup: Lookup, path: Path, found: dict[Path, Any]) -> None:
    schema = resolved(schema, lookup)
    if isinstance(value, dict) and value and schema.get("x-kubernetes-map-type") != "atomic":
        found[path] = NODE
        for name, below in value.items():
            _flatten(below, child_schema(schema, name, lookup), lookup, (*path, f"f:{name}"), found)
        return
    if isinstance(value, list) and value and (keys := element_keys(value, schema)) is not None:
        found[path] = NODE
        for key, below in zip(keys, value, strict=True):
            _flatten(below, schema.get("items", {}), lookup, (*path, key), found)
        return
    found[path] = value


def element_keys(value: list[Any], schema: Schema) -> list[str] | None:
    """The key of each element; None for an atomic list."""
    match schema.get("x-kubernetes-list-type"):
        case "set":
            return [f"v:{_compact(element)}" for element in value]
        case "map":
            names = schema.get("x-kubernetes-list-map-keys", [])
            if not all(isinstance(element, dict) for element in value):
                return None
            return [f"k:{_compact(_key_of(element, names))}" for element in value]
    return None


def resolved(schema: Schema, lookup: Lookup) -> Schema:
    """The schema behind a reference; the reference's own merge settings take precedence."""
    if "$ref" not in schema:
        return schema
    return lookup(schema["$ref"]) | {key: value for key, value in schema.items() if key != "$ref"}


def child_schema(schema: Schema, name: str, lookup: Lookup) -> Schema:
    schema = resolved(schema, lookup)
    below = schema.get("properties", {}).get(name) or schema.get("additionalProperties")
    return below if isinstance(below, dict) else {}


def _key_of(element: Object, names: list[str]) -> Object:
    values = {name: element.get(name, _KEY_DEFAULTS.get(name)) for name in names}
    return {name: value for name, value in sorted(values.items()) if value is not None}


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def to_fields_v1(paths: set[Path]) -> Object:
    tree: Object = {}
    for path in sorted(paths):
        node = tree
        for element in path:
            node = node.setdefault(element, {})
    _mark_members(tree, (), paths)
    return tree


def _mark_members(node: Object, path: Path, paths: set[Path]) -> None:
    for element, below in tuple(node.items()):
        here = (*path, element)
        if below:
            _mark_members(below, here, paths)
            if here in paths:
                node[element] = {".": {}} | below


def from_fields_v1(fields: Any) -> set[Path]:
    """Malformed entries are ignored."""
    paths: set[Path] = set()
    _decode(fields, (), paths)
    return paths


def _decode(node: Any, path: Path, paths: set[Path]) -> None:
    if not isinstance(node, dict):
        return
    for element, below in node.items():
        if element == ".":
            paths.add(path)
        elif not below:
            paths.add((*path, element))
        else:
            _decode(below, (*path, element), paths)


def format_path(path: Path) -> str:
    """`.spec.parts[id="1"].n`, the form of conflict messages."""
    text = ""
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            keys = ",".join(f"{name}={_compact(value)}" for name, value in json.loads(rest).items())
            text += f"[{keys}]"
        else:
            text += f"[={rest}]"
    return text
