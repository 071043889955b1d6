"""Server-side apply: merges an applied configuration, reports conflicts, removes fields that are no longer applied."""

import json
from collections.abc import Iterable
from typing import Any, cast

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.schema.structural import Schema
from trainwright.cluster.apiserver.writes.fieldpath import (
    NODE,
    Path,
    child_schema,
    element_keys,
    flatten,
    format_path,
    is_managed,
    resolved,
)
from trainwright.cluster.apiserver.writes.managed_fields import (
    FieldManager,
    ManagedFieldsEntry,
    read_entries,
    write_entries,
)
from trainwright.objects import Object
from trainwright.objects.times import format_time

_KUBECTL = "kubectl"
"""The manager of `kubectl apply --server-side`."""

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def apply_object(
    kind: ResourceType, old: Object | None, applied: Object, manager: FieldManager, *, force: bool
) -> Object:
    """`old` merged with `applied`, with new managedFields. Raises 409 on conflicts with other managers."""
    if (applied.get("metadata") or {}).get("managedFields"):
        raise errors.bad_request("metadata.managedFields must be nil")
    applied = _without_reset_fields(kind, applied, manager.subresource)
    root, lookup = kind.schema.root, kind.schema.lookup
    applied_fields = flatten(applied, root, lookup)
    current = flatten(old, root, lookup) if old else {}
    entries = read_entries(old)
    own = next((entry for entry in entries if entry.is_of(manager)), None)
    others = [entry for entry in entries if entry is not own]

    conflicts = {id(entry): _conflicting(entry, applied_fields, current) for entry in others}
    if any(conflicts.values()) and not force:
        raise _conflict([(entry, conflicts[id(entry)]) for entry in others if conflicts[id(entry)]])
    for entry in others:
        entry.paths -= conflicts[id(entry)]

    owned_by_others = set[Path]().union(*(entry.paths for entry in others))
    no_longer_applied = (own.paths if own else set()) - applied_fields.keys() - owned_by_others
    merged = _merge(kind, old or {}, applied)
    removals = _removals(no_longer_applied, owned_by_others | applied_fields.keys())
    merged = cast("Object", _without(merged, removals, root, kind))

    if own is None:
        own = ManagedFieldsEntry(manager.name, "Apply", kind.resource.api_version, manager.subresource, "")
    own.paths = {path for path, value in applied_fields.items() if value is not NODE or path[-1].startswith("k:")}
    if old is None or _content(merged) != _content(old):
        own.time = format_time(manager.now)
    if manager.name == _KUBECTL and _LAST_APPLIED in (merged["metadata"].get("annotations") or {}):
        merged["metadata"]["annotations"] = merged["metadata"]["annotations"] | {_LAST_APPLIED: _last_applied(applied)}
    write_entries(merged, [*others, own])
    return merged


