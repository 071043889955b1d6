"""Do the fields of a manifest have the right types? What passes here can be read without surprises.

The CRD refuses most of this already; but an older CRD may be installed, and one bad job must not disturb the others.
"""

import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from trainwright.api.errors import FieldError, InvalidJob, invalid, required
from trainwright.api.kinds import Kind
from trainwright.api.types import JobStatus, ReplicaSpec, RunPolicy, Template
from trainwright.objects import Object
from trainwright.objects.metadata import ObjectMeta

T = TypeVar("T")

_LOCATED = re.compile(r"(?P<problem>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_WRONG_TYPE = re.compile(r"Expected `(?P<expected>[^`]*)`, got `(?P<got>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_STEP = re.compile(r"\.(?P<key>[^.\[]+)|\[(?P<index>\d+)\]")


def shape_errors(raw: Object, kind: Kind) -> list[FieldError]:
    """One error for every part of the job that is not what its field demands."""
    return [error for part in _parts(raw, kind) if (error := _problem(*part)) is not None]


def is_readable(value: Any, type_: type[Any]) -> bool:
    return _problem(value, type_, "") is None


def read(value: Any, type_: type[T], path: str) -> T:
    """`value` as `type_`, or InvalidJob that names the field below `path`."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as problem:
        raise InvalidJob([_explain(str(problem), value, path)]) from None


def _parts(raw: Object, kind: Kind) -> Iterator[tuple[Any, Any, str]]:
    """The parts that are checked on their own: a map's keys would be lost in the errors of the whole."""
    yield raw.get("metadata"), _Named, "metadata"
    yield raw.get("status") or {}, JobStatus, "status"
    spec = raw.get("spec") or {}
    yield spec, dict[str, Any], "spec"
    if not isinstance(spec, dict):
        return
    yield spec.get("runPolicy") or {}, RunPolicy, "spec.runPolicy"
    yield spec, kind.fields, "spec"
    replicas, path = spec.get(kind.replicas_field) or {}, f"spec.{kind.replicas_field}"
    yield replicas, dict[str, Any], path
    if not isinstance(replicas, dict):
        return
    for key, replica in replicas.items():
        yield replica or {}, ReplicaSpec, f"{path}[{key}]"
        if isinstance(replica, dict):
            yield replica.get("template") or {}, Template, f"{path}[{key}].template"


class _Named(ObjectMeta, frozen=True, kw_only=True):
    name: str


def _problem(value: Any, type_: type[Any], path: str) -> FieldError | None:
    try:
        read(value, type_, path)
    except InvalidJob as refused:
        return refused.errors[0]
    return None


def _explain(text: str, value: Any, prefix: str) -> FieldError:
    located = _LOCATED.fullmatch(text)
    problem, below = (located["problem"], located["path"] or "") if located else (text, "")
    path = prefix + below
    if missing := _MISSING.fullmatch(problem):
        return required(f"{path}.{missing['name']}", "must be specified")
    wrong = _WRONG_TYPE.fullmatch(problem)
    detail = f"must be {_plain(wrong['expected'])}, not {wrong['got']}" if wrong else _lower(problem)
    return invalid(path, _at(value, below), detail)


def _at(value: Any, path: str) -> Any:
    """The value that the error is about, or the map in which it is: the keys of maps are not in the path."""
    for step in _STEP.finditer(path.partition("[...]")[0]):
        value = value[int(step["index"])] if step["index"] else value[step["key"]]
    return value if isinstance(value, str | int | float | None) else type(value).__name__


def _plain(expected: str) -> str:
    return " or ".join(name for name in expected.split(" | ") if name != "null")


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:].replace("`", "")
