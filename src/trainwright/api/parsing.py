"""Parses a manifest into typed parts. Fields of a wrong type are rejected here, each by name.

The CRD rejects most of them already. But an older CRD may be installed, and an invalid job must not affect others.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

from trainwright.api.decoding import read
from trainwright.api.errors import InvalidJob, invalid
from trainwright.api.kinds import Kind
from trainwright.api.types import EarlierRunPolicy, JobStatus, ReplicaSpec, RunPolicy, Template
from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError
from trainwright.objects.metadata import ObjectMeta, View

T = TypeVar("T")

_MAX_DEPTH = 100
"""Maximum nesting of a spec. The deepest field of a pod is at about a third of this; JSON encoding fails at about
1000."""

_CONTAINERS = frozenset((dict, list))


@dataclass(frozen=True, slots=True)
class Manifest:
    """A job without defaults. null means that a field is not set, as for the API server."""

    metadata: ObjectMeta
    run_policy: RunPolicy
    earlier_run_policy: EarlierRunPolicy
    fields: View
    replicas: dict[str, ReplicaSpec]
    """By role, in the user's spelling."""


def parse(raw: Object, kind: Kind) -> Manifest:
    """Raises InvalidJob with one error for every part of the job that has a wrong type."""
    reader = _Reader()
    metadata = reader.read(raw.get("metadata"), _Named, "metadata")
    reader.read(_present(raw.get("status")), JobStatus, "status")
    spec = reader.read(_present(raw.get("spec")), dict[str, Any], "spec") or {}
    run_policy = reader.read(_present(spec.get("runPolicy")), RunPolicy, "spec.runPolicy")
    earlier = reader.read(spec, EarlierRunPolicy, "spec")
    fields = reader.read(spec, kind.fields, "spec")
    path = f"spec.{kind.replicas_field}"
    replicas = {}
    for key, value in (reader.read(_present(spec.get(kind.replicas_field)), dict[str, Any], path) or {}).items():
        replica = reader.read(_present(value), ReplicaSpec, f"{path}[{key}]")
        if isinstance(value, dict):
            reader.read(_present(value.get("template")), Template, f"{path}[{key}].template")
        if value is not None and replica is not None:
            replicas[key] = replica
    if _is_deeper(raw.get("spec"), _MAX_DEPTH):
        reader.errors.append(invalid("spec", "dict", f"must not be nested deeper than {_MAX_DEPTH} levels"))
    if reader.errors or metadata is None or run_policy is None or earlier is None or fields is None:
        raise InvalidJob(reader.errors)
    return Manifest(metadata, run_policy, earlier, fields, replicas)


class _Reader:
    """Decodes part after part and collects the errors: msgspec's error about the whole would not name keys of maps."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []

    def read(self, value: Any, type_: type[T], path: str) -> T | None:
        try:
            return read(value, type_, path)
        except InvalidJob as error:
            self.errors += error.errors
            return None


class _Named(ObjectMeta, frozen=True, kw_only=True):
    name: str


def _present(value: Any) -> Any:
    return {} if value is None else value


def _is_deeper(value: Any, levels: int) -> bool:
    """Iterates level by level: recursion would fail for deep values."""
    level: list[Any] = [[value]]
    for _ in range(levels + 1):
        level = [
            part
            for whole in level
            for part in (whole.values() if type(whole) is dict else whole)
            if type(part) in _CONTAINERS
        ]
        if not level:
            return False
    return True
