"""The printer columns of pods. STATUS is computed from the states of the containers."""

from datetime import datetime

from trainwright.cluster.apiserver.resources.columns.printer_columns import AGE, NAME, NONE, age
from trainwright.cluster.apiserver.resources.resource_type import Column
from trainwright.objects import Object
from trainwright.objects.conditions import is_condition_true
from trainwright.objects.paths import value_at
from trainwright.objects.times import parse_time


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
    always = {container.get("name") for container in declared if container.get("restartPolicy") == "Always"}
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


def _ready(pod: Object, _now: datetime) -> str:
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
    Column("Ready", _ready),
    Column("Status", lambda pod, _now: pod_status(pod)),
    Column("Restarts", _restarts),
    AGE,
    Column("IP", lambda pod, _now: value_at(pod, "status", "podIP", default=NONE), priority=1),
    Column("Node", lambda pod, _now: value_at(pod, "spec", "nodeName", default=NONE), priority=1),
    Column("Nominated Node", lambda pod, _now: value_at(pod, "status", "nominatedNodeName", default=NONE), priority=1),
    Column("Readiness Gates", _readiness_gates, priority=1),
)
