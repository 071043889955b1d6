"""Classifies the observed pods and Services of a job: by rank, surplus, orphaned, released or foreign."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from trainwright.api.job import Job
from trainwright.api.labels import JOB_NAME, OPERATOR_NAME
from trainwright.engine.labels import has_rank_labels
from trainwright.engine.observed import Observed, ServiceView
from trainwright.engine.ranks import Rank
from trainwright.objects.metadata import ObjectMeta
from trainwright.objects.pods import Pod

C = TypeVar("C", bound=Pod | ServiceView)


@dataclass(slots=True)
class Classified(Generic[C]):
    """All children of one resource."""

    ranked: dict[Rank, C] = field(default_factory=dict)
    """The child of each desired rank. Names are unique, so a rank has at most one."""
    surplus: dict[str, C] = field(default_factory=dict)
    """Controlled by the job, but of no desired rank: the job was scaled down, or a role was removed."""
    orphans: dict[str, C] = field(default_factory=dict)
    """Without a controller, but with the name and labels of a rank."""
    relabelled: dict[str, C] = field(default_factory=dict)
    """Controlled by the job, but to be released because a user has changed their labels."""
    foreign: dict[str, ObjectMeta] = field(default_factory=dict)
    """Children that do not belong to the job, by name; includes relabelled ones."""

    @property
    def controlled(self) -> list[C]:
        return [*self.ranked.values(), *self.surplus.values()]


@dataclass(frozen=True, slots=True)
class Children:
    pods: Classified[Pod]
    services: Classified[ServiceView]


def classify(job: Job, observed: Observed) -> Children:
    pods = {
        job.child_name(role, index): Rank(role, index)
        for role, replica in job.replicas.items()
        for index in range(replica.count)
    }
    services = {name: rank for name, rank in pods.items() if job.replicas[rank.role].role.has_service}
    return Children(_classify(job, pods, observed.pods), _classify(job, services, observed.services))


def _classify(job: Job, wanted: dict[str, Rank], children: Iterable[C]) -> Classified[C]:
    """The name of a child determines its rank. Its labels decide whether the job may adopt it or has to release it."""
    found: Classified[C] = Classified()
    ours: dict[str, C] = {}
    selected_by = (job.name, job.kind.controller)
    for child in children:
        metadata = child.metadata
        owner, rank = metadata.controller, wanted.get(metadata.name)
        if owner is None and rank is not None and not metadata.terminating and has_rank_labels(job, rank, metadata):
            found.orphans[metadata.name] = child
        elif owner is None or owner.uid != job.metadata.uid:
            found.foreign[metadata.name] = metadata
        elif _selecting_labels(metadata) != selected_by:
            found.relabelled[metadata.name] = child
            found.foreign[metadata.name] = metadata
        else:
            ours[metadata.name] = child
    found.ranked = {rank: ours[name] for name, rank in wanted.items() if name in ours}
    found.surplus = {name: child for name, child in ours.items() if name not in wanted}
    return found


def _selecting_labels(child: ObjectMeta) -> tuple[str | None, str | None]:
    """The labels by which the operator selects children. A child whose labels change is released."""
    return child.labels.get(JOB_NAME), child.labels.get(OPERATOR_NAME)
