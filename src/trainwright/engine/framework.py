"""What a framework declares about its jobs. The defaults fit most frameworks; a module in `frameworks` overrides what
differs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from trainwright.api.job import Job
from trainwright.engine.addressing import Addresses
from trainwright.engine.children.ranks import Rank
from trainwright.engine.settings import Settings
from trainwright.engine.texts import DEFAULT_TEXTS, Text, Texts
from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.resources import CONFIG_MAPS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, Resource


@dataclass(frozen=True)
class RoleState:
    """The pods of one role by state and index."""

    active: Mapping[int, Pod] = field(default_factory=dict)
    """Running pods that are not being replaced or deleted."""
    completed: frozenset[int] = frozenset()
    """Indexes that have succeeded, whether their pods still exist or not."""
    failed: frozenset[int] = frozenset()
    """Indexes whose pod has failed and is not replaced yet."""

    @cached_property
    def ready(self) -> frozenset[int]:
        return frozenset(index for index, pod in self.active.items() if pod.ready)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShape:
    """What a framework adds to the template of one rank's pod."""

    env: Sequence[Object] = ()
    """For every container."""
    main_env: Sequence[Object] = ()
    """For the main container alone."""
    main_command: Sequence[str] = ()
    """The main container's command, if the template has none; its args are replaced by `main_args`."""
    main_args: Sequence[str] = ()
    main_mounts: Sequence[Object] = ()
    volumes: Sequence[Object] = ()
    init_containers: Sequence[Object] = ()
    service_account: str = ""
    """The pod's ServiceAccount, if the template has none."""


def env_list(values: Mapping[str, str]) -> list[Object]:
    """Environment variables as a container lists them."""
    return [{"name": name, "value": value} for name, value in values.items()]


class Correction(Enum):
    """How an object that differs from what the framework declares is corrected."""

    PATCH = "patch"
    UPDATE = "update"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraResource:
    """A resource of extra objects, and what the operator is allowed to do with them.

    Objects that the operator is not allowed to delete are garbage collected with the job.
    """

    resource: Resource
    correction: Correction
    deleted_on_suspend: bool = False
    deleted_on_finish: bool = False
    events_for: frozenset[str] = frozenset()
    """The verbs after which an event is recorded: create, delete."""
    wave: int = 0
    """The objects are created after those of earlier waves, and before the pods."""

    @property
    def deletable(self) -> bool:
        return self.deleted_on_suspend or self.deleted_on_finish

    @property
    def verbs(self) -> tuple[str, ...]:
        """The verbs that the operator needs in RBAC rules, besides list and watch."""
        correcting = () if self.correction is Correction.NEVER else (self.correction.value,)
        return ("create", *correcting, *(("delete",) if self.deletable else ()))


# Upstream's ClusterRole grants no more than these verbs.
CONFIG_MAP = ExtraResource(resource=CONFIG_MAPS, correction=Correction.UPDATE)
SERVICE_ACCOUNT = ExtraResource(resource=SERVICE_ACCOUNTS, correction=Correction.NEVER)
ROLE = ExtraResource(resource=ROLES, correction=Correction.UPDATE)
ROLE_BINDING = ExtraResource(resource=ROLE_BINDINGS, correction=Correction.UPDATE, wave=1)  # needs its Role


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraObject:
    """An object that a job needs besides its pods and Services."""

    of: ExtraResource
    name: str
    content: Object
    """Everything but `apiVersion`, `kind` and `metadata`. Other fields of the stored object are not changed."""
    job_field: str
    """The field of the job that an error names if the API server rejects the object."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    needed_by_pods: bool = True
    """Whether pods are created only after it exists."""
    shared: bool = False
    """Whether an object of that name that the job does not control is used as it is."""
    where_missing: str = ""
    """The warning for a job on a cluster that does not serve the resource."""


class Framework:
    extra_resources: tuple[ExtraResource, ...] = ()
    """The resources of everything that `extra_objects` may declare."""
    records_exit_code_zero: bool = True
    """Whether `ExitedWithCode` is recorded for pods that succeed too."""

    def texts(self, job: Job) -> Texts:
        return DEFAULT_TEXTS

    def deciding_role(self, job: Job) -> str:
        """The role whose pods decide whether the job runs and has succeeded: the first one that the job has."""
        return next(iter(job.replicas))

    def is_master(self, job: Job, rank: Rank) -> bool:
        """Whether the pod has the label `job-role: master`."""
        return rank == Rank(self.deciding_role(job), 0)

    # What a job consists of

    def extra_objects(self, job: Job, states: Mapping[str, RoleState]) -> Iterable[ExtraObject]:
        """The extra objects of a running job."""
        return ()

    def pod_shapes(self, job: Job, addresses: Addresses, settings: Settings) -> Callable[[Rank], PodShape]:
        """Called once for each plan that creates pods: compute here what all pods have in common."""
        return lambda _: PodShape()

    def waits_for(self, job: Job, rank: Rank) -> Rank | None:
        """The peer whose name must resolve before this pod starts."""
        return None

    def uses_other_pods(self, rank: Rank) -> bool:
        """Whether its pod is created only after all others are, because it works on pods of their names."""
        return False

    # The state of a job

    def counted_roles(self, job: Job, states: Mapping[str, RoleState]) -> Iterable[str]:
        """The roles whose pods the status counts."""
        return states

    def is_running(self, job: Job, states: Mapping[str, RoleState]) -> bool:
        return bool(states[self.deciding_role(job)].active)

    def has_succeeded(self, job: Job, states: Mapping[str, RoleState]) -> bool:
        """True if all pods of the deciding role have succeeded. A role without pods never succeeds."""
        role = self.deciding_role(job)
        return 0 < job.replicas[role].count <= len(states[role].completed)

    def failing_roles(self, job: Job, states: Mapping[str, RoleState]) -> Iterable[str]:
        """The roles whose failed pods restart or fail the job, in the order of evaluation."""
        return [role for role, state in states.items() if state.failed]

    def failure_text(self, job: Job, role: str, failed: Sequence[Pod]) -> Text:
        """The reason and message of a job that fails because of these pods."""
        return self.texts(job).role_failed
