"""The status of a pod as the kubelet would report it, from the state that its supervisor recorded. Pure."""

from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import Any, NamedTuple, cast

from trainwright.cluster.node.pods.config.container_image import is_host_image
from trainwright.cluster.node.pods.config.runtime_config import WaitingReason
from trainwright.cluster.node.supervisor.containers import container_status
from trainwright.cluster.node.supervisor.pod_json import ContainerState, ContainerStatus, PodState
from trainwright.objects import Object
from trainwright.objects.kinds.pods import is_sidecar
from trainwright.objects.times import format_time, parse_time

FINISHED_PHASES = frozenset({"Succeeded", "Failed"})
_TIMES = ("startedAt", "finishedAt")


def is_finished(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in FINISHED_PHASES


def pod_status(
    pod: Object,
    *,
    address: str,
    host_address: str,
    state: PodState | None,
    waiting: Sequence[WaitingReason] = (),
    image_ids: Mapping[str, str] | None = None,
    now: datetime,
) -> Object:
    """`state` is the supervisor's state.json; None before it is written, then `waiting` says why. `image_ids` are those
    of containers that run on an image."""
    inits, mains = _container_statuses(pod, state, waiting)
    policy = pod["spec"].get("restartPolicy") or container_status.ALWAYS
    failure = state["reason"] if state is not None else ""
    finished = state is not None and state["finished"]
    pod_phase = "Failed" if failure else phase(policy, inits, mains, finished=finished)
    reported = {key: value for key, value in (pod.get("status") or {}).items() if key not in {"reason", "message"}}
    generation = pod["metadata"].get("generation")
    rendered = _render_statuses(pod, "containers", mains, image_ids or {})
    status: Object = {
        **reported,
        **({"observedGeneration": generation} if generation else {}),
        "phase": pod_phase,
        "conditions": _conditions(
            pod, pod_phase, inits, mains, failure=failure, started=state is not None and not finished, now=now
        ),
        "hostIP": host_address,
        "hostIPs": [{"ip": host_address}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": format_time(_start_time([*inits, *mains], reported.get("startTime"), now)),
        "containerStatuses": sorted(rendered, key=lambda container: str(container["name"])),
    }
    if inits:
        status["initContainerStatuses"] = _render_statuses(pod, "initContainers", inits, image_ids or {})
    if state is not None and failure:
        status |= {"reason": failure, "message": state["message"]}
    return status


class ContainerEvent(NamedTuple):
    type: str
    reason: str
    message: str
    field_path: str
    """The container, as in events of the kubelet."""


def transitions(pod: Object, before: Object, after: Object, *, pulled: Set[str] = frozenset()) -> list[ContainerEvent]:
    """The kubelet's events for the changes of containers between two statuses of a pod.

    An image that this node does not have is not `Pulled`: another event says so. That of the containers in `pulled` has
    just been pulled, which is reported already.
    """
    metadata = pod["metadata"]
    events = []
    for kind, field in (("initContainerStatuses", "initContainers"), ("containerStatuses", "containers")):
        known = {status["name"]: status for status in before.get(kind) or []}
        for status in after.get(kind) or []:
            path = field_path(field, status["name"])
            old = known.get(status["name"], {"state": {}, "restartCount": 0})
            if _has_started(status) and (not _has_started(old) or status["restartCount"] != old["restartCount"]):
                just_pulled = status["name"] in pulled and not status["restartCount"]
                if (is_host_image(status["image"]) or status["imageID"]) and not just_pulled:
                    message = f'Container image "{status["image"]}" already present on machine'
                    events.append(ContainerEvent("Normal", "Pulled", f"{message} and can be accessed by the pod", path))
                events.append(ContainerEvent("Normal", "Created", "Container created", path))
                ended = status["state"].get("terminated", {})
                if ended.get("reason") == "StartError":
                    events.append(ContainerEvent("Warning", "Failed", f"Error: {ended.get('message', '')}", path))
                else:
                    events.append(ContainerEvent("Normal", "Started", "Container started", path))
            backoff = status["state"].get("waiting", {})
            if backoff.get("reason") == container_status.CRASH_LOOP_BACK_OFF and old["state"].get("waiting") != backoff:
                subject = f"{status['name']} in pod {metadata['name']}_{metadata['namespace']}({metadata['uid']})"
                message = f"Back-off restarting failed container {subject}"
                events.append(ContainerEvent("Warning", "BackOff", message, path))
    return events


def field_path(field: str, container: str) -> str:
    return f"spec.{field}{{{container}}}"


def _has_started(status: Object) -> bool:
    """False for containers that wait: if they ran before, that has been reported."""
    ended = status["state"].get("terminated", {}).get("reason", container_status.CONTAINER_STATUS_UNKNOWN)
    return "running" in status["state"] or ended != container_status.CONTAINER_STATUS_UNKNOWN


def shutdown_restarts(state: PodState) -> int:
    """How many restarts of the pod's containers followed a shutdown of the cluster."""
    return sum(status.get("disruptions", 0) for status in [*state["initContainers"], *state["containers"]])


def empty_state(pod: Object) -> PodState:
    """The state of a pod before its first container has started."""
    inits, mains = _container_statuses(pod, None, ())
    return {"finished": False, "reason": "", "message": "", "initContainers": inits, "containers": mains}


def phase(policy: str, inits: Sequence[ContainerStatus], mains: Sequence[ContainerStatus], *, finished: bool) -> str:
    """By the kubelet's rules. `finished`: no container will run again, regardless of the restart policy."""
    sidecars = [status for status in inits if status.get("sidecar")]
    failed_init = any(container_status.exit_code(status) not in {None, 0} for status in inits if status not in sidecars)
    if not container_status.is_initialized(list(inits), list(mains)):
        return "Failed" if finished or (failed_init and policy == container_status.NEVER) else "Pending"
    if any("waiting" in status["state"] and not status["last"] for status in mains):
        return "Failed" if finished else "Pending"
    if any("running" in status["state"] for status in [*sidecars, *mains]):
        return "Running"
    codes = [container_status.exit_code(status) for status in mains]
    if all(code == 0 for code in codes) and (finished or policy != container_status.ALWAYS):
        return "Succeeded"
    if finished or policy == container_status.NEVER:
        return "Failed"
    return "Running"


def same_status(one: Any, other: Any) -> bool:
    """Equal except for nulls and empty values, which servers add or drop."""
    return bool(_without_empty_values(one) == _without_empty_values(other))


def _without_empty_values(value: Any) -> Any:
    if isinstance(value, dict):
        fields = {key: _without_empty_values(field) for key, field in value.items()}
        return {key: field for key, field in fields.items() if field not in (None, {}, [], "")}
    return [_without_empty_values(item) for item in value] if isinstance(value, list) else value


def _container_statuses(
    pod: Object, state: PodState | None, waiting: Sequence[WaitingReason]
) -> tuple[list[ContainerStatus], list[ContainerStatus]]:
    if state is not None:
        return list(state["initContainers"]), list(state["containers"])
    spec = pod["spec"]
    has_inits = bool(spec.get("initContainers"))
    inits = [
        container_status.new_status(container["name"], initialized=True, sidecar=is_sidecar(container))
        for container in spec.get("initContainers") or []
    ]
    mains = [
        container_status.new_status(container["name"], initialized=not has_inits) for container in spec["containers"]
    ]
    for status in [*inits, *mains]:
        for found in waiting:
            if found.container in {None, status["name"]}:
                status["state"] = container_status.waiting(found.reason, found.message)
                break
    return inits, mains


def _start_time(statuses: Sequence[ContainerStatus], reported: str | None, now: datetime) -> datetime:
    """Not after the start of a container, which may be before the first status of the pod is written."""
    first = parse_time(reported) if reported else now
    states = [state for status in statuses for state in (status["state"], status["last"])]
    runs = [run for state in states for run in (state.get("running"), state.get("terminated")) if run is not None]
    return min([first, *(parse_time(run["startedAt"]) for run in runs)])


def _render_statuses(
    pod: Object, kind: str, statuses: Sequence[ContainerStatus], image_ids: Mapping[str, str]
) -> list[Object]:
    specs = {spec["name"]: spec for spec in pod["spec"].get(kind) or []}
    rendered = []
    for status in statuses:
        state = status["state"]
        is_running = "running" in state
        has_run = is_running or "terminated" in state or bool(status["last"])
        one_time = kind == "initContainers" and not status.get("sidecar")
        ready = container_status.exit_code(status) == 0 if one_time else container_status.is_ready(status)
        container_id = f"trainwright://{pod['metadata']['uid']}/{status['name']}/{status['restarts']}"
        last_id = f"{container_id.rpartition('/')[0]}/{status['restarts'] - ('waiting' not in state)}"
        spec = specs.get(status["name"], {})
        mounts = [_mount_status(mount) for mount in spec.get("volumeMounts") or []]
        rendered.append(
            {
                "name": status["name"],
                "state": _render_state(state, container_id),
                "lastState": _render_state(status["last"], last_id),
                "ready": ready,
                "started": container_status.is_started(status),
                "restartCount": status["restarts"],
                "image": spec.get("image", ""),
                "imageID": image_ids.get(status["name"], ""),
                **({"containerID": container_id} if has_run else {}),
                **({"volumeMounts": mounts} if mounts else {}),
            }
        )
    return rendered


def _mount_status(mount: Object) -> Object:
    read_only = {"readOnly": True, "recursiveReadOnly": "Disabled"} if mount.get("readOnly") else {}
    return {"name": mount["name"], "mountPath": mount["mountPath"], **read_only}


def _render_state(state: ContainerState, container_id: str) -> Object:
    """Times of the API have no fractions of a second."""
    rendered: Object = {
        kind: {key: format_time(parse_time(value)) if key in _TIMES else value for key, value in fields.items()}
        for kind, fields in cast("dict[str, Object]", state).items()
    }
    if "terminated" in rendered:
        rendered["terminated"]["containerID"] = container_id
    return rendered


def _conditions(
    pod: Object,
    pod_phase: str,
    inits: Sequence[ContainerStatus],
    mains: Sequence[ContainerStatus],
    *,
    failure: str,
    started: bool,
    now: datetime,
) -> list[Object]:
    before = {condition["type"]: condition for condition in (pod.get("status") or {}).get("conditions") or []}
    unfinished = [status["name"] for status in inits if not container_status.is_initialized([status], [])]
    lasting = [*(status for status in inits if status.get("sidecar")), *mains]
    unready = [status["name"] for status in lasting if not container_status.is_ready(status)]
    containers_ready = _readiness(pod_phase, unready)
    ready = _with_gates(containers_ready, pod["spec"].get("readinessGates") or [], before)
    initialized: Object = {"status": "True"}
    if pod_phase == "Succeeded":
        initialized["reason"] = "PodCompleted"
    elif not container_status.is_initialized(list(inits), list(mains)):
        message = f"containers with incomplete status: [{' '.join(unfinished)}]"
        initialized = {"status": "False", "reason": "ContainersNotInitialized", "message": message}
    wanted = {
        "PodReadyToStartContainers": {"status": "True" if started else "False"},
        "Initialized": initialized,
        "Ready": ready,
        "ContainersReady": containers_ready,
        "PodScheduled": before.get("PodScheduled", {"status": "True"}),
    }
    if failure == container_status.NODE_SHUTDOWN:
        message = container_status.NODE_SHUTDOWN_MESSAGE
        wanted["DisruptionTarget"] = {"status": "True", "reason": "TerminationByKubelet", "message": message}
    generation = pod["metadata"].get("generation")
    if generation:
        wanted = {kind: {**values, "observedGeneration": generation} for kind, values in wanted.items()}
    ours = [_condition(kind, values, before.get(kind), now) for kind, values in wanted.items()]
    return ours + [condition for kind, condition in before.items() if kind not in wanted]


def _readiness(pod_phase: str, unready: Sequence[str]) -> Object:
    if pod_phase in FINISHED_PHASES:
        return {"status": "False", "reason": "PodCompleted" if pod_phase == "Succeeded" else "PodFailed"}
    if unready:
        message = f"containers with unready status: [{' '.join(unready)}]"
        return {"status": "False", "reason": "ContainersNotReady", "message": message}
    return {"status": "True"}


def _with_gates(ready: Object, gates: Sequence[Object], conditions: Mapping[str, Object]) -> Object:
    """Ready if the containers are, and the conditions that other controllers maintain."""
    if ready["status"] != "True":
        return ready
    messages = []
    for gate in gates:
        kind = gate["conditionType"]
        if kind not in conditions:
            messages.append(f'corresponding condition of pod readiness gate "{kind}" does not exist.')
        elif conditions[kind].get("status") != "True":
            status = conditions[kind].get("status")
            messages.append(f'the status of pod readiness gate "{kind}" is not "True", but {status}')
    if not messages:
        return ready
    return {"status": "False", "reason": "ReadinessGatesNotReady", "message": ", ".join(messages)}


def _condition(kind: str, values: Object, before: Object | None, now: datetime) -> Object:
    same = before is not None and before.get("status") == values["status"]
    since = before.get("lastTransitionTime") if before is not None and same else None
    return {"type": kind, "lastTransitionTime": since or format_time(now), **values}
