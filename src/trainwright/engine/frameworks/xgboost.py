"""XGBoost: environment variables for its tracker, and for LightGBM, whose workers connect to each other."""

from collections.abc import Callable, Mapping

from trainwright.api.job import Job
from trainwright.engine.addressing import Addresses
from trainwright.engine.children.ranks import Rank
from trainwright.engine.framework import Framework, PodShape, RoleState, env_list
from trainwright.engine.settings import Settings

MASTER = Rank("Master", 0)
FIRST_WORKER = Rank("Worker", 0)


class XGBoost(Framework):
    def pod_shapes(self, job: Job, addresses: Addresses, settings: Settings) -> Callable[[Rank], PodShape]:
        master = {
            "MASTER_PORT": str(addresses.port(MASTER)),
            "MASTER_ADDR": addresses.host(MASTER),
            "WORLD_SIZE": str(job.total_replicas),
        }
        workers = _workers(job, addresses)

        def shape(rank: Rank) -> PodShape:
            number = rank.index if rank.role == "Master" else rank.index + job.replicas["Master"].count
            return PodShape(env=env_list({**master, "RANK": str(number), "PYTHONUNBUFFERED": "1", **workers}))

        return shape

    def is_running(self, job: Job, states: Mapping[str, RoleState]) -> bool:
        """As upstream does: a job with a failed pod is Running for a moment, so that Restarting or Failed follows with
        the number of failed pods."""
        return any(state.failed for state in states.values()) or super().is_running(job, states)


def _workers(job: Job, addresses: Addresses) -> dict[str, str]:
    if not _has_workers(job):
        return {}
    names = [addresses.host(Rank("Worker", index)) for index in range(job.replicas["Worker"].count)]
    return {
        "WORKER_PORT": str(addresses.port(FIRST_WORKER)),
        "WORKER_ADDRS": ",".join(names),
    }


def _has_workers(job: Job) -> bool:
    return "Worker" in job.replicas and job.replicas["Worker"].count > 0
