"""Server-side apply: a manager's wish merged into the object, with conflicts named and its former wishes taken back."""

from collections.abc import Iterable
from typing import Any

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.errors import ApiFailure
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.schema.structural import Schema
from trainwright.cluster.apiserver.writes.fieldsets import (
    NODE,
    Path,
    child_schema,
    element_keys,
    flatten,
    resolved,
    shown,
)
from trainwright.cluster.apiserver.writes.managed_fields import Author, Entry, read_entries, write_entries
from trainwright.objects import Object
from trainwright.objects.times import format_time


def applied(kind: ResourceType, old: Object | None, wish: Object, author: Author, *, force: bool) -> Object:
    """The object after the wish; its managedFields are up to date. Raises 409 where others want something else."""
    if (wish.get("metadata") or {}).get("managedFields"):
        raise errors.bad_request("metadata.managedFields must be nil")
    root, lookup = kind.schema.root, kind.schema.lookup
    wished = flatten(wish, root, lookup)
    current = flatten(old, root, lookup) if old else {}
    entries = read_entries(old)
    own = next((one for one in entries if one.is_of(author)), None)
    others = [one for one in entries if one is not own]

    disputed = {id(one): _disputed(one, wished, current) for one in others}
    if any(disputed.values()) and not force:
        raise _conflict([(one, disputed[id(one)]) for one in others if disputed[id(one)]])
    for one in others:
        one.paths -= disputed[id(one)]

    kept_by_others = set[Path]().union(*(one.paths for one in others))
    withdrawn = (own.paths if own else set()) - wished.keys() - kept_by_others
    merged = _merge(kind, old or {}, wish)
    _remove(merged, withdrawn, kept_by_others | wished.keys(), root, kind)

    if own is None:
        own = Entry(author.manager, "Apply", kind.resource.api_version, author.subresource, "")
    owned = {path for path, value in wished.items() if value is not NODE or path[-1].startswith("k:")}
    if own.paths != owned or not own.time:
        own.paths, own.time = owned, format_time(author.now)
    write_entries(merged, [*others, own])
    return merged


def _disputed(entry: Entry, wished: dict[Path, Any], current: dict[Path, Any]) -> set[Path]:
    """Fields of another manager that the wish would change."""
    return {path for path in entry.paths & wished.keys() if _changes(current.get(path), wished[path])}


def _changes(current: Any, wished: Any) -> bool:
    if current is NODE:  # an empty map or list has nothing to merge into what is there
        return wished not in (NODE, {}, [])
    return bool(wished != current)


def _conflict(disputes: list[tuple[Entry, set[Path]]]) -> ApiFailure:
    causes: list[Object] = []
    texts = []
    for entry, paths in disputes:
        through = f' with subresource "{entry.subresource}"' if entry.subresource else ""
        using = f" using {entry.api_version}" if entry.operation == "Update" else ""
        whom = f'"{entry.manager}"{through}{using}'
        fields = sorted(shown(path) for path in paths)
        causes += [{"reason": "FieldManagerConflict", "message": f"conflict with {whom}", "field": f} for f in fields]
        one = len(fields) == 1
        texts.append(f"conflict with {whom}: {fields[0]}" if one else _listed(f"conflicts with {whom}:", fields))
    noun = "conflict" if len(causes) == 1 else "conflicts"
    message = f"Apply failed with {len(causes)} {noun}: " + "\n".join(texts)
    return ApiFailure(409, "Conflict", message, {"causes": causes})


def _listed(title: str, fields: Iterable[str]) -> str:
    return "\n".join([title, *(f"- {one}" for one in fields)])


def _merge(kind: ResourceType, old: Object, wish: Object) -> Object:
    merged: Object = _merge_value(old, wish, kind.schema.root, kind)
    metadata = _merge_value(old.get("metadata") or {}, wish.get("metadata") or {}, {"$ref": "ObjectMeta"}, kind)
    return merged | {"metadata": metadata}


def _merge_value(old: Any, wish: Any, schema: Schema, kind: ResourceType) -> Any:
    lookup = kind.schema.lookup
    schema = resolved(schema, lookup)
    if isinstance(old, dict) and isinstance(wish, dict) and schema.get("x-kubernetes-map-type") != "atomic":
        merged = dict(old)
        for name, value in wish.items():
            merged[name] = _merge_value(old.get(name), value, child_schema(schema, name, lookup), kind)
        return merged
    if isinstance(old, list) and isinstance(wish, list):
        before, after = element_keys(old, schema), element_keys(wish, schema)
        if before is not None and after is not None:
            items = schema.get("items", {})
            elements = dict(zip(before, old, strict=True))
            for key, value in zip(after, wish, strict=True):
                elements[key] = _merge_value(elements.get(key), value, items, kind)
            return list(elements.values())
    return wish


def _remove(obj: Object, withdrawn: set[Path], needed: set[Path], root: Schema, kind: ResourceType) -> None:
    """Takes out what the manager no longer wishes for and nobody else holds on to; elements of lists as a whole."""
    for path in sorted(withdrawn, key=len):
        if any(other[: len(path)] == path for other in needed):
            continue
        _remove_path(obj, path, root, kind)


def _remove_path(obj: Object, path: Path, root: Schema, kind: ResourceType) -> None:
    schema = root
    value: Any = obj
    for depth, element in enumerate(path):
        last = depth == len(path) - 1
        name = element.partition(":")[2]
        if element.startswith("f:"):
            if not isinstance(value, dict) or name not in value:
                return
            if last:
                del value[name]
                return
            # The merge shares what it did not touch with the stored object, which must never change.
            value[name] = value[name].copy()
            value = value[name]
            schema = (
                {"$ref": "ObjectMeta"}
                if depth == 0 and name == "metadata"
                else child_schema(schema, name, kind.schema.lookup)
            )
        else:
            schema = resolved(schema, kind.schema.lookup)
            keys = element_keys(value, schema) if isinstance(value, list) else None
            if keys is None or element not in keys:
                return
            index = keys.index(element)
            if last:
                del value[index]
                return
            value[index] = value[index].copy()
            value, schema = value[index], schema.get("items", {})
