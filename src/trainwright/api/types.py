"""The fields that all kinds share. The same types read manifests, refuse wrong ones and render the CRDs.

A pod template stays the dictionary that the user wrote; only the parts that decisions need are named here.
"""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from trainwright.objects import Object
from trainwright.objects.metadata import View

CLEAN_POD_POLICIES = ("All", "Running", "None")
RESTART_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")
MAX_REPLICAS = 100_000
"""More pods of one role than any cluster holds: a slip of the keyboard, refused before it costs anything."""

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1, extra_json_schema={"format": "int32"})]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1, extra_json_schema={"format": "int64"})]
Time = Annotated[datetime, Meta(tz=True)]
_DIGITS = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
Quantity = Annotated[
    int | str,
    Meta(
        extra_json_schema={
            "x-kubernetes-int-or-string": True,
            "pattern": rf"^(\+|-)?{_DIGITS}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_DIGITS}))?$",
        }
    ),
]


def text(description: str, **schema: Any) -> Meta:
    """What `kubectl explain` says about a field, and what the CRD demands of it besides its type."""
    return Meta(description=description, extra_json_schema=schema or None)


def immutable(message: str) -> list[dict[str, str]]:
    """The rule by which the API server refuses another value once there is one."""
    return [{"rule": "self == oldSelf", "message": message}]


ATOMIC_LIST = {"x-kubernetes-list-type": "atomic"}
ATOMIC_MAP = {"x-kubernetes-map-type": "atomic"}


class LabelRequirement(View, frozen=True):
    """What one label must be."""

    key: Annotated[str, text("The label.")]
    operator: Annotated[str, text("In, NotIn, Exists or DoesNotExist.")]
    values: Annotated[list[str] | None, text("The values that In and NotIn mean.", **ATOMIC_LIST)] = None


class LabelSelector(View, frozen=True):
    """Which labels an object must have; all that is written here must hold."""

    match_labels: Annotated[dict[str, str] | None, text("Labels and their values.")] = None
    match_expressions: Annotated[
        list[LabelRequirement] | None, text("Labels and what holds for them.", **ATOMIC_LIST)
    ] = None


class SchedulingPolicy(View, frozen=True):
    """How a gang scheduler treats the job's pods as one group. Without such a scheduler it has no effect."""

    min_available: Annotated[
        Int32 | None, text("How many pods must fit at once before any of them starts; all if not set.", minimum=0)
    ] = None
    queue: Annotated[
        str | None,
        text(
            "The scheduler's queue that the group waits in. It cannot be changed.",
            **{"x-kubernetes-validations": immutable("spec.runPolicy.schedulingPolicy.queue is immutable")},
        ),
    ] = None
    min_resources: Annotated[
        dict[str, Quantity] | None,
        text("What must be free before any pod starts; what the first minAvailable pods request if not set."),
    ] = None
    priority_class: Annotated[str | None, text("The PriorityClass of the group.")] = None
    schedule_timeout_seconds: Annotated[
        Int32 | None, text("How long scheduler-plugins waits for room for the whole group.", minimum=0)
    ] = None


class RunPolicy(View, frozen=True):
    """How the job runs, ends and is cleaned up."""

    clean_pod_policy: Annotated[
        str | None,
        text(
            "Which pods to delete when the job has finished: All, Running or None (default).",
            enum=list(CLEAN_POD_POLICIES),
        ),
    ] = None
    ttl_seconds_after_finished: Annotated[
        Int32 | None, text("Delete the job this long after it has finished; never if not set.")
    ] = None
    active_deadline_seconds: Annotated[
        Int64 | None, text("Fail the job when it has been active this long. Time in suspension does not count.")
    ] = None
    backoff_limit: Annotated[
        Int32 | None,
        text("Fail the job when its pods have failed this often in sum; at the first failure if 0, never if not set."),
    ] = None
    scheduling_policy: SchedulingPolicy | None = None
    suspend: Annotated[bool | None, text("Delete the job's pods, and create none until this is false again.")] = False
    managed_by: Annotated[
        str | None,
        text(
            "Who runs the job: kubeflow.org/training-operator (default) or kueue.x-k8s.io/multikueue. "
            "It cannot be changed.",
            **{"x-kubernetes-validations": immutable("field is immutable")},
        ),
    ] = None


