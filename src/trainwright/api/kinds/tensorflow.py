"""TFJob: its row, its own fields and checks."""

from collections.abc import Iterable
from typing import Annotated

from trainwright.api.kinds.kind import Kind, Role, Unvalidated, check_env_string, length_of_list
from trainwright.api.types import text
from trainwright.objects.field_errors import FieldError, forbidden, quoted
from trainwright.objects.metadata import View

ALL_WORKERS = "AllWorkers"
_SUCCESS_POLICIES = ("", ALL_WORKERS)
_REPLICAS = "spec.tfReplicaSpecs"
_MAX_REST = 300
"""Bytes of TF_CONFIG besides the addresses of all peers: its keys and, for dynamic workers, the pod's own address."""


class TensorFlowFields(View, frozen=True):
    success_policy: Annotated[
        str | None,
        text(
            "Specifies when a job without Chief and Master has succeeded: AllWorkers when all workers have, empty when "
            "worker 0 has.",
            default="empty",
            enum=list(_SUCCESS_POLICIES),
        ),
    ] = None
    enable_dynamic_worker: Annotated[
        bool | None,
        text(
            "If true, workers may fail, be added or be removed while the job runs: TF_CONFIG of a worker names only "
            "itself and the parameter servers.",
            default="false",
        ),
    ] = None


def _check(job: Unvalidated[TensorFlowFields]) -> Iterable[FieldError]:
    if "Chief" in job.replicas and "Master" in job.replicas:
        yield forbidden(_REPLICAS, "must not have more than 1 Chief or Master role")
    yield from check_env_string(_REPLICAS, "TF_CONFIG", longest_tf_config(job), " or set spec.enableDynamicWorker")


def longest_tf_config(job: Unvalidated[TensorFlowFields]) -> int:
    """The bytes of TF_CONFIG if all ports have five digits."""
    named = ("PS",) if job.fields.enable_dynamic_worker else tuple(job.replicas)
    domain = f".{job.cluster_domain}" if job.cluster_domain else ""
    first = f'"{job.metadata.name}-{{}}-0.{job.metadata.namespace}.svc{domain}:65535",'
    addresses = sum(length_of_list(first.format(role), job.replicas.get(role)) for role in named)
    return addresses + len(domain) + _MAX_REST


def _deprecations(fields: TensorFlowFields) -> Iterable[str]:
    """The CRD rejects other values. Upstream's does not, and upstream's operator ignores them."""
    if fields.success_policy not in (None, *_SUCCESS_POLICIES):
        yield f'spec.successPolicy {quoted(fields.success_policy)} is treated as "", use "" or {ALL_WORKERS} instead'


TENSORFLOW = Kind(
    name="TFJob",
    plural="tfjobs",
    framework="tensorflow",
    replicas_field="tfReplicaSpecs",
    roles=(Role("Chief"), Role("Master"), Role("Worker"), Role("PS"), Role("Evaluator")),
    container="tensorflow",
    port_name="tfjob-port",
    port=2222,
    default_restart_policy="Never",
    earlier_name="tf",
    fields=TensorFlowFields,
    check=_check,
    deprecations=_deprecations,
    deleted_as="Job",
)
