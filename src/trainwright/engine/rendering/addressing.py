"""Where the pods of a job find each other: names and ports. On one machine ports are chosen, elsewhere declared."""

from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.api.defaults import default_container
from trainwright.api.job import Job
from trainwright.engine.ranks import Rank


@dataclass(frozen=True, slots=True)
class Addresses:
    job: Job
    chosen: Mapping[str, int]
    """Ports by role, where they were chosen for this job; empty where declared ones are used."""

    def host(self, rank: Rank) -> str:
        return self.job.child_name(rank.role, rank.index)

    def port(self, role: str, declared: int) -> int:
        return self.chosen.get(role, declared)


def declared_port(job: Job, role: str) -> int:
    """The port that the role's training container declares under the kind's port name."""
    containers = job.replicas[role].template["spec"]["containers"]
    ports = default_container(containers, job.kind).get("ports") or []
    return next(int(port["containerPort"]) for port in ports if port.get("name") == job.kind.port_name)
