"""How the pods of a job reach each other: by names and ports. On one machine ports are assigned, elsewhere declared."""

from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.api.defaults import main_container
from trainwright.api.job import Job
from trainwright.engine.ranks import Rank


@dataclass(frozen=True, slots=True)
class Addresses:
    job: Job
    assigned: Mapping[Rank, int]
    """Ports that were assigned to listeners of this job; empty where declared ones are used."""

    def host(self, rank: Rank) -> str:
        return self.job.child_name(rank.role, rank.index)

    def port(self, rank: Rank, declared: int) -> int:
        return self.assigned.get(rank, declared)


def declared_port(job: Job, role: str) -> int:
    """The port that the role's main container declares under the kind's port name."""
    replica = job.replicas[role]
    ports = main_container(replica.template["spec"]["containers"], replica.container).get("ports") or []
    return next(int(port["containerPort"]) for port in ports if port.get("name") == job.kind.port_name)
