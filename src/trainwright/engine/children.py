"""The job's children, sorted once: which rank each of them is, which are too many, which belong to somebody else."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from trainwright.api.job import Job
from trainwright.engine.observed import Observed, ServiceView
from trainwright.engine.ranks import Rank
from trainwright.objects.metadata import ObjectMeta
from trainwright.objects.pods import Pod

C = TypeVar("C", Pod, ServiceView)


@dataclass(frozen=True, slots=True)
class Children:
    pods: dict[Rank, Pod]
    """The pod of each rank that the job wants; names are unique, so there is at most one."""
    surplus_pods: tuple[Pod, ...]
    """Ours, but of no rank that the job wants: it was scaled down, or lost a role."""
    foreign_pods: dict[str, ObjectMeta]
    """Not ours, by name."""
    services: dict[Rank, ServiceView]
    surplus_services: tuple[ServiceView, ...]
    foreign_services: dict[str, ObjectMeta]

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
    pods, surplus_pods, foreign_pods = _sort(job, wanted, observed.pods)
    services, surplus_services, foreign_services = _sort(job, wanted, observed.services)
    return Children(pods, surplus_pods, foreign_pods, services, surplus_services, foreign_services)


def _sort(
    job: Job, wanted: dict[str, Rank], children: Iterable[C]
) -> tuple[dict[Rank, C], tuple[C, ...], dict[str, ObjectMeta]]:
    """A child's name says which rank it is: labels can be edited, names cannot."""
    ours: dict[str, C] = {}
    foreign: dict[str, ObjectMeta] = {}
    for child in children:
        owner = child.metadata.controller
        if owner is not None and owner.uid == job.metadata.uid:
            ours[child.metadata.name] = child
        else:
            foreign[child.metadata.name] = child.metadata
    ranked = {rank: ours[name] for name, rank in wanted.items() if name in ours}
    surplus = tuple(child for name, child in ours.items() if name not in wanted)
    return ranked, surplus, foreign
