"""PyTorch: rank and master for torch.distributed, and torchrun's settings as PET_ variables."""

import re
from collections.abc import Mapping

from trainwright.api.job import Job
from trainwright.api.kinds.pytorch import ElasticPolicy, PyTorchFields
from trainwright.engine.framework import Framework, Tally
from trainwright.engine.ranks import Rank
from trainwright.engine.rendering.addressing import Addresses, declared_port
from trainwright.objects import Object

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_LARGEST_NUMBER = 2**63 - 1

MASTER = Rank("Master", 0)
FIRST_WORKER = Rank("Worker", 0)


class PyTorch(Framework):
    def environment(self, job: Job, rank: Rank, addresses: Addresses) -> list[Object]:
        fields = job.own_fields(PyTorchFields)
        env = {"PYTHONUNBUFFERED": "1"}
        if "Master" in job.replicas:
            env |= _master_environment(job, rank, addresses, fields)
        if fields.nproc_per_node is not None:
            env["PET_NPROC_PER_NODE"] = fields.nproc_per_node
        if fields.elastic_policy is None:
            env["PET_NNODES"] = str(job.total_replicas)
        else:
            env |= _elastic_environment(job, addresses, fields.elastic_policy)
        return [{"name": name, "value": value} for name, value in env.items()]

    def listeners(self, job: Job) -> dict[str, int]:
        """The master, and the first worker where workers rendezvous there."""
        elastic = job.own_fields(PyTorchFields).elastic_policy
        listeners = {}
        if "Master" in job.replicas:
            listeners["Master"] = declared_port(job, "Master")
        meets_at_worker = not elastic.rdzv_host if elastic is not None else "Master" not in job.replicas
        if meets_at_worker:
            listeners["Worker"] = _rendezvous_port(job, elastic)
        return listeners

    def waits_for(self, job: Job, rank: Rank) -> Rank | None:
        return MASTER if rank.role == "Worker" and "Master" in job.replicas else None

    def succeeded(self, job: Job, tallies: Mapping[str, Tally]) -> bool:
        """An elastic job without a master has done its work as soon as any worker has."""
        if self.decider(job) == "Worker" and job.own_fields(PyTorchFields).elastic_policy is not None:
            return tallies["Worker"].succeeded > 0
        return super().succeeded(job, tallies)

    def autoscaling(self, job: Job) -> Object | None:
        elastic = job.own_fields(PyTorchFields).elastic_policy
        if elastic is None or elastic.metrics is None:
            return None
        bounds: Object = {"minReplicas": elastic.min_replicas, "maxReplicas": elastic.max_replicas}
        return {**bounds, "metrics": elastic.metrics} if elastic.metrics else bounds


def _master_environment(job: Job, rank: Rank, addresses: Addresses, fields: PyTorchFields) -> dict[str, str]:
    port = str(addresses.port("Master", declared_port(job, "Master")))
    host = addresses.host(MASTER)
    node = str(rank.index if rank.role == "Master" else rank.index + 1)
    world = job.total_replicas * _processes(fields.nproc_per_node)
    return {
        "MASTER_PORT": port,
        "PET_MASTER_PORT": port,
        "MASTER_ADDR": host,
        "PET_MASTER_ADDR": host,
        "WORLD_SIZE": str(world),
        "RANK": node,
        "PET_NODE_RANK": node,
    }


def _processes(nproc_per_node: str | None) -> int:
    """`auto`, `cpu` and `gpu` are known in the pod alone; then torchrun corrects the world's size. A number that is too
    large for Go's operator is as good as none."""
    number = int(nproc_per_node) if nproc_per_node and _NUMBER.fullmatch(nproc_per_node) else 1
    return number if abs(number) <= _LARGEST_NUMBER else 1


def _elastic_environment(job: Job, addresses: Addresses, elastic: ElasticPolicy) -> dict[str, str]:
    port = addresses.port("Worker", _rendezvous_port(job, elastic))
    env = {
        "PET_RDZV_ENDPOINT": f"{elastic.rdzv_host or addresses.host(FIRST_WORKER)}:{port}",
        "PET_RDZV_BACKEND": elastic.rdzv_backend or "c10d",
        "PET_NNODES": f"{elastic.min_replicas}:{elastic.max_replicas}",
    }
    if elastic.max_restarts is not None:
        env["PET_MAX_RESTARTS"] = str(elastic.max_restarts)
    if elastic.n_proc_per_node is not None:
        env["PET_NPROC_PER_NODE"] = str(elastic.n_proc_per_node)
    if elastic.rdzv_id is not None:
        env["PET_RDZV_ID"] = elastic.rdzv_id
    if elastic.rdzv_conf:
        env["PET_RDZV_CONF"] = ",".join(f"{conf.key or ''}={conf.value or ''}" for conf in elastic.rdzv_conf)
    if elastic.standalone:
        env["PET_STANDALONE"] = ""
    return env


def _rendezvous_port(job: Job, elastic: ElasticPolicy | None) -> int:
    if elastic is not None and elastic.rdzv_port is not None:
        return elastic.rdzv_port
    return declared_port(job, "Worker")
