"""The fields that belong to one kind alone, with their defaults and their rules."""

from collections.abc import Iterable
from typing import Annotated, Any

from msgspec import Meta

from trainwright.api.errors import FieldError, forbidden, required
from trainwright.api.types import Int32
from trainwright.objects import Object
from trainwright.objects.metadata import View


class RdzvConf(View, frozen=True):
    key: str | None = None
    value: str | None = None


class ElasticPolicy(View, frozen=True):
    """torchrun's elastic mode: how workers find each other and how many there may be."""

    min_replicas: Int32 | None = None
    max_replicas: Int32 | None = None
    rdzv_backend: str | None = None
    rdzv_port: Int32 | None = None
    rdzv_host: str | None = None
    rdzv_id: str | None = None
    rdzv_conf: tuple[RdzvConf, ...] | None = None
    standalone: bool | None = None
    n_proc_per_node: Annotated[Int32, Meta(description="Deprecated: use spec.nprocPerNode.")] | None = None
    max_restarts: Int32 | None = None
    metrics: (
        list[Annotated[dict[str, Any], Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True})]] | None
    ) = None


class PyTorchFields(View, frozen=True):
    elastic_policy: ElasticPolicy | None = None
    nproc_per_node: (
        Annotated[str, Meta(description="Processes per pod for torchrun: auto, cpu, gpu or a number.")] | None
    ) = None


def complete_pytorch(spec: Object) -> Object:
    """Elastic bounds default to each other or to the number of workers; nprocPerNode to `auto`."""
    elastic = spec.get("elasticPolicy")
    if elastic is None:
        return spec if spec.get("nprocPerNode") is not None else {**spec, "nprocPerNode": "auto"}
    completed = {**spec, "elasticPolicy": _with_bounds(elastic, _workers(spec))}
    if spec.get("nprocPerNode") is None and elastic.get("nProcPerNode") is None:
        completed["nprocPerNode"] = "auto"
    return completed


def check_pytorch(spec: Object) -> Iterable[FieldError]:
    elastic = spec.get("elasticPolicy")
    if elastic is None:
        return
    if "Worker" not in (spec.get("pytorchReplicaSpecs") or {}):
        yield required("spec.pytorchReplicaSpecs.Worker", "must be configured if elastic policy is used")
    if elastic.get("nProcPerNode") is not None and spec.get("nprocPerNode") is not None:
        yield forbidden("spec.elasticPolicy.nProcPerNode", "must not be used with spec.nprocPerNode")


def _with_bounds(elastic: Object, workers: int) -> Object:
    low, high = elastic.get("minReplicas"), elastic.get("maxReplicas")
    if low is None:
        low = workers if high is None else high
    return {**elastic, "minReplicas": low, "maxReplicas": low if high is None else high}


def _workers(spec: Object) -> int:
    workers = (spec.get("pytorchReplicaSpecs") or {}).get("Worker") or {}
    count = workers.get("replicas")
    return 1 if count is None else int(count)
