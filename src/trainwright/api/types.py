"""The fields that all kinds share. The same types decode manifests, reject invalid ones and render the CRDs.

A pod template stays the dictionary that the user wrote; the types here declare only the fields that plans depend on.
"""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from trainwright.objects import Object
from trainwright.objects.metadata import View

OPERATOR = "kubeflow.org/training-operator"
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
CLEAN_POD_POLICIES = ("All", "Running", "None")
DEFAULT_CLEAN_POD_POLICY = "None"
RESTART_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")
MAX_REPLICAS = 100_000
"""More pods of one role than any cluster has. A larger number is a typo."""

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


def text(description: str, *, default: str = "", **schema: Any) -> Meta:
    """The description of a field in the CRD, which `kubectl explain` shows, and further keywords of its schema.

    The default is in the description alone: the API server would store a default of the schema with the job.
    """
    return Meta(description=with_default(description, default), extra_json_schema=schema or None)


def with_default(description: str, default: str) -> str:
    """A description that ends with the default of the field; the reference pages have it in a column of its own."""
    return f"{description} Defaults to {default}." if default else description


def immutable(message: str) -> list[dict[str, str]]:
    """The rule by which the API server rejects a change of the field."""
    return [{"rule": "self == oldSelf", "message": message}]


ATOMIC_LIST = {"x-kubernetes-list-type": "atomic"}
ATOMIC_MAP = {"x-kubernetes-map-type": "atomic"}


class LabelRequirement(View, frozen=True):
    """A requirement on one label."""

    key: Annotated[str, text("The label key.")]
    operator: Annotated[str, text("In, NotIn, Exists or DoesNotExist.")]
    values: Annotated[list[str] | None, text("The values for In and NotIn.", **ATOMIC_LIST)] = None


class LabelSelector(View, frozen=True):
    """Selects objects by label. All requirements must be met."""

    match_labels: Annotated[dict[str, str] | None, text("Labels with the required values.")] = None
    match_expressions: Annotated[
        list[LabelRequirement] | None, text("Further requirements on labels.", **ATOMIC_LIST)
    ] = None


class SchedulingPolicy(View, frozen=True):
    """Settings of the job's PodGroup. Has no effect unless the operator uses a gang scheduler."""

    min_available: Annotated[
        Int32 | None,
        text("Minimum number of pods that must be schedulable before any pod starts.", default="all pods", minimum=0),
    ] = None
    queue: Annotated[
        str | None,
        text(
            "Queue of the gang scheduler. Immutable.",
            **{"x-kubernetes-validations": immutable("spec.runPolicy.schedulingPolicy.queue is immutable")},
        ),
    ] = None
    min_resources: Annotated[
        dict[str, Quantity] | None,
        text(
            "Resources that must be free before any pod starts.",
            default="the requests of minAvailable pods, the highest priority first",
        ),
    ] = None
    priority_class: Annotated[str | None, text("Name of the PriorityClass of the PodGroup.")] = None
    schedule_timeout_seconds: Annotated[
        Int32 | None,
        text(
            "Seconds that scheduler-plugins waits until all pods can be scheduled.",
            default="the scheduler's setting",
            minimum=0,
        ),
    ] = None


class RunPolicy(View, frozen=True):
    """Specifies when the job fails, and what is deleted after it has finished."""

    clean_pod_policy: Annotated[
        str | None,
        text(
            "Specifies which pods to delete after the job has finished: All, Running or None.",
            default=DEFAULT_CLEAN_POD_POLICY,
            enum=list(CLEAN_POD_POLICIES),
        ),
    ] = None
    ttl_seconds_after_finished: Annotated[
        Int32 | None, text("Seconds after which a finished job is deleted. If not set, the job is not deleted.")
    ] = None
    active_deadline_seconds: Annotated[
        Int64 | None,
        text(
            "Seconds that the job may be active before it fails, from status.startTime on. They start again when the "
            "job is resumed.",
            default="no limit",
        ),
    ] = None
    backoff_limit: Annotated[
        Int32 | None,
        text(
            "Number of restarts of pods before the job fails. If 0, the first failure fails it. Evictions, "
            "preemptions, lost nodes and pods that a user deletes do not count.",
            default="no limit",
        ),
    ] = None
    scheduling_policy: SchedulingPolicy | None = None
    suspend: Annotated[
        bool | None,
        text(
            "If true, the job has no pods. When it is set to false, the job starts from the beginning.", default="false"
        ),
    ] = False
    managed_by: Annotated[
        str | None,
        text(
            f"Controller that manages the job: {OPERATOR}, or {MULTIKUEUE}, whose jobs this operator ignores. "
            "Immutable.",
            default=OPERATOR,
            **{"x-kubernetes-validations": immutable("field is immutable")},
        ),
    ] = None


