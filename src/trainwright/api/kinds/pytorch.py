"""PyTorchJob: its row, its own fields, their defaults and checks."""

from collections.abc import Iterable
from typing import Annotated

from msgspec.structs import replace

from trainwright.api.autoscaling import Metric, MetricSpec
from trainwright.api.decoding import problem_with
from trainwright.api.errors import invalid
from trainwright.api.kinds.kind import Kind, ReplicaSpecs, Role
from trainwright.api.types import Int32, text
from trainwright.objects.field_errors import FieldError, forbidden, required
from trainwright.objects.metadata import View

_NPROC = "spec.nprocPerNode"
_OLD_NPROC = "spec.elasticPolicy.nProcPerNode"


class RdzvConf(View, frozen=True):
    """One setting of the rendezvous."""

    key: Annotated[str | None, text("The setting's name, such as timeout.")] = None
    value: Annotated[str | None, text("Its value.")] = None


class ElasticPolicy(View, frozen=True):
    """torchrun's elastic mode: how workers find each other and how many there may be."""

    min_replicas: Annotated[
        Int32 | None, text("How few workers may train; maxReplicas or the number of workers if not set.")
    ] = None
    max_replicas: Annotated[Int32 | None, text("How many workers may train; minReplicas if not set.")] = None
    rdzv_backend: Annotated[
        str | None, text("How workers find each other: c10d (default), etcd or etcd-v2; PET_RDZV_BACKEND.")
    ] = None
    rdzv_port: Annotated[Int32 | None, text("The port of the rendezvous; the first worker's if not set.")] = None
    rdzv_host: Annotated[str | None, text("The host of the rendezvous; the first worker if not set.")] = None
    rdzv_id: Annotated[str | None, text("The name of the rendezvous; PET_RDZV_ID.")] = None
    rdzv_conf: Annotated[tuple[RdzvConf, ...] | None, text("Settings of the rendezvous; PET_RDZV_CONF.")] = None
    standalone: Annotated[bool | None, text("Start a rendezvous of its own in each pod; PET_STANDALONE.")] = None
    n_proc_per_node: Annotated[Int32 | None, text("Deprecated: write spec.nprocPerNode.")] = None
    max_restarts: Annotated[
        Int32 | None, text("How often torchrun restarts its processes inside the pods; PET_MAX_RESTARTS.")
    ] = None
    metrics: Annotated[
        list[Metric] | None, text("What a HorizontalPodAutoscaler scales the workers by; none is created if not set.")
    ] = None


class PyTorchFields(View, frozen=True):
    elastic_policy: ElasticPolicy | None = None
    nproc_per_node: Annotated[
        str | None, text("Processes per pod for torchrun: auto (default), cpu, gpu or a number; PET_NPROC_PER_NODE.")
    ] = None


def _complete(fields: PyTorchFields, replicas: ReplicaSpecs) -> PyTorchFields:
    """Elastic bounds default to each other or to the number of workers, but not to 0; nprocPerNode to `auto`."""
    elastic = fields.elastic_policy
    nproc = fields.nproc_per_node
    if elastic is None:
        return replace(fields, nproc_per_node="auto" if nproc is None else nproc)
    if nproc is None and elastic.n_proc_per_node is None:
        nproc = "auto"
    return replace(fields, elastic_policy=_with_bounds(elastic, _workers(replicas)), nproc_per_node=nproc)


def _check(fields: PyTorchFields, replicas: ReplicaSpecs) -> Iterable[FieldError]:
    elastic = fields.elastic_policy
    if elastic is None:
        return
    if "Worker" not in replicas:
        yield required("spec.pytorchReplicaSpecs[Worker]", "must be configured if elastic policy is used")
    if elastic.n_proc_per_node is not None and fields.nproc_per_node is not None:
        yield forbidden(_OLD_NPROC, f"must not be used with {_NPROC}")
    yield from _check_bounds(elastic.min_replicas, elastic.max_replicas)
    for position, metric in enumerate(elastic.metrics or ()):
        if problem := problem_with(metric, MetricSpec, f"spec.elasticPolicy.metrics[{position}]"):
            yield problem


def _deprecations(fields: PyTorchFields) -> Iterable[str]:
    if fields.elastic_policy is not None and fields.elastic_policy.n_proc_per_node is not None:
        yield f"{_OLD_NPROC} is deprecated, use {_NPROC} instead"


def _check_bounds(low: int | None, high: int | None) -> Iterable[FieldError]:
    """torchrun would end with an error; a job that is refused says why."""
    if low is not None and low < 1:
        yield invalid("spec.elasticPolicy.minReplicas", low, "must be at least 1")
    if high is not None and high < max(low or 1, 1):
        detail = "must be at least 1" if high < 1 else f"must be at least minReplicas, which is {low}"
        yield invalid("spec.elasticPolicy.maxReplicas", high, detail)


def _with_bounds(elastic: ElasticPolicy, workers: int) -> ElasticPolicy:
    low, high = elastic.min_replicas, elastic.max_replicas
    if low is None:
        low = max(workers, 1) if high is None else high
    return replace(elastic, min_replicas=low, max_replicas=low if high is None else high)


def _workers(replicas: ReplicaSpecs) -> int:
    workers = replicas.get("Worker")
    return 1 if workers is None or workers.replicas is None else workers.replicas


PYTORCH = Kind(
    name="PyTorchJob",
    plural="pytorchjobs",
    framework="pytorch",
    replicas_field="pytorchReplicaSpecs",
    roles=(Role("Master", exactly=1), Role("Worker", at_least=1)),
    container="pytorch",
    port_name="pytorchjob-port",
    port=23456,
    default_restart_policy="OnFailure",
    earlier_name="pytorch",
    scaled_role="Worker",
    fields=PyTorchFields,
    complete=_complete,
    check=_check,
    deprecations=_deprecations,
)
