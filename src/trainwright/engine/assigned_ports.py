"""The ports assigned to the listeners of a job. The job's status has all of them; an annotation of each child has the
ones that the child uses.

Keys are the ends of pod names (`worker-0`, `launcher`). Earlier versions used the name of a role (`Master`) as the key
of its first pod; that form is still read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from trainwright.api.job import Job
from trainwright.engine.children.pod_outcome import PORT_TAKEN
from trainwright.engine.children.ranks import Rank
from trainwright.engine.framework import Framework
from trainwright.objects.decimals import parse_decimal
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.metadata import ObjectMeta
from trainwright.objects.node_annotations import LISTEN_PORTS

PORTS = "trainwright.dev/ports"
"""On children: the ports with which they were created. A child is outdated if one of them has changed since."""


@dataclass(frozen=True, slots=True)
class AssignedPorts:
    """Empty if the declared ports are used; then no child is outdated."""

    listeners: Mapping[Rank, int]
    """The ranks that listen, with the port that each declares."""
    by_rank: Mapping[Rank, int]
    """The assigned ports, except those of ranks that are no longer listeners."""
    keys: Mapping[str, Rank]
    """The listeners by key, including the keys of earlier versions."""

    @classmethod
    def read(cls, job: Job, framework: Framework) -> Self:
        listeners = framework.listeners(job)
        written = (job.raw.get("status") or {}).get("ports") or {}
        earlier = {rank.role: rank for rank in listeners if rank.index == 0}
        keys = earlier | {key_of(job, rank): rank for rank in listeners}
        return cls(listeners, {rank: written[key] for key, rank in keys.items() if key in written}, keys)

    def get(self, rank: Rank) -> int | None:
        return self.by_rank.get(rank)

    def is_outdated(self, child: ObjectMeta, used: Iterable[Rank]) -> bool:
        """True if a port with which the child was created has changed. `used`: the ranks whose ports it needs."""
        text = child.annotations.get(PORTS)
        if not text:
            return any(rank in self.by_rank for rank in used)
        entries = (entry.rpartition("=") for entry in text.split(","))
        return any(
            key in self.keys
            and (given := parse_decimal(number)) is not None
            and self.by_rank.get(self.keys[key]) != given
            for key, _, number in entries
        )

    def is_taken(self, rank: Rank, pod: Pod) -> bool:
        """True if another program listens on the port that was assigned to the pod."""
        given = pod.metadata.annotations.get(LISTEN_PORTS)
        return pod.status.reason == PORT_TAKEN and rank in self.by_rank and given == str(self.by_rank[rank])


NO_PORTS = AssignedPorts({}, {}, {})


def key_of(job: Job, rank: Rank) -> str:
    """The key of the rank in `status.ports` and in annotations."""
    return job.child_name(rank.role, rank.index).removeprefix(f"{job.name}-")


def format_ports(job: Job, ports: AssignedPorts, ranks: Iterable[Rank]) -> str:
    """The ports of these ranks in the format of the annotation `PORTS`."""
    return ",".join(f"{key_of(job, rank)}={ports.by_rank[rank]}" for rank in ranks if rank in ports.by_rank)
