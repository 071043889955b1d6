"""What a framework may say about its jobs. The defaults are what most of them want; a module in `frameworks`
overrides what differs."""

from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.api.job import Job
from trainwright.engine.ranks import Rank
from trainwright.engine.rendering.addressing import Addresses
from trainwright.objects import Object


@dataclass(frozen=True, slots=True)
class Tally:
    """How the pods of one role stand."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0


class Framework:
    def environment(self, job: Job, rank: Rank, addresses: Addresses) -> list[Object]:
        """Env entries that are appended to every container of the pod."""
        _ = job, rank, addresses
        return []

    def decider(self, job: Job) -> str:
        """The role whose pods say whether the job runs and has succeeded: the first that the job has."""
        return next(iter(job.replicas))

    def is_master(self, job: Job, rank: Rank) -> bool:
        """Whether the pod carries the label `job-role: master`."""
        if rank.role == job.kind.roles[0].name:
            return True
        return rank == Rank(self.decider(job), 0)

    def listeners(self, job: Job) -> dict[str, int]:
        """The roles whose first pod listens for its peers, with the port that the manifest declares."""
        _ = job
        return {}

    def waits_for(self, job: Job, rank: Rank) -> Rank | None:
        """The peer whose name must resolve before this pod starts."""
        _ = job, rank
        return None

    def autoscaling(self, job: Job) -> Object | None:
        """The bounds and metrics of the job's autoscaler; None if it has none."""
        _ = job
        return None

    def succeeded(self, job: Job, tallies: Mapping[str, Tally]) -> bool:
        """All pods of the deciding role have succeeded; a role without pods decides nothing."""
        role = self.decider(job)
        return 0 < job.replicas[role].count <= tallies[role].succeeded

    def running_message(self, job: Job) -> str:
        if self._has_first_role(job):
            return f"{job.kind.name} {job.name} is running."
        return f"{job.kind.name} {job.namespace}/{job.name} is running."

    def succeeded_message(self, job: Job) -> str:
        if self._has_first_role(job):
            return f"{job.kind.name} {job.name} is successfully completed."
        return f"{job.kind.name} {job.namespace}/{job.name} successfully completed."

    def _has_first_role(self, job: Job) -> bool:
        return job.kind.roles[0].name in job.replicas
