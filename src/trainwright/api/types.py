"""The fields that all kinds share. The same types read manifests, refuse wrong ones and render the CRDs.

A pod template stays the dictionary that the user wrote; only the parts that decisions need are named here.
"""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from trainwright.objects import Object
from trainwright.objects.metadata import View

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1, extra_json_schema={"format": "int32"})]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1, extra_json_schema={"format": "int64"})]
Time = Annotated[datetime, Meta(tz=True)]
_OPEN = {"x-kubernetes-preserve-unknown-fields": True}
Quantity = Annotated[int | str, Meta(extra_json_schema={"x-kubernetes-int-or-string": True})]


def _immutable(message: str) -> dict[str, Any]:
    """The rule by which the API server refuses another value once there is one."""
    return {"x-kubernetes-validations": [{"rule": "self == oldSelf", "message": message}]}


class SchedulingPolicy(View, frozen=True):
    """How a gang scheduler treats the job's pods as one group."""

    min_available: Int32 | None = None
    queue: (
        Annotated[str, Meta(extra_json_schema=_immutable("spec.runPolicy.schedulingPolicy.queue is immutable"))] | None
    ) = None
    min_resources: dict[str, Quantity] | None = None
    priority_class: str | None = None
    schedule_timeout_seconds: Int32 | None = None


class RunPolicy(View, frozen=True):
    """How the job runs, ends and is cleaned up."""

    clean_pod_policy: (
        Annotated[str, Meta(description="Which pods to delete when the job has finished: All, Running or None.")] | None
    ) = None
    ttl_seconds_after_finished: (
        Annotated[Int32, Meta(description="Delete the job this long after it has finished.")] | None
    ) = None
    active_deadline_seconds: (
        Annotated[Int64, Meta(description="Fail the job when it has been active this long.")] | None
    ) = None
    backoff_limit: (
        Annotated[Int32, Meta(description="Fail the job when its pods have restarted this often.")] | None
    ) = None
    scheduling_policy: SchedulingPolicy | None = None
    suspend: Annotated[
        bool | None, Meta(description="Delete the job's pods and create none until this is false again.")
    ] = False
    managed_by: (
        Annotated[
            str,
            Meta(
                description="Who runs the job: kubeflow.org/training-operator (default) or kueue.x-k8s.io/multikueue.",
                extra_json_schema=_immutable("field is immutable"),
            ),
        ]
        | None
    ) = None


class ContainerPort(View, frozen=True):
    container_port: Int32
    name: str | None = None
    protocol: str | None = None


class Container(View, frozen=True):
    """The parts of a container that defaults, services and environments look at."""

    name: str
    image: str | None = None
    ports: tuple[ContainerPort, ...] | None = None
    env: list[Object] | None = None


class TemplateSpec(View, frozen=True):
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    restart_policy: str | None = None


class TemplateMeta(View, frozen=True):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None


class Template(View, frozen=True):
    """A pod template as far as we read it."""

    metadata: TemplateMeta | None = None
    spec: TemplateSpec | None = None


class ReplicaSpec(View, frozen=True):
    """The pods of one role as a manifest writes them."""

    replicas: Int32 | None = None
    template: Object | None = None
    restart_policy: str | None = None


class Condition(View, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_update_time: Time | None = None
    last_transition_time: Time | None = None


class ReplicaStatus(View, frozen=True):
    active: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0
    selector: str = ""
    label_selector: (
        Annotated[dict[str, Any], Meta(description="Deprecated, never written.", extra_json_schema=_OPEN)] | None
    ) = None


class JobStatus(View, frozen=True):
    """Where the job stands, as the operator has written it."""

    conditions: tuple[Condition, ...] | None = None
    replica_statuses: dict[str, ReplicaStatus] | None = None
    start_time: Time | None = None
    completion_time: Time | None = None
    last_reconcile_time: Time | None = None
    # The fields from here on are not upstream's.
    ports: Annotated[dict[str, Int32] | None, Meta(description="Ports chosen for the roles that listen.")] = None
    restarts: Annotated[
        dict[str, Int32] | None, Meta(description="Restarts that are counted already, of pods that were replaced.")
    ] = None
    replaced_pods: Annotated[
        list[str] | None, Meta(description="UIDs of pods whose end is accounted for and that only have to go.")
    ] = None
    completed_indexes: Annotated[
        dict[str, str] | None, Meta(description="Ranks of each role that have finished, such as 0,2-4.")
    ] = None
