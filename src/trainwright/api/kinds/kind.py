"""A kind of job as data: a row has everything in which the kind differs from others."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Generic, TypeVar

from trainwright.api.types import ReplicaSpec
from trainwright.objects.field_errors import FieldError, forbidden
from trainwright.objects.metadata import ObjectMeta, View
from trainwright.objects.resources import Resource

GROUP = "kubeflow.org"
VERSION = "v1"

F = TypeVar("F", bound=View)

ReplicaSpecs = Mapping[str, ReplicaSpec]
"""By role, in the kind's spelling."""


class NoFields(View, frozen=True):
    """For kinds whose spec has only `runPolicy` and the replicas."""


def _no_defaults(fields: Any, replicas: ReplicaSpecs) -> Any:
    _ = replicas
    return fields


@dataclass(frozen=True, slots=True)
class Unvalidated(Generic[F]):
    """A job without defaults, for the checks of its kind."""

    metadata: ObjectMeta
    fields: F
    """The kind's own fields of `spec`."""
    replicas: ReplicaSpecs
    cluster_domain: str = ""


def _no_checks(job: Unvalidated[Any]) -> Iterable[FieldError]:
    _ = job
    return ()


def _no_deprecations(fields: Any) -> Iterable[str]:
    _ = fields
    return ()


@dataclass(frozen=True, slots=True)
class Role:
    """One replica type. `exactly` and `at_least` bound the number that admission accepts."""

    name: str
    _: KW_ONLY
    exactly: int | None = None
    number_optional: bool = False
    """Whether admission accepts a role with an exact number that leaves the number out."""
    at_least: int | None = None
    default_replicas: int = 1
    default_restart_policy: str = ""
    """Empty: the default of the kind."""
    indexed: bool = True
    """Whether pods are named JOB-ROLE-INDEX. Without an index the role has one pod, named JOB-ROLE."""
    has_service: bool = True
    """Whether each pod has a headless Service of the same name."""
    has_port: bool = True
    """Whether the main container gets the kind's port unless it declares one of that name."""
    completes: bool = True
    """Whether a pod that exits with 0 is done. False: such pods serve others until the job has finished."""
    container: str = ""
    """The name of the main container; empty: the name that the kind has."""

    @property
    def label(self) -> str:
        """The role in object names and labels."""
        return self.name.lower()

    def rank_name(self, index: int) -> str:
        """`worker-0`, or `launcher` for a role without index."""
        return f"{self.label}-{index}" if self.indexed else self.label

    def child_name(self, job: str, index: int) -> str:
        """The name of a replica's pod and Service."""
        return f"{job}-{self.rank_name(index)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    name: str
    plural: str
    framework: str
    replicas_field: str
    roles: tuple[Role, ...]
    """In the order of creation and evaluation: the role that decides about success comes first."""
    container: str
    """The name of the main container, which has the port and whose exit code counts; empty: the first one."""
    port_name: str
    port: int
    default_restart_policy: str
    earlier_name: str = ""
    """The prefix of label keys of this kind's first operator; empty if there was none."""
    earlier_roles: bool = False
    """Whether its label PREFIX-job-role has the role of every pod, instead of marking the master."""
    scaled_role: str | None = None
    """The role that `kubectl scale` changes; None: no scale subresource."""
    columns: tuple[str, ...] = ("State", "Age")
    fields: type[View] = NoFields
    """The kind's own fields of `spec`."""
    complete: Callable[[Any, ReplicaSpecs], Any] = _no_defaults
    """Fills in defaults of the kind's own fields; the replicas have theirs already."""
    check: Callable[[Unvalidated[Any]], Iterable[FieldError]] = _no_checks
    """Validates a job by the kind's own rules."""
    cluster_domain: str = ""
    """The domain of the cluster that runs the jobs: it makes the addresses of pods longer."""
    deprecations: Callable[[Any], Iterable[str]] = _no_deprecations
    """Deprecation warnings about the kind's own fields."""
    missing_container: str = "must have at least one container with name {name}"
    """Admission's error for a template without the main container."""
    deleted_as: str = "Pod"
    """The end of the reason of the event about the job's deletion after its TTL. Upstream has Pod or Job."""

    roles_by_label: dict[str, Role] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if unnamed := [role.name for role in self.roles if not role.indexed and role.exactly != 1]:
            raise ValueError(f"{self.name}: {unnamed[0]} has no index, so it must have exactly one replica")
        object.__setattr__(self, "roles_by_label", {role.label: role for role in self.roles})

    @property
    def with_article(self) -> str:
        """`a TFJob`, but `an MPIJob`: as its name is spoken."""
        return f"{'an' if self.name[0] in 'MX' else 'a'} {self.name}"

    @property
    def singular(self) -> str:
        return self.name.lower()

    @property
    def controller(self) -> str:
        """The operator's name for this kind in labels, events and metrics."""
        return f"{self.singular}-controller"

    @property
    def resource(self) -> Resource:
        return Resource(GROUP, VERSION, self.plural, self.name)

    def role(self, name: str) -> Role | None:
        """The role of that name, in any letter case."""
        return self.roles_by_label.get(name.lower())

    def container_of(self, role: Role) -> str:
        """The name of the role's main container; empty: the first one."""
        return role.container or self.container

    def restart_policy_of(self, role: Role) -> str:
        """The restart policy of the role's pods if the job sets none."""
        return role.default_restart_policy or self.default_restart_policy


_MAX_ENV_STRING = 131_071
"""Bytes of `NAME=VALUE`: Linux starts no program with a longer one."""


def length_of_list(first: str, replica: ReplicaSpec | None) -> int:
    """The length of a list with one item for each pod of a role. `first` is the item of index 0."""
    count = 0 if replica is None else 1 if replica.replicas is None else max(replica.replicas, 0)
    further_digits = sum(max(count - least, 0) for least in (10, 100, 1_000, 10_000, 100_000))
    return count * len(first) + further_digits


def check_env_string(field: str, variable: str, length: int, instead: str = "") -> Iterable[FieldError]:
    """Rejects a job with more peers than a variable can name. `length` is that of its value."""
    length += len(f"{variable}=")
    if length > _MAX_ENV_STRING:
        detail = (
            f"too many replicas: {variable} of each pod names all of them and would have up to {length} bytes, "
            f"and an environment string holds at most {_MAX_ENV_STRING}; use fewer replicas{instead}"
        )
        yield forbidden(field, detail)
