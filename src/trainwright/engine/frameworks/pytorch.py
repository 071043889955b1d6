"""PyTorch: environment variables for torch.distributed, and torchrun's settings as PET_ variables."""

import re
from collections.abc import Callable, Iterable, Mapping

from trainwright.api.job import Job
from trainwright.api.kinds.pytorch import DEFAULT_RDZV_BACKEND, ElasticPolicy, PyTorchFields
from trainwright.engine.addressing import Addresses
from trainwright.engine.children.ranks import Rank
from trainwright.engine.framework import (
    Correction,
    ExtraObject,
    ExtraResource,
    Framework,
    PodShape,
    RoleState,
    env_list,
)
from trainwright.engine.settings import Settings
from trainwright.engine.texts import DEFAULT_TEXTS, TEXTS_WITHOUT_MASTER, Texts
from trainwright.objects import Object
from trainwright.objects.resources import AUTOSCALERS

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_LARGEST_NUMBER = 2**63 - 1

MASTER = Rank("Master", 0)
FIRST_WORKER = Rank("Worker", 0)


AUTOSCALER = ExtraResource(
    resource=AUTOSCALERS, correction=Correction.PATCH, deleted_on_suspend=True, deleted_on_finish=True
)


class PyTorch(Framework):
    extra_resources = (AUTOSCALER,)

    def texts(self, job: Job) -> Texts:
        return DEFAULT_TEXTS if "Master" in job.replicas else TEXTS_WITHOUT_MASTER

    def extra_objects(self, job: Job, states: Mapping[str, RoleState]) -> Iterable[ExtraObject]:
        """An elastic job with metrics has a HorizontalPodAutoscaler, which scales its workers."""
        elastic = job.own_fields(PyTorchFields).elastic_policy
        if elastic is None or elastic.metrics is None:
            return
        spec: Object = {
            "scaleTargetRef": {"apiVersion": job.kind.resource.api_version, "kind": job.kind.name, "name": job.name},
            "minReplicas": elastic.min_replicas,
            "maxReplicas": elastic.max_replicas,
        }
        if elastic.metrics:
            spec["metrics"] = elastic.metrics
        yield ExtraObject(
            of=AUTOSCALER,
            name=job.name,
            content={"spec": spec},
            job_field="spec.elasticPolicy",
            needed_by_pods=False,
            where_missing="spec.elasticPolicy.metrics: no HorizontalPodAutoscaler is created here; use kubectl scale",
        )

    def pod_shapes(self, job: Job, addresses: Addresses, settings: Settings) -> Callable[[Rank], PodShape]:
        fields = job.own_fields(PyTorchFields)
        master = _master_environment(job, addresses, fields) if "Master" in job.replicas else {}
        torchrun = _torchrun_environment(job, addresses, fields)

        def shape(rank: Rank) -> PodShape:
            env = {"PYTHONUNBUFFERED": "1"}
            if master:
                node = str(rank.index if rank.role == "Master" else rank.index + 1)
                env |= {**master, "RANK": node, "PET_NODE_RANK": node}
            env |= torchrun
            return PodShape(env=env_list(env))

        return shape

    def waits_for(self, job: Job, rank: Rank) -> Rank | None:
        return MASTER if rank.role == "Worker" and "Master" in job.replicas else None

    def has_succeeded(self, job: Job, states: Mapping[str, RoleState]) -> bool:
        """An elastic job without a master has succeeded as soon as any worker has."""
        if self.deciding_role(job) == "Worker" and job.own_fields(PyTorchFields).elastic_policy is not None:
            return bool(states["Worker"].completed)
        return super().has_succeeded(job, states)


def _master_environment(job: Job, addresses: Addresses, fields: PyTorchFields) -> dict[str, str]:
    port = str(addresses.port(MASTER))
    host = addresses.host(MASTER)
    world = job.total_replicas * _processes(fields.nproc_per_node)
    return {
        "MASTER_PORT": port,
        "PET_MASTER_PORT": port,
        "MASTER_ADDR": host,
        "PET_MASTER_ADDR": host,
        "WORLD_SIZE": str(world),
    }


def _torchrun_environment(job: Job, addresses: Addresses, fields: PyTorchFields) -> dict[str, str]:
    env = {} if fields.nproc_per_node is None else {"PET_NPROC_PER_NODE": fields.nproc_per_node}
    if fields.elastic_policy is None:
        return {**env, "PET_NNODES": str(job.total_replicas)}
    return env | _elastic_environment(addresses, fields.elastic_policy)


def _processes(nproc_per_node: str | None) -> int:
    """1 for `auto`, `cpu` and `gpu`: torchrun resolves them in the pod and sets the world size. A number that is too
    large for upstream's operator counts as 1 too."""
    number = int(nproc_per_node) if nproc_per_node and _NUMBER.fullmatch(nproc_per_node) else 1
    return number if abs(number) <= _LARGEST_NUMBER else 1


def _elastic_environment(addresses: Addresses, elastic: ElasticPolicy) -> dict[str, str]:
    port = addresses.port(FIRST_WORKER, elastic.rdzv_port)
    env = {
        "PET_RDZV_ENDPOINT": f"{elastic.rdzv_host or addresses.host(FIRST_WORKER)}:{port}",
        "PET_RDZV_BACKEND": elastic.rdzv_backend or DEFAULT_RDZV_BACKEND,
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
