"""The addresses under which the pods of a job reach each other: names of Services and ports."""

from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.api.job import Job
from trainwright.engine.children.ranks import Rank


@dataclass(frozen=True, slots=True)
class Addresses:
    job: Job
    inherited: Mapping[Rank, int]
    """The ports that running pods of an earlier version expect in place of the declared ones."""
    cluster_domain: str = ""
    """The domain of fully qualified names, such as `cluster.local`; empty: names end with `svc`."""

    def host(self, rank: Rank) -> str:
        """The name of the rank's Service, which resolves in the job's namespace."""
        return self.job.child_name(rank.role, rank.index)

    def qualified_host(self, rank: Rank) -> str:
        """The name of the rank's Service, which resolves in all namespaces."""
        domain = f".{self.cluster_domain}" if self.cluster_domain else ""
        return f"{self.host(rank)}.{self.job.namespace}.svc{domain}"

    def port(self, rank: Rank, declared: int | None = None) -> int:
        """The port of the rank; without an inherited one `declared`, by default what its role declares."""
        if rank in self.inherited:
            return self.inherited[rank]
        return declared_port(self.job, rank.role) if declared is None else declared


def declared_port(job: Job, role: str) -> int:
    """The port that the role's main container declares under the kind's port name."""
    ports = job.replicas[role].main_container.get("ports") or []
    return next(int(port["containerPort"]) for port in ports if port.get("name") == job.kind.port_name)