def _last_applied(applied: Object) -> str:
    """The value of the annotation that client-side apply uses, so that a user can return to it."""
    metadata = dict(applied["metadata"])
    annotations = {
        key: value for key, value in (metadata.pop("annotations", None) or {}).items() if key != _LAST_APPLIED
    }
    shown = applied | {"metadata": metadata | ({"annotations": annotations} if annotations else {})}
    text = json.dumps(shown, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&":  # as Go writes JSON
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text + "\n"


def _content(obj: Object) -> Object:
    """The object without its managedFields, whose changes alone are no change at any time."""
    return obj | {"metadata": {key: value for key, value in obj["metadata"].items() if key != "managedFields"}}


def _without_reset_fields(kind: ResourceType, applied: Object, subresource: str) -> Object:
    """Without the fields that this endpoint does not write: their values are ignored, and no manager owns them."""
    if subresource == "status":
        return {key: value for key, value in applied.items() if key in {"apiVersion", "kind", "metadata", "status"}}
    return {key: value for key, value in applied.items() if key != "status" or not kind.has_status}


def _conflicting(entry: ManagedFieldsEntry, applied_fields: dict[Path, Any], current: dict[Path, Any]) -> set[Path]:
    """Fields of another manager that the apply would change."""
    return {path for path in entry.paths & applied_fields.keys() if _changes(current.get(path), applied_fields[path])}


def _changes(current: Any, applied: Any) -> bool:
    if current is NODE:  # an empty map or list changes no child
        return applied not in (NODE, {}, [])
    return bool(applied != current)


def _conflict(conflicts: list[tuple[ManagedFieldsEntry, set[Path]]]) -> StatusError:
    causes: list[Object] = []
    texts = []
    for entry, paths in conflicts:
        through = f' with subresource "{entry.subresource}"' if entry.subresource else ""
        using = f" using {entry.api_version}" if entry.operation == "Update" else ""
        owner = f'"{entry.manager}"{through}{using}'
        fields = sorted(format_path(path) for path in paths)
        causes += [{"reason": "FieldManagerConflict", "message": f"conflict with {owner}", "field": f} for f in fields]
        one = len(fields) == 1
        texts.append(f"conflict with {owner}: {fields[0]}" if one else _listed(f"conflicts with {owner}:", fields))
    noun = "conflict" if len(causes) == 1 else "conflicts"
    message = f"Apply failed with {len(causes)} {noun}: " + "\n".join(texts)
    return StatusError(409, "Conflict", message, {"causes": causes})


def _listed(title: str, fields: Iterable[str]) -> str:
    return "\n".join([title, *(f"- {field}" for field in fields)])


def _merge(kind: ResourceType, old: Object, applied: Object) -> Object:
    merged: Object = _merge_value(old, applied, kind.schema.root, kind)
    metadata = _merge_value(old.get("metadata") or {}, applied.get("metadata") or {}, {"$ref": "ObjectMeta"}, kind)
    return merged | {"metadata": metadata}


def _merge_value(old: Any, applied: Any, schema: Schema, kind: ResourceType) -> Any:
    lookup = kind.schema.lookup
    schema = resolved(schema, lookup)
    if isinstance(old, dict) and isinstance(applied, dict) and schema.get("x-kubernetes-map-type") != "atomic":
        merged = dict(old)
        for name, value in applied.items():
            merged[name] = _merge_value(old.get(name), value, child_schema(schema, name, lookup), kind)
        return merged
    if isinstance(old, list) and isinstance(applied, list):
        before, after = element_keys(old, schema), element_keys(applied, schema)
        if before is not None and after is not None:
            items = schema.get("items", {})
            elements = dict(zip(before, old, strict=True))
            for key, value in zip(after, applied, strict=True):
                elements[key] = _merge_value(elements.get(key), value, items, kind)
            return list(elements.values())
    return applied


Removals = dict[str, "Removals"]
"""Path element -> what is removed below it; empty if the whole value is."""


def _removals(no_longer_applied: set[Path], needed: set[Path]) -> Removals:
    """Fields that the manager no longer applies and no other manager owns; list elements as a whole."""
    kept = {path[:length] for path in needed for length in range(1, len(path) + 1)}
    root: Removals = {}
    for path in sorted(filter(is_managed, no_longer_applied - kept), key=len):
        below = root
        for element in path[:-1]:
            if element in below and not below[element]:
                break  # it is removed with what is above it
            below = below.setdefault(element, {})
        else:
            below[path[-1]] = {}
    return root


def _without(value: Any, removals: Removals, schema: Schema, kind: ResourceType) -> Any:
    """A copy, because the merge shares unchanged values with the stored object. A value of another type stays."""
    if isinstance(value, dict):
        left = dict(value)
        for element, below in removals.items():
            name = element.removeprefix("f:")
            if element == name or name not in left:
                continue
            if below:
                metadata = schema is kind.schema.root and name == "metadata"
                inner = {"$ref": "ObjectMeta"} if metadata else child_schema(schema, name, kind.schema.lookup)
                left[name] = _without(left[name], below, inner, kind)
            else:
                del left[name]
        return left
    schema = resolved(schema, kind.schema.lookup)
    keys = element_keys(value, schema) if isinstance(value, list) else None
    if keys is None:
        return value
    items = schema.get("items", {})
    return [
        _without(element, removals[key], items, kind) if key in removals else element
        for key, element in zip(keys, value, strict=True)
        if key not in removals or removals[key]
    ]
