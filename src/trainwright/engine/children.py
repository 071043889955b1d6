"""The job's children, sorted once: which rank each of them is, which are too many, which belong to somebody else."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from trainwright.api.job import Job
from trainwright.api.labels import JOB_NAME, OPERATOR_NAME
from trainwright.engine.observed import Observed, ServiceView
from trainwright.engine.ranks import Rank
from trainwright.engine.rendering.labels import is_labelled_for
from trainwright.objects.metadata import ObjectMeta
from trainwright.objects.pods import Pod

C = TypeVar("C", Pod, ServiceView)


@dataclass(slots=True)
class Sorted(Generic[C]):
    """All children of one resource."""

    ranked: dict[Rank, C] = field(default_factory=dict)
    """The child of each rank that the job wants; names are unique, so there is at most one."""
    surplus: dict[str, C] = field(default_factory=dict)
    """Ours, but of no rank that the job wants: it was scaled down, or lost a role."""
    orphans: dict[str, C] = field(default_factory=dict)
    """Nobody's, and in all ours but for the owner: what an operator left behind, or a user prepared."""
    strays: dict[str, C] = field(default_factory=dict)
    """Ours by owner, but somebody has given it the labels of something else: it shall be let go."""
    foreign: dict[str, ObjectMeta] = field(default_factory=dict)
    """Not ours, by name; strays are among them."""


@dataclass(frozen=True, slots=True)
class Children:
    of_pods: Sorted[Pod]
    of_services: Sorted[ServiceView]

    @property
    def pods(self) -> dict[Rank, Pod]:
        return self.of_pods.ranked

    @property
    def services(self) -> dict[Rank, ServiceView]:
        return self.of_services.ranked

    @property
    def surplus_pods(self) -> tuple[Pod, ...]:
        return tuple(self.of_pods.surplus.values())

    @property
    def surplus_services(self) -> tuple[ServiceView, ...]:
        return tuple(self.of_services.surplus.values())

    @property
    def all_pods(self) -> tuple[Pod, ...]:
        return (*self.pods.values(), *self.surplus_pods)

    @property
    def all_services(self) -> tuple[ServiceView, ...]:
        return (*self.services.values(), *self.surplus_services)


def classify(job: Job, observed: Observed) -> Children:
    wanted = {
        job.child_name(role, index): Rank(role, index)
        for role, replica in job.replicas.items()
        for index in range(replica.count)
    }
    return Children(_sort(job, wanted, observed.pods), _sort(job, wanted, observed.services))


def _sort(job: Job, wanted: dict[str, Rank], children: Iterable[C]) -> Sorted[C]:
    """A child's name says which rank it is. Its labels only say whether it still is, or wants to be, the job's."""
    found: Sorted[C] = Sorted()
    ours: dict[str, C] = {}
    selected_by = (job.name, job.kind.controller)
    for child in children:
        metadata = child.metadata
        owner, rank = metadata.controller, wanted.get(metadata.name)
        if owner is None and rank is not None and not metadata.terminating and is_labelled_for(job, rank, metadata):
            found.orphans[metadata.name] = child
        elif owner is None or owner.uid != job.metadata.uid:
            found.foreign[metadata.name] = metadata
        elif _selecting_labels(metadata) != selected_by:
            found.strays[metadata.name] = child
            found.foreign[metadata.name] = metadata
        else:
            ours[metadata.name] = child
    found.ranked = {rank: ours[name] for name, rank in wanted.items() if name in ours}
    found.surplus = {name: child for name, child in ours.items() if name not in wanted}
    return found


def _selecting_labels(child: ObjectMeta) -> tuple[str | None, str | None]:
    """What Kubernetes' controllers select by: whoever changes these takes the child out of the job."""
    return child.labels.get(JOB_NAME), child.labels.get(OPERATOR_NAME)
