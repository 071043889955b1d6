"""The printer columns of pods and of the kinds that own them. STATUS of a pod is computed from the states of its
containers."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from trainwright.cluster.apiserver.resources.columns.printer_columns import AGE, NAME, NONE, age
from trainwright.cluster.apiserver.resources.resource_type import Column
from trainwright.objects import Object
from trainwright.objects.conditions import is_condition_true
from trainwright.objects.kinds.pods import is_sidecar
from trainwright.objects.paths import value_at
from trainwright.objects.selectors import format_label_selector, format_labels
from trainwright.objects.times import human_duration, parse_time


def pod_status(pod: Object) -> str:
    """The column STATUS: a phase, a container's reason, or `Init:1/2`."""
    status = pod.get("status") or {}
    shown = _init_status(pod) or _container_status(status)
    if value_at(pod, "metadata", "deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in {"Succeeded", "Failed"}:
            return "Terminating"
    return shown


def _init_status(pod: Object) -> str:
    """The status while init containers run or after one has failed; empty once they have succeeded."""
    declared = value_at(pod, "spec", "initContainers", default=[])
    always = {container.get("name") for container in declared if is_sidecar(container)}
    for index, container in enumerate(value_at(pod, "status", "initContainerStatuses", default=[])):
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if container.get("name") in always and container.get("started"):
            continue
        if terminated is not None:
            return f"Init:{_terminated_reason(terminated)}"
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len(declared)}"
    return ""


def _container_status(status: Object) -> str:
    shown = status.get("reason") or status.get("phase") or "Unknown"
    running = False
    for container in reversed(status.get("containerStatuses") or []):
        state = container.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            shown = waiting["reason"]
        elif terminated is not None:
            shown = _terminated_reason(terminated)
        elif container.get("ready") and state.get("running") is not None:
            running = True
    if shown == "Completed" and running:
        return "Running" if is_condition_true(status, "Ready") else "NotReady"
    return str(shown)


def _terminated_reason(terminated: Object) -> str:
    if reason := terminated.get("reason"):
        return str(reason)
    if signal := terminated.get("signal"):
        return f"Signal:{signal}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _ready_containers(pod: Object, _now: datetime) -> str:
    containers = value_at(pod, "spec", "containers", default=[])
    ready = sum(bool(container.get("ready")) for container in value_at(pod, "status", "containerStatuses", default=[]))
    return f"{ready}/{len(containers)}"


def _restarts(pod: Object, now: datetime) -> str:
    statuses = value_at(pod, "status", "containerStatuses", default=[])
    if _init_status(pod):
        statuses = value_at(pod, "status", "initContainerStatuses", default=[])
    count = sum(container.get("restartCount", 0) for container in statuses)
    ends = [
        value_at(container, "lastState", "terminated", "finishedAt")
        for container in statuses
        if container.get("restartCount")
    ]
    last = max((parse_time(end) for end in ends if end), default=None)
    return f"{count} ({age(last.isoformat(), now)} ago)" if count and last else str(count)


def _readiness_gates(pod: Object, _now: datetime) -> str:
    gates = [gate.get("conditionType") for gate in value_at(pod, "spec", "readinessGates", default=[])]
    true = sum(is_condition_true(pod.get("status") or {}, gate) for gate in gates)
    return f"{true}/{len(gates)}" if gates else NONE


POD = (
    NAME,
    Column("Ready", _ready_containers),
    Column("Status", lambda pod, _now: pod_status(pod)),
    Column("Restarts", _restarts),
    AGE,
    Column("IP", lambda pod, _now: value_at(pod, "status", "podIP", default=NONE), priority=1),
    Column("Node", lambda pod, _now: value_at(pod, "spec", "nodeName", default=NONE), priority=1),
    Column("Nominated Node", lambda pod, _now: value_at(pod, "status", "nominatedNodeName", default=NONE), priority=1),
    Column("Readiness Gates", _readiness_gates, priority=1),
)


def _count(*path: str) -> Callable[[Object, datetime], int]:
    return lambda obj, _now: int(value_at(obj, *path, default=0))


