"""One job, read once and completed: what the engine decides about. The manifest itself is never changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from trainwright.api.decoding import is_readable, read
from trainwright.api.defaults import complete_run_policy, with_defaults
from trainwright.api.errors import InvalidJob
from trainwright.api.field_types import shape_errors
from trainwright.api.kinds import KINDS, OPERATOR, Kind, Role
from trainwright.api.legacy import deprecations, misreadings, run_policy
from trainwright.api.types import JobStatus, RunPolicy
from trainwright.api.validation import unworkable
from trainwright.objects import Object
from trainwright.objects.metadata import ObjectMeta, View
from trainwright.objects.paths import value_at

F = TypeVar("F", bound=View)


@dataclass(frozen=True, slots=True)
class Replica:
    """One role of one job: how many pods, from which template."""

    role: Role
    count: int
    restart_policy: str
    template: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    kind: Kind
    raw: Object
    """The object as it was observed; its `status` is the one that plans start from."""
    metadata: ObjectMeta
    run_policy: RunPolicy
    replicas: Mapping[str, Replica]
    """By role name, in the kind's order: the deciding role first."""
    fields: View
    warnings: tuple[str, ...] = ()
    """What was read although users should write it in another way: the field, and what to write instead."""
    problem: str = ""
    """Why the job cannot be run, if it cannot; then `replicas` is empty and `fields` says nothing."""

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def total_replicas(self) -> int:
        return sum(replica.count for replica in self.replicas.values())

    @property
    def managed_elsewhere(self) -> bool:
        """Somebody else runs this job; we neither touch it nor judge it."""
        return is_managed_elsewhere(self.raw)

    def child_name(self, role: str, index: int) -> str:
        """Pod and service of a rank share this name, so there can never be two of either."""
        return f"{self.name}-{role.lower()}-{index}"

    def own_fields(self, type_: type[F]) -> F:
        """The kind's own fields, for the framework that knows their type."""
        if not isinstance(self.fields, type_):
            raise TypeError(f"{self.kind.name} has {type(self.fields).__name__}, not {type_.__name__}")
        return self.fields


def read_job(raw: Object, kinds: Mapping[str, Kind] = KINDS) -> Job:
    """The typed, completed job; raises InvalidJob with every reason why it cannot be run.

    The kind must be among `kinds`: which kinds are watched is the caller's choice. A job that is managed elsewhere is
    only read, not judged.
    """
    kind = kinds[raw["kind"]]
    if errors := shape_errors(raw, kind):
        raise InvalidJob(errors)
    written = raw.get("spec") or {}
    spec = with_defaults(written, kind)
    errors = unworkable(raw, spec, kind)
    if errors and not is_managed_elsewhere(raw):
        raise InvalidJob(errors)
    return Job(
        kind=kind,
        raw=raw,
        metadata=msgspec.convert(raw["metadata"], ObjectMeta),
        run_policy=msgspec.convert(spec["runPolicy"], RunPolicy),
        replicas=_replicas(spec[kind.replicas_field], kind),
        fields=msgspec.convert(spec, kind.fields),
        warnings=(*deprecations(written, kind), *misreadings(written)),
    )


def salvage_job(raw: Object, kind: Kind, invalid: InvalidJob) -> Job:
    """What still holds of a job that `read_job` refused: whose it is, and how to clean up after it.

    Of metadata and run policy every field counts that is right in itself; a status that makes no sense is as good as
    none. Without a name there is nothing to save: then `invalid` is raised again.
    """
    metadata = read(_readable(raw.get("metadata"), ObjectMeta), ObjectMeta, "metadata")
    if not metadata.name:
        raise invalid
    spec = raw.get("spec")
    written = spec if isinstance(spec, dict) else {}
    policy = run_policy({**written, "runPolicy": _readable(written.get("runPolicy"), RunPolicy)})
    return Job(
        kind=kind,
        raw=raw if is_readable(raw.get("status") or {}, JobStatus) else {**raw, "status": {}},
        metadata=metadata,
        run_policy=msgspec.convert(complete_run_policy(_readable(policy, RunPolicy)), RunPolicy),
        replicas={},
        fields=kind.fields(),
        problem=str(invalid),
    )


def is_managed_elsewhere(raw: Object) -> bool:
    """Whether `spec.runPolicy.managedBy` names somebody but us; safe on any object, however broken."""
    manager = value_at(raw, "spec", "runPolicy", "managedBy")
    return manager is not None and manager != OPERATOR


def _readable(value: Any, type_: type[View]) -> Object:
    """The fields that are right in themselves."""
    fields = value.items() if isinstance(value, dict) else ()
    return {field: content for field, content in fields if is_readable({field: content}, type_)}


def _replicas(specs: Object, kind: Kind) -> dict[str, Replica]:
    return {
        key: Replica(role, spec["replicas"], spec["restartPolicy"], spec["template"])
        for key, spec in specs.items()
        if (role := kind.role(key))
    }