class EarlierRunPolicy(View, frozen=True):
    """Fields of `runPolicy` that earlier operators had directly under `spec`."""

    clean_pod_policy: Annotated[
        str | None,
        text("Deprecated: use spec.runPolicy.cleanPodPolicy, which takes precedence.", enum=list(CLEAN_POD_POLICIES)),
    ] = None
    ttl_seconds_after_finished: Annotated[
        Int32 | None, text("Deprecated: use spec.runPolicy.ttlSecondsAfterFinished, which takes precedence.")
    ] = None
    active_deadline_seconds: Annotated[
        Int64 | None, text("Deprecated: use spec.runPolicy.activeDeadlineSeconds, which takes precedence.")
    ] = None
    backoff_limit: Annotated[
        Int32 | None, text("Deprecated: use spec.runPolicy.backoffLimit, which takes precedence.")
    ] = None


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
    """The fields of a container that plans depend on."""

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
    """The fields of a pod template that plans depend on."""

    metadata: TemplateMeta | None = None
    spec: TemplateSpec | None = None


class ReplicaSpec(View, frozen=True):
    """The pods of one role."""

    replicas: Annotated[Int32 | None, text("Number of pods.", minimum=0, maximum=MAX_REPLICAS)] = None
    template: Object | None = None
    restart_policy: Annotated[
        str | None,
        text(
            "Specifies whether failed pods are restarted. OnFailure and Always restart them, Never fails the job. "
            "ExitCode restarts pods whose exit code is 128 or more, and fails the job for others.",
            enum=list(RESTART_POLICIES),
        ),
    ] = None


class Condition(View, frozen=True):
    """A condition of the job."""

    type: Annotated[str, text("Type of the condition: Created, Running, Restarting, Suspended, Succeeded or Failed.")]
    status: Annotated[str, text("Status of the condition: True, False or Unknown.")]
    reason: Annotated[str, text("Reason for the last change, in CamelCase.")] = ""
    message: Annotated[str, text("Human-readable message about the last change.")] = ""
    last_update_time: Annotated[Time | None, text("Time of the last change of the condition.")] = None
    last_transition_time: Annotated[Time | None, text("Time of the last change of its status.")] = None


class ReplicaStatus(View, frozen=True):
    """Number of pods of one role by state."""

    active: Annotated[Int32, text("Number of running pods.")] = 0
    succeeded: Annotated[Int32, text("Number of pods that have succeeded.")] = 0
    failed: Annotated[Int32, text("Number of failed pods that are not replaced yet.")] = 0
    selector: Annotated[str, text("Label selector of these pods, for the scale subresource.")] = ""
    label_selector: Annotated[LabelSelector | None, text("Deprecated and never set: see selector.", **ATOMIC_MAP)] = (
        None
    )


class AdditionalStatus(View, frozen=True):
    """Status fields that upstream's CRD does not declare."""

    restarts: Annotated[dict[str, Int32] | None, text("Number of restarts by role, of pods that were replaced.")] = None
    replaced_pods: Annotated[
        list[str] | None, text("UIDs of pods whose restart is counted and that are being deleted.")
    ] = None
    completed_indexes: Annotated[dict[str, str] | None, text("Indexes of succeeded pods by role, such as 0,2-4.")] = (
        None
    )


class JobFailure(View, frozen=True):
    """Why the job failed. It is for people: nothing depends on it."""

    rank: Annotated[str, text("Rank that failed first, such as worker-0. Absent if it is unknown.")] = ""
    process: Annotated[str, text("Process in that pod, if torchrun started several.")] = ""
    pod: Annotated[str, text("Name of its pod.")] = ""
    container: Annotated[str, text("Name of its container.")] = ""
    exit_code: Annotated[Int32 | None, text("Exit code of its program.")] = None
    reason: Annotated[str, text("Class of the cause, in CamelCase, such as MissingModule.")] = ""
    cause: Annotated[str, text("Cause in one line: an exception, a signal, an exit code.")] = ""
    advice: Annotated[str, text("What to do.")] = ""
    finished_at: Annotated[Time | None, text("Time at which its program ended.")] = None
    followers: Annotated[list[str] | None, text("Ranks that failed or were ended because of it.")] = None


class JobStatus(AdditionalStatus, frozen=True):
    """Most recently observed status of the job. Written by the operator."""

    conditions: Annotated[
        tuple[Condition, ...] | None, text("Conditions of the job. The last one is shown as its state.")
    ] = None
    replica_statuses: Annotated[dict[str, ReplicaStatus] | None, text("Number of pods of each role by state.")] = None
    start_time: Annotated[Time | None, text("Time at which the job was started or resumed.")] = None
    completion_time: Annotated[Time | None, text("Time at which the job finished.")] = None
    last_reconcile_time: Annotated[Time | None, text("Set by Kubeflow's training-operator only.")] = None
    failure: Annotated[JobFailure | None, text("Why the job failed, as far as its pods show it.")] = None