class EarlierRunPolicy(View, frozen=True):
    """The fields of `runPolicy` where earlier operators had them: directly under `spec`."""

    clean_pod_policy: Annotated[
        str | None, text("Deprecated: write spec.runPolicy.cleanPodPolicy, which wins.", enum=list(CLEAN_POD_POLICIES))
    ] = None
    ttl_seconds_after_finished: Annotated[
        Int32 | None, text("Deprecated: write spec.runPolicy.ttlSecondsAfterFinished, which wins.")
    ] = None
    active_deadline_seconds: Annotated[
        Int64 | None, text("Deprecated: write spec.runPolicy.activeDeadlineSeconds, which wins.")
    ] = None
    backoff_limit: Annotated[Int32 | None, text("Deprecated: write spec.runPolicy.backoffLimit, which wins.")] = None


class ContainerPort(View, frozen=True):
    container_port: Int32
    name: str | None = None
    protocol: str | None = None


class Resources(View, frozen=True):
    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class Capabilities(View, frozen=True):
    drop: list[str] | None = None


class SecurityContext(View, frozen=True):
    capabilities: Capabilities | None = None


class Container(View, frozen=True):
    """The parts of a container that defaults, services, environments, gangs and the container that waits look at."""

    name: str
    image: str | None = None
    ports: tuple[ContainerPort, ...] | None = None
    env: list[Object] | None = None
    resources: Resources | None = None
    security_context: SecurityContext | None = None


class TemplateSpec(View, frozen=True):
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    restart_policy: str | None = None
    scheduler_name: str | None = None
    priority_class_name: str | None = None
    security_context: Object | None = None


class TemplateMeta(View, frozen=True):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None


class Template(View, frozen=True):
    """A pod template as far as we read it."""

    metadata: TemplateMeta | None = None
    spec: TemplateSpec | None = None


class ReplicaSpec(View, frozen=True):
    """The pods of one role."""

    replicas: Annotated[Int32 | None, text("How many pods; 1 if not set.", minimum=0, maximum=MAX_REPLICAS)] = None
    template: Object | None = None
    restart_policy: Annotated[
        str | None,
        text(
            "When a pod that has failed is started again: Always, OnFailure, Never, or ExitCode: if its exit code is "
            "128 or more.",
            enum=list(RESTART_POLICIES),
        ),
    ] = None


class Condition(View, frozen=True):
    """One thing that can be said about the job, and whether it is so."""

    type: Annotated[str, text("Created, Running, Restarting, Suspended, Succeeded or Failed.")]
    status: Annotated[str, text("True, False or Unknown.")]
    reason: Annotated[str, text("Why, in one word for programs.")] = ""
    message: Annotated[str, text("Why, in a sentence for people.")] = ""
    last_update_time: Annotated[Time | None, text("When anything about this condition changed last.")] = None
    last_transition_time: Annotated[Time | None, text("When its status changed last.")] = None


class ReplicaStatus(View, frozen=True):
    """How the pods of one role stand."""

    active: Annotated[Int32, text("Pods that run.")] = 0
    succeeded: Annotated[Int32, text("Pods that have finished well.")] = 0
    failed: Annotated[Int32, text("Pods that have failed and were not replaced yet.")] = 0
    selector: Annotated[str, text("The labels of these pods, for kubectl scale and autoscalers.")] = ""
    label_selector: Annotated[
        LabelSelector | None, text("Deprecated and never written: see selector.", **ATOMIC_MAP)
    ] = None


class AdditionalStatus(View, frozen=True):
    """Status fields that upstream's CRD does not declare."""

    ports: Annotated[
        dict[str, Int32] | None, text("Ports of pods that listen, by the end of their names, such as worker-0.")
    ] = None
    restarts: Annotated[
        dict[str, Int32] | None, text("Restarts that are counted already, of pods that were replaced.")
    ] = None
    replaced_pods: Annotated[
        list[str] | None, text("UIDs of pods whose end is accounted for and that only have to go.")
    ] = None
    completed_indexes: Annotated[
        dict[str, str] | None, text("Ranks of each role that have finished, such as 0,2-4.")
    ] = None


class JobStatus(AdditionalStatus, frozen=True):
    """Where the job stands, as the operator has written it."""

    conditions: Annotated[
        tuple[Condition, ...] | None, text("What has happened to the job; the last one is shown as its state.")
    ] = None
    replica_statuses: Annotated[dict[str, ReplicaStatus] | None, text("How the pods of each role stand.")] = None
    start_time: Annotated[Time | None, text("When the job was started, or resumed, last.")] = None
    completion_time: Annotated[Time | None, text("When the job finished.")] = None
    last_reconcile_time: Annotated[Time | None, text("Written by upstream's operator alone.")] = None
