"""Classifies the observed pods and Services of a job: by rank, surplus, orphaned, released or foreign."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from trainwright.api.job import Job
from trainwright.api.labels import JOB_NAME, OPERATOR_NAME
from trainwright.engine.children.labels import has_rank_labels
from trainwright.engine.children.ranks import Rank
from trainwright.engine.observed_state import Observed, ServiceView
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.metadata import ObjectMeta
from trainwright.objects.resources import PODS, SERVICES, Resource

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

    @property
    def by_resource(self) -> tuple[tuple[Resource, Classified[Pod] | Classified[ServiceView]], ...]:
        return (PODS, self.pods), (SERVICES, self.services)


def classify(job: Job, observed: Observed) -> Children:
    job_name = job.name
    pods = {
        replica.role.child_name(job_name, index): Rank(role, index)
        for role, replica in job.replicas.items()
        for index in range(replica.count)
    }
    services = pods
    if not all(replica.role.has_service for replica in job.replicas.values()):
        services = {name: rank for name, rank in pods.items() if job.replicas[rank.role].role.has_service}
    return Children(_classify(job, pods, observed.pods), _classify(job, services, observed.services))


def _classify(job: Job, wanted: dict[str, Rank], children: Iterable[C]) -> Classified[C]:
    """The name of a child determines its rank. Its labels decide whether the job may adopt it or has to release it.

    It runs for every child in every reconcile, so the usual case comes first and calls nothing.
    """
    found: Classified[C] = Classified()
    ours: dict[str, C] = {}
    uid, job_name, operator_name = job.metadata.uid, job.name, job.kind.controller
    for child in children:
        metadata = child.metadata
        owner, name, labels = metadata.controller, metadata.name, metadata.labels
        if owner is not None and owner.uid == uid:
            if labels.get(JOB_NAME) == job_name and labels.get(OPERATOR_NAME) == operator_name:
                ours[name] = child
            else:
                found.relabelled[name] = child
                found.foreign[name] = metadata
        elif owner is None and _is_orphan(job, wanted.get(name), metadata):
            found.orphans[name] = child
        else:
            found.foreign[name] = metadata
    found.ranked = {rank: known for name, rank in wanted.items() if (known := ours.get(name))}
    if len(found.ranked) < len(ours):
        found.surplus = {name: child for name, child in ours.items() if name not in wanted}
    return found


def _is_orphan(job: Job, rank: Rank | None, child: ObjectMeta) -> bool:
    return rank is not None and not child.terminating and has_rank_labels(job, rank, child)
