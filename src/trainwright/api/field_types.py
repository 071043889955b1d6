"""Do the fields of a manifest have the right types? What passes here can be read without surprises.

The CRD refuses most of this already; but an older CRD may be installed, and one bad job must not disturb the others.
"""

from collections.abc import Iterator
from typing import Any

from trainwright.api.decoding import problem_with
from trainwright.api.errors import invalid
from trainwright.api.kinds import Kind
from trainwright.api.legacy import EarlierRunPolicy
from trainwright.api.types import JobStatus, ReplicaSpec, RunPolicy, Template
from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError
from trainwright.objects.metadata import ObjectMeta

_DEEPEST = 100
"""Levels of a spec. The deepest field of a pod is at about a third of it; writing JSON ends at about a thousand."""

_HOLDERS = frozenset((dict, list))


def shape_errors(raw: Object, kind: Kind) -> list[FieldError]:
    """One error for every part of the job that is not what its field demands."""
    errors = [error for part in _parts(raw, kind) if (error := problem_with(*part)) is not None]
    if _is_deeper(raw.get("spec"), _DEEPEST):
        errors.append(invalid("spec", "dict", f"must not be nested deeper than {_DEEPEST} levels"))
    return errors


def _parts(raw: Object, kind: Kind) -> Iterator[tuple[Any, Any, str]]:
    """The parts that are checked on their own: a map's keys would be lost in the errors of the whole."""
    yield raw.get("metadata"), _Named, "metadata"
    yield _present(raw.get("status")), JobStatus, "status"
    spec = _present(raw.get("spec"))
    yield spec, dict[str, Any], "spec"
    if not isinstance(spec, dict):
        return
    yield _present(spec.get("runPolicy")), RunPolicy, "spec.runPolicy"
    yield spec, EarlierRunPolicy, "spec"
    yield spec, kind.fields, "spec"
    replicas, path = _present(spec.get(kind.replicas_field)), f"spec.{kind.replicas_field}"
    yield replicas, dict[str, Any], path
    if not isinstance(replicas, dict):
        return
    for key, replica in replicas.items():
        yield _present(replica), ReplicaSpec, f"{path}[{key}]"
        if isinstance(replica, dict):
            yield _present(replica.get("template")), Template, f"{path}[{key}].template"


def _present(value: Any) -> Any:
    """Null means absent, as it does to the API server."""
    return {} if value is None else value


class _Named(ObjectMeta, frozen=True, kw_only=True):
    name: str


def _is_deeper(value: Any, levels: int) -> bool:
    """Level by level and not by recursion, which is what too deep a value would break."""
    level: list[Any] = [[value]]
    for _ in range(levels + 1):
        level = [
            part
            for whole in level
            for part in (whole.values() if type(whole) is dict else whole)
            if type(part) in _HOLDERS
        ]
        if not level:
            return False
    return True
