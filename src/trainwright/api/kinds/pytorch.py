"""PyTorchJob: its row, its own fields, their defaults and checks."""

from collections.abc import Iterable
from typing import Annotated

from msgspec.structs import replace

from trainwright.api.autoscaling import Metric, MetricSpec
from trainwright.api.decoding import problem_with
from trainwright.api.errors import invalid
from trainwright.api.kinds.kind import Kind, ReplicaSpecs, Role, Unvalidated
from trainwright.api.types import Int32, text
from trainwright.objects.field_errors import FieldError, forbidden, required
from trainwright.objects.metadata import View

DEFAULT_RDZV_BACKEND = "c10d"
_DEFAULT_NPROC = "auto"
_NPROC = "spec.nprocPerNode"
_OLD_NPROC = "spec.elasticPolicy.nProcPerNode"


class RdzvConf(View, frozen=True):
    """A setting of the rendezvous backend."""

    key: Annotated[str | None, text("Name of the setting, such as timeout.")] = None
    value: Annotated[str | None, text("Value of the setting.")] = None


class ElasticPolicy(View, frozen=True):
    """Settings of torchrun's elastic mode. Requires Worker."""

    min_replicas: Annotated[
        Int32 | None, text("Minimum number of workers.", default="maxReplicas, else the number of workers")
    ] = None
    max_replicas: Annotated[Int32 | None, text("Maximum number of workers.", default="minReplicas")] = None
    rdzv_backend: Annotated[
        str | None,
        text("Rendezvous backend: c10d, etcd or etcd-v2. Sets PET_RDZV_BACKEND.", default=DEFAULT_RDZV_BACKEND),
    ] = None
    rdzv_port: Annotated[Int32 | None, text("Port in PET_RDZV_ENDPOINT.", default="the port of the first worker")] = (
        None
    )
    rdzv_host: Annotated[str | None, text("Host in PET_RDZV_ENDPOINT.", default="the first worker")] = None
    rdzv_id: Annotated[str | None, text("ID of the rendezvous. Sets PET_RDZV_ID.")] = None
    rdzv_conf: Annotated[
        tuple[RdzvConf, ...] | None,
        text("Settings of the rendezvous backend. Sets PET_RDZV_CONF to key=value,key=value."),
    ] = None
    standalone: Annotated[
        bool | None, text("If true, each pod starts its own rendezvous. Sets PET_STANDALONE.", default="false")
    ] = None
    n_proc_per_node: Annotated[Int32 | None, text("Deprecated: use spec.nprocPerNode.")] = None
    max_restarts: Annotated[
        Int32 | None,
        text("Maximum number of restarts by torchrun inside the pods. Sets PET_MAX_RESTARTS.", default="torchrun's"),
    ] = None
    metrics: Annotated[
        list[Metric] | None,
        text(
            "Metrics of autoscaling/v2 for a HorizontalPodAutoscaler, which scales the workers between minReplicas and "
            "maxReplicas. If not set, none is created."
        ),
    ] = None


class PyTorchFields(View, frozen=True):
    elastic_policy: ElasticPolicy | None = None
    nproc_per_node: Annotated[
        str | None,
        text(
            "Processes per pod: auto, cpu, gpu or a number, which multiplies WORLD_SIZE. Sets PET_NPROC_PER_NODE.",
            default=_DEFAULT_NPROC,
        ),
    ] = None


def _complete(fields: PyTorchFields, replicas: ReplicaSpecs) -> PyTorchFields:
    """Elastic bounds default to each other or to the number of workers, but not to 0; nprocPerNode to `auto`."""
    elastic = fields.elastic_policy
    nproc = fields.nproc_per_node
    if elastic is None:
        return replace(fields, nproc_per_node=_DEFAULT_NPROC if nproc is None else nproc)
    if nproc is None and elastic.n_proc_per_node is None:
        nproc = _DEFAULT_NPROC
    return replace(fields, elastic_policy=_with_bounds(elastic, _workers(replicas)), nproc_per_node=nproc)


def _check(job: Unvalidated[PyTorchFields]) -> Iterable[FieldError]:
    elastic = job.fields.elastic_policy
    if elastic is None:
        return
    if "Worker" not in job.replicas:
        yield required("spec.pytorchReplicaSpecs[Worker]", "must be configured if elastic policy is used")
    if elastic.n_proc_per_node is not None and job.fields.nproc_per_node is not None:
        yield forbidden(_OLD_NPROC, f"must not be used with {_NPROC}")
    yield from _check_bounds(elastic.min_replicas, elastic.max_replicas)
    for position, metric in enumerate(elastic.metrics or ()):
        if problem := problem_with(metric, MetricSpec, f"spec.elasticPolicy.metrics[{position}]"):
            yield problem


def _deprecations(fields: PyTorchFields) -> Iterable[str]:
    if fields.elastic_policy is not None and fields.elastic_policy.n_proc_per_node is not None:
        yield f"{_OLD_NPROC} is deprecated, use {_NPROC} instead"


def _check_bounds(low: int | None, high: int | None) -> Iterable[FieldError]:
    """With other bounds torchrun fails, and its error does not name the field."""
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