def _of_containers(field: str) -> Callable[[Object, datetime], str]:
    def cell(obj: Object, _now: datetime) -> str:
        containers = value_at(obj, "spec", "template", "spec", "containers", default=[])
        return ",".join(container.get(field, "") for container in containers)

    return cell


def _selector(when_empty: str) -> Callable[[Object, datetime], Any]:
    def cell(obj: Object, _now: datetime) -> str:
        return format_label_selector(value_at(obj, "spec", "selector", default={})) or when_empty

    return cell


_TEMPLATE = (
    Column("Containers", _of_containers("name"), priority=1, description="Names of each container in the template."),
    Column(
        "Images",
        _of_containers("image"),
        priority=1,
        description="Images referenced by each container in the template.",
    ),
)


def _ready(deployment: Object, _now: datetime) -> str:
    wanted = value_at(deployment, "spec", "replicas", default=0)
    return f"{value_at(deployment, 'status', 'readyReplicas', default=0)}/{wanted}"


DEPLOYMENT = (
    NAME,
    Column("Ready", _ready, description="Number of the pod with ready state"),
    Column("Up-to-date", _count("status", "updatedReplicas")),
    Column("Available", _count("status", "availableReplicas")),
    AGE,
    *_TEMPLATE,
    Column("Selector", _selector(""), priority=1),
)
REPLICA_SET = (
    NAME,
    Column("Desired", _count("spec", "replicas"), type="integer"),
    Column("Current", _count("status", "replicas"), type="integer"),
    Column("Ready", _count("status", "readyReplicas"), type="integer"),
    AGE,
    *_TEMPLATE,
    Column("Selector", _selector("<none>"), priority=1),
)


def _job_status(job: Object, _now: datetime) -> str:
    status = job.get("status") or {}
    for condition in ("Complete", "Failed"):
        if is_condition_true(status, condition):
            return condition
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for condition in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if is_condition_true(status, condition):
            return condition
    return "Running"


def _completions(job: Object, _now: datetime) -> str:
    succeeded = value_at(job, "status", "succeeded", default=0)
    wanted = value_at(job, "spec", "completions")
    if wanted is not None:
        return f"{succeeded}/{wanted}"
    parallelism = value_at(job, "spec", "parallelism", default=0)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _duration(job: Object, now: datetime) -> str:
    started, ended = value_at(job, "status", "startTime"), value_at(job, "status", "completionTime")
    if not started:
        return ""
    return human_duration((parse_time(ended) if ended else now) - parse_time(started))


JOB = (
    NAME,
    Column("Status", _job_status, description="Status of the job."),
    Column("Completions", _completions),
    Column("Duration", _duration, description="Time required to complete the job."),
    AGE,
    *_TEMPLATE,
    Column("Selector", _selector("<none>"), priority=1),
)
STATEFUL_SET = (NAME, Column("Ready", _ready), AGE, *_TEMPLATE)


def _node_selector(daemon_set: Object, _now: datetime) -> str:
    wanted = value_at(daemon_set, "spec", "template", "spec", "nodeSelector", default={})
    return format_labels(wanted) or "<none>"


DAEMON_SET = (
    NAME,
    Column("Desired", _count("status", "desiredNumberScheduled"), type="integer"),
    Column("Current", _count("status", "currentNumberScheduled"), type="integer"),
    Column("Ready", _count("status", "numberReady"), type="integer"),
    Column("Up-to-date", _count("status", "updatedNumberScheduled"), type="integer"),
    Column("Available", _count("status", "numberAvailable"), type="integer"),
    Column("Node Selector", _node_selector),
    AGE,
    *_TEMPLATE,
    Column("Selector", _selector("<none>"), priority=1),
)


def _controller(revision: Object, _now: datetime) -> str:
    owners = value_at(revision, "metadata", "ownerReferences", default=[])
    owner = next((reference for reference in owners if reference.get("controller")), None)
    if owner is None:
        return "<none>"
    group = owner["apiVersion"].rpartition("/")[0]
    return f"{owner['kind'].lower()}{'.' + group if group else ''}/{owner['name']}"


CONTROLLER_REVISION = (
    NAME,
    Column("Controller", _controller),
    Column("Revision", lambda obj, _now: obj.get("revision", 0)),
    AGE,
)
