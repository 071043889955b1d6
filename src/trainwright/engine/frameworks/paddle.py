"""PaddlePaddle: environment variables for paddle.distributed.launch.

With a Master the job trains with parameter servers, which are the masters; without one it trains by collectives.
"""

from collections.abc import Callable

from trainwright.api.job import Job
from trainwright.engine.addressing import Addresses
from trainwright.engine.children.ranks import Rank
from trainwright.engine.framework import Framework, PodShape, env_list
from trainwright.engine.settings import Settings
from trainwright.engine.texts import DEFAULT_TEXTS, TEXTS_WITHOUT_MASTER, Texts
from trainwright.objects import Object

_POD_IP: Object = {"name": "POD_IP_DUMMY", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


class Paddle(Framework):
    def texts(self, job: Job) -> Texts:
        return DEFAULT_TEXTS if _has_master(job) else TEXTS_WITHOUT_MASTER

    def is_master(self, job: Job, rank: Rank) -> bool:
        return rank.role == "Master"

    def pod_shapes(self, job: Job, addresses: Addresses, settings: Settings) -> Callable[[Rank], PodShape]:
        common = env_list(
            {"PYTHONUNBUFFERED": "1", "PADDLE_JOB_ID": job.name, "PADDLE_NNODES": str(job.total_replicas)}
        )
        rendezvous = _rendezvous(job)
        port = addresses.port(rendezvous)

        def shape(rank: Rank) -> PodShape:
            host = "$(POD_IP_DUMMY)" if rank == rendezvous else addresses.host(rendezvous)
            env = [*common, *([_POD_IP] if rank == rendezvous else []), *env_list({"PADDLE_MASTER": f"{host}:{port}"})]
            if _has_master(job):
                env += env_list({"PADDLE_SERVER_NUM" if rank.role == "Master" else "PADDLE_TRAINER_NUM": "1"})
            return PodShape(env=env)

        return shape


def _has_master(job: Job) -> bool:
    return "Master" in job.replicas


def _rendezvous(job: Job) -> Rank:
    """The rank at which the others meet."""
    return Rank("Master" if _has_master(job) else "Worker", 0)
