"""JAX: environment variables for jax.distributed.initialize."""

from collections.abc import Callable

from trainwright.api.job import Job
from trainwright.engine.addressing import Addresses
from trainwright.engine.children.ranks import Rank
from trainwright.engine.framework import Framework, PodShape, env_list
from trainwright.engine.settings import Settings
from trainwright.engine.texts import TEXTS_WITHOUT_MASTER, Texts

COORDINATOR = Rank("Worker", 0)


class Jax(Framework):
    def texts(self, job: Job) -> Texts:
        return TEXTS_WITHOUT_MASTER

    def pod_shapes(self, job: Job, addresses: Addresses, settings: Settings) -> Callable[[Rank], PodShape]:
        common = {
            "PYTHONUNBUFFERED": "1",
            "COORDINATOR_PORT": str(addresses.port(COORDINATOR)),
            "COORDINATOR_ADDRESS": addresses.host(COORDINATOR),
            "NUM_PROCESSES": str(job.total_replicas),
        }
        return lambda rank: PodShape(env=env_list({**common, "PROCESS_ID": str(rank.index)}))
