"""Applies a patch of any media type to an object; the result is then decoded and validated like an update.

kubectl sends strategic merge patches for built-in kinds: lists merge by key, `$patch` is a directive.
"""

import json
from typing import Any

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.schema.structural import Lookup, Schema
from trainwright.cluster.apiserver.writes.fieldpath import child_schema, resolved
from trainwright.cluster.apiserver.writes.json_patch import (
    PatchError,
    TestFailed,
    TooManyOperations,
    json_patch,
    merge_patch,
)
from trainwright.objects import Object, copied

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


def patch_media_type(content_type: str, kind: ResourceType) -> str:
    """The media type of the patch. Custom resources have no Go types, so they have no strategic merge."""
    media = content_type.partition(";")[0].strip().lower()
    accepted = [JSON_PATCH, MERGE, *([] if kind.custom else [STRATEGIC]), APPLY]
    if media not in accepted:
        message = "the body of the request was in an unknown format - accepted media types include: "
        raise errors.unsupported_media_type(message + ", ".join(accepted))
    return media


def patched_object(kind: ResourceType, obj: Object, patch: Any, media: str) -> Object:
    """The object after a merge, JSON or strategic patch. The original is not modified."""
    try:
        match media:
            case "application/json-patch+json":
                changed = json_patch(obj, patch)
            case "application/strategic-merge-patch+json":
                changed = strategic_merge_patch(obj, patch, kind.schema.root, kind.schema.lookup)
            case _:
                changed = merge_patch(obj, patch)
    except TooManyOperations as error:
        raise StatusError(413, "RequestEntityTooLarge", str(error)) from error
    except TestFailed as error:
        message = f"the server rejected our request due to an error in our request: {error}"
        raise StatusError(422, "Invalid", message) from error
    except PatchError as error:
        message = f"the server rejected our request due to an error in our request: {error}"
        raise StatusError(
            422 if media == JSON_PATCH else 400, "Invalid" if media == JSON_PATCH else "BadRequest", message
        ) from error
    if not isinstance(changed, dict):
        raise errors.bad_request("the patch leaves no object")
    # Decoding changes the object in place, and a patch shares unchanged values with the stored object.
    return copied(changed)


_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"
_MAX_SHOWN = 200


def strategic_merge_patch(target: Any, patch: Any, schema: Schema, lookup: Lookup) -> Any:
    """`patch` merged into `target` by the merge keys of `schema`; the target is not modified."""
    if not isinstance(patch, dict):
        raise PatchError("a strategic merge patch is a JSON object")
    return _merge_map(target, patch, schema, lookup)


def _merge_map(target: Any, patch: dict[str, Any], schema: Schema, lookup: Lookup) -> Any:
    match patch.get("$patch"):
        case "replace":
            return {key: value for key, value in patch.items() if key != "$patch"}
        case "delete":
            return {}
        case None | "merge":
            pass
        case other:
            raise PatchError(f"unknown $patch type {other!r}: it is replace, delete or merge")
    merged = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        kept = _list(patch, "$retainKeys")
        merged = {key: value for key, value in merged.items() if key in kept}
    for key, value in patch.items():
        if key.startswith(("$patch", "$retainKeys", _ORDER)):
            continue
        if key.startswith(_DELETE):
            _delete_elements(merged, key.removeprefix(_DELETE), _list(patch, key))
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_field(merged.get(key), value, child_schema(schema, key, lookup), lookup)
    for key in patch:
        if key.startswith(_ORDER):
            name, order = key.removeprefix(_ORDER), _list(patch, key)
            if isinstance(merged.get(name), list):
                below = resolved(child_schema(schema, name, lookup), lookup)
                merged[name] = _ordered(merged[name], order, below.get("x-kubernetes-patch-merge-key"))
    return merged


def _list(patch: dict[str, Any], directive: str) -> list[Any]:
    value = patch[directive]
    if not isinstance(value, list):
        raise PatchError(f"{directive} must be a list, not {value!r}")
    return value


def _delete_elements(merged: dict[str, Any], name: str, removed: list[Any]) -> None:
    """A field that is no list stays as it is, as on the real server."""
    identities = {_identity(element) for element in removed}
    if isinstance(present := merged.get(name), list):
        merged[name] = [element for element in present if _identity(element) not in identities]


def _merge_field(target: Any, value: Any, schema: Schema, lookup: Lookup) -> Any:
    schema = resolved(schema, lookup)
    if isinstance(value, dict):
        return _merge_map(target, value, schema, lookup)
    merges = "merge" in str(schema.get("x-kubernetes-patch-strategy", "")).split(",")
    if not isinstance(value, list) or not merges:
        return value
    key = schema.get("x-kubernetes-patch-merge-key")
    present = target if isinstance(target, list) else []
    if key is None:
        known = {_identity(element) for element in present}
        return [*present, *(element for element in value if _identity(element) not in known)]
    return _merge_list(present, value, key, schema.get("items", {}), lookup)


def _merge_list(target: list[Any], patch: list[Any], key: str, schema: Schema, lookup: Lookup) -> list[Any]:
    if any(isinstance(item, dict) and item.get("$patch") == "replace" and len(item) == 1 for item in patch):
        return [item for item in patch if item != {"$patch": "replace"}]
    # By identity of the key, with the elements that share it: lists can have ten thousands of elements.
    merged: dict[int, Any] = dict(enumerate(target))
    places: dict[str, list[int]] = {}
    for place, element in merged.items():
        places.setdefault(_identity(element.get(key)), []).append(place)
    for element in patch:
        if not isinstance(element, dict) or key not in element:
            raise PatchError(f"map: {str(element)[:_MAX_SHOWN]} does not contain declared merge key: {key}")
        identity = _identity(element[key])
        if element.get("$patch") == "delete":
            for place in places.pop(identity, ()):
                del merged[place]
        elif found := places.get(identity):
            merged[found[0]] = _merge_map(merged[found[0]], element, schema, lookup)
        else:
            place = next(reversed(merged), -1) + 1
            merged[place] = _merge_map({}, element, schema, lookup)
            places[identity] = [place]
    return list(merged.values())


def _ordered(elements: list[Any], order: list[Any], key: str | None) -> list[Any]:
    """The elements in the client's order, then those that it does not list."""

    def identity(element: Any) -> str:
        return _identity(element.get(key) if key and isinstance(element, dict) else element)

    wanted: dict[str, int] = {}
    for place, element in enumerate(order):
        wanted.setdefault(identity(element), place)
    places = [(wanted.get(identity(element)), element) for element in elements]
    named = sorted(((place, element) for place, element in places if place is not None), key=lambda entry: entry[0])
    return [element for _, element in named] + [element for place, element in places if place is None]


def _identity(value: Any) -> str:
    """Equal for equal JSON values, some of which cannot be keys of a dictionary."""
    return json.dumps(value, sort_keys=True)
