"""The job's children, sorted once: which rank each of them is, which are too many, which belong to somebody else."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from trainwright.api.job import Job
from trainwright.engine.labels import REPLICA_INDEX, REPLICA_TYPE
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
    pods, surplus_pods, foreign_pods = _sort(job, observed.pods)
    services, surplus_services, foreign_services = _sort(job, observed.services)
    return Children(pods, surplus_pods, foreign_pods, services, surplus_services, foreign_services)


def _sort(job: Job, children: Iterable[C]) -> tuple[dict[Rank, C], tuple[C, ...], dict[str, ObjectMeta]]:
    ranked: dict[Rank, C] = {}
    surplus: list[C] = []
    foreign: dict[str, ObjectMeta] = {}
    for child in children:
        owner = child.metadata.controller
        if owner is None or owner.uid != job.metadata.uid:
            foreign[child.metadata.name] = child.metadata
        elif (rank := _rank(job, child.metadata)) is None:
            surplus.append(child)
        else:
            ranked[rank] = child
    order = {role: place for place, role in enumerate(job.replicas)}
    in_order = sorted(ranked, key=lambda rank: (order[rank.role], rank.index))
    return {rank: ranked[rank] for rank in in_order}, tuple(surplus), foreign


def _rank(job: Job, metadata: ObjectMeta) -> Rank | None:
    """The wanted rank that this child is, if it is one."""
    role = job.kind.role(metadata.labels.get(REPLICA_TYPE, ""))
    index = metadata.labels.get(REPLICA_INDEX, "")
    if role is None or role.name not in job.replicas or not index.isdecimal():
        return None
    rank = Rank(role.name, int(index))
    wanted = rank.index < job.replicas[role.name].count and metadata.name == job.child_name(rank.role, rank.index)
    return rank if wanted else None
