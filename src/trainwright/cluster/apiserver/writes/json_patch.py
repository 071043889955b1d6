"""JSON merge patch (RFC 7396) and JSON patch (RFC 6902). The original is not modified; unchanged values are shared."""

import copy
from collections.abc import Callable
from typing import Any

import msgspec

_MAX_OPERATIONS = 10_000
_MAX_COPIED_BYTES = 3 * 1024 * 1024
"""Both are the real server's limits: operations that copy what others have copied grow without end."""
_MAX_SHOWN = 200


class PatchError(ValueError):
    """The patch cannot be applied; the message names the operation and the path."""


class TooManyOperations(PatchError):  # noqa: N818 - named after the limit
    """The patch has more operations than one request may have."""


class TestFailed(PatchError):  # noqa: N818 - the outcome of a `test` operation
    """A `test` operation found another value."""

    __test__ = False


def merge_patch(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(target: Any, operations: Any) -> Any:
    if not isinstance(operations, list):
        raise PatchError("a JSON patch is a list of operations")
    if len(operations) > _MAX_OPERATIONS:
        raise TooManyOperations(
            f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, got {len(operations)}"
        )
    document = copy.deepcopy(target)
    copied = 0
    for operation in operations:
        name = operation.get("op") if isinstance(operation, dict) else None
        if not isinstance(name, str) or name not in _OPERATIONS:
            raise PatchError(f"unknown operation {repr(operation)[:_MAX_SHOWN]}: op is one of {', '.join(_OPERATIONS)}")
        if name == "copy":
            copied += len(msgspec.json.encode(_walk(document, _pointer(operation, "from"))))
            if copied > _MAX_COPIED_BYTES:
                raise PatchError(f"copy operations may add at most {_MAX_COPIED_BYTES} bytes")
        document = _OPERATIONS[name](document, operation)
    return document


def _add(document: Any, operation: dict[str, Any]) -> Any:
    return _put(document, _pointer(operation, "path"), _value(operation))


def _put(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _walk(document, path[:-1])
    key = path[-1]
    if isinstance(parent, list):
        parent.insert(len(parent) if key == "-" else _index(parent, key, length=len(parent) + 1), value)
    elif isinstance(parent, dict):
        parent[key] = value
    else:
        raise PatchError(f"add operation does not apply: doc is missing path: {_shown(path)}: missing value")
    return document


def _remove(document: Any, operation: dict[str, Any]) -> Any:
    path = _pointer(operation, "path")
    _take(document, path, "remove")
    return document


def _take(document: Any, path: list[str], name: str) -> Any:
    if not path:
        raise PatchError(f"{name} operation does not apply to the whole document")
    parent = _walk(document, path[:-1])
    if isinstance(parent, list):
        return parent.pop(_index(parent, path[-1], length=len(parent)))
    if not isinstance(parent, dict) or path[-1] not in parent:
        raise PatchError(f"{name} operation does not apply: doc is missing path: {_shown(path)}: missing value")
    return parent.pop(path[-1])


def _replace(document: Any, operation: dict[str, Any]) -> Any:
    path = _pointer(operation, "path")
    value = _value(operation)
    if not path:
        return value
    parent = _walk(document, path[:-1])
    if isinstance(parent, list):
        parent[_index(parent, path[-1], length=len(parent))] = value
    elif isinstance(parent, dict):
        # RFC 6902 wants the field to exist; the real server does not, and clients rely on it.
        parent[path[-1]] = value
    else:
        raise PatchError(f"replace operation does not apply: doc is missing key: {_shown(path)}: missing value")
    return document


def _move(document: Any, operation: dict[str, Any]) -> Any:
    value = _take(document, _pointer(operation, "from"), "move")
    return _put(document, _pointer(operation, "path"), value)


def _copy(document: Any, operation: dict[str, Any]) -> Any:
    value = copy.deepcopy(_walk(document, _pointer(operation, "from")))
    return _put(document, _pointer(operation, "path"), value)


def _test(document: Any, operation: dict[str, Any]) -> Any:
    path = _pointer(operation, "path")
    try:
        found = _walk(document, path)
    except PatchError:
        found = None
    if not _equal(found, operation.get("value")):
        raise TestFailed(f"testing value {_shown(path)} failed: test failed")
    return document


def _equal(one: Any, other: Any) -> bool:
    """As JSON: for Python True is 1, and 1.0 too."""
    return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")


_OPERATIONS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


def _pointer(operation: dict[str, Any], field: str) -> list[str]:
    text = operation.get(field)
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise PatchError(f"{operation['op']} operation: {field} {text!r} is not a JSON pointer: write /spec/replicas")
    return [segment.replace("~1", "/").replace("~0", "~") for segment in text.split("/")[1:]]


def _value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise PatchError(f"{operation['op']} operation: value is missing")
    return operation["value"]


def _walk(document: Any, path: list[str]) -> Any:
    for depth, key in enumerate(path):
        if isinstance(document, list):
            document = document[_index(document, key, length=len(document))]
        elif isinstance(document, dict) and key in document:
            document = document[key]
        else:
            raise PatchError(f"doc is missing path: {_shown(path[: depth + 1])}: missing value")
    return document


def _index(parent: list[Any], key: str, *, length: int) -> int:
    if not (key.isascii() and key.isdigit()) or len(key) > len(str(length)) or int(key) >= length:
        raise PatchError(f"index {key!r} is outside of a list of {len(parent)}")
    return int(key)


def _shown(path: list[str]) -> str:
    return "/" + "/".join(path)
