"""A job, parsed and completed with defaults: the engine's input. Manifests are never changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from trainwright.api.decoding import is_readable, read
from trainwright.api.defaults import complete_replicas, complete_run_policy, main_container
from trainwright.api.errors import InvalidJob
from trainwright.api.kinds import KINDS, OPERATOR, Kind, ReplicaSpecs, Role
from trainwright.api.legacy import deprecations, value_warnings
from trainwright.api.parsing import parse
from trainwright.api.types import EarlierRunPolicy, JobStatus, ReplicaSpec, RunPolicy
from trainwright.api.validation import fatal_errors
from trainwright.objects import Object
from trainwright.objects.metadata import ObjectMeta, View
from trainwright.objects.paths import value_at

F = TypeVar("F", bound=View)


@dataclass(frozen=True, slots=True)
class Replica:
    """The replicas of one role of a job."""

    role: Role
    count: int
    restart_policy: str
    template: Object
    container: str
    """The name of the main container: it has the port, and its exit code is the pod's."""

    @property
    def main_container(self) -> Object:
        return main_container(self.template["spec"]["containers"], self.container)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    kind: Kind
    raw: Object
    """The object as it was observed. Plans start from its `status`."""
    metadata: ObjectMeta
    run_policy: RunPolicy
    replicas: Mapping[str, Replica]
    """By role name, in the kind's order: the deciding role first."""
    fields: View
    warnings: tuple[str, ...] = ()
    """Deprecation warnings: each names the field and what to use instead."""
    problem: str = ""
    """Why the job is invalid; empty if it is valid. An invalid job has no `replicas` and default `fields`."""

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
        """True if another controller manages this job: the operator ignores it."""
        return is_managed_elsewhere(self.raw)

    def child_name(self, role: str, index: int) -> str:
        """The name of a rank's pod and Service. It is fixed, so a rank never has two of either."""
        return self.replicas[role].role.child_name(self.name, index)

    def own_fields(self, type_: type[F]) -> F:
        """The kind's own fields, for the framework that knows their type."""
        if not isinstance(self.fields, type_):
            raise TypeError(f"{self.kind.name} has {type(self.fields).__name__}, not {type_.__name__}")
        return self.fields


def read_job(raw: Object, kinds: Mapping[str, Kind] = KINDS) -> Job:
    """Parses a job and completes it with defaults. Raises InvalidJob with all errors.

    The kind must be one of `kinds`. A job that another controller manages is not validated.
    """
    kind = kinds[raw["kind"]]
    manifest = parse(raw, kind)
    replicas = complete_replicas(manifest.replicas, kind)
    errors = fatal_errors(manifest, replicas, kind)
    if errors and not is_managed_elsewhere(raw):
        raise InvalidJob(errors)
    run_policy = complete_run_policy(manifest.run_policy, manifest.earlier_run_policy)
    return Job(
        kind=kind,
        raw=raw,
        metadata=manifest.metadata,
        run_policy=run_policy,
        replicas=_replicas(replicas, kind),
        fields=kind.complete(manifest.fields, replicas),
        warnings=(*deprecations(manifest, kind), *value_warnings(run_policy)),
    )


def salvage_job(raw: Object, kind: Kind, invalid: InvalidJob) -> Job:
    """The readable fields of a job that `read_job` rejected: enough to fail it and to clean up its pods.

    Metadata and run policy have every field that is valid by itself. An unreadable status is treated as empty. Without
    a name `invalid` is raised again.
    """
    metadata = read(_readable(raw.get("metadata"), ObjectMeta), ObjectMeta, "metadata")
    if not metadata.name:
        raise invalid
    spec = raw.get("spec")
    written = spec if isinstance(spec, dict) else {}
    policy = msgspec.convert(_readable(written.get("runPolicy"), RunPolicy), RunPolicy)
    earlier = msgspec.convert(_readable(written, EarlierRunPolicy), EarlierRunPolicy)
    return Job(
        kind=kind,
        raw=raw if is_readable(raw.get("status") or {}, JobStatus) else {**raw, "status": {}},
        metadata=metadata,
        run_policy=complete_run_policy(policy, earlier),
        replicas={},
        fields=kind.fields(),
        problem=str(invalid),
    )


def is_managed_elsewhere(raw: Object) -> bool:
    """True if `spec.runPolicy.managedBy` names another controller. Works for any object, valid or not."""
    manager = value_at(raw, "spec", "runPolicy", "managedBy")
    return manager is not None and manager != OPERATOR


def _readable(value: Any, type_: type[View]) -> Object:
    """The fields that are valid by themselves."""
    fields = value.items() if isinstance(value, dict) else ()
    return {field: content for field, content in fields if is_readable({field: content}, type_)}


def _replicas(specs: ReplicaSpecs, kind: Kind) -> dict[str, Replica]:
    return {role.name: _replica(spec, role, kind) for key, spec in specs.items() if (role := kind.role(key))}


def _replica(spec: ReplicaSpec, role: Role, kind: Kind) -> Replica:
    """A completed replica spec; it may lack containers if another controller manages the job."""
    template = spec.template or {}
    containers = value_at(template, "spec", "containers")
    main = str(main_container(containers, kind.container_of(role)).get("name")) if containers else ""
    return Replica(role, spec.replicas or 0, spec.restart_policy or "", template, main)
