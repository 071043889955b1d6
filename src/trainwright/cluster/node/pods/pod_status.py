"""The status of a pod as the kubelet would report it, from what its supervisor recorded. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from trainwright.cluster.node.pods.runtime_config import Problem
from trainwright.cluster.node.supervisor import container_status
from trainwright.cluster.node.supervisor.container_status import Record
from trainwright.objects import Object
from trainwright.objects.times import format_time, parse_time

_TIMES = ("startedAt", "finishedAt")


def pod_status(
    pod: Object,
    *,
    address: str,
    host_address: str,
    state: Mapping[str, Any] | None,
    problems: Sequence[Problem] = (),
    now: datetime,
) -> Object:
    """`state` is the supervisor's state.json, None before there is one; `problems` say why there is none."""
    inits, mains = _records(pod, state, problems)
    policy = pod["spec"].get("restartPolicy") or container_status.ALWAYS
    failure = str((state or {}).get("reason", ""))
    ended = bool((state or {}).get("finished"))
    found_phase = "Failed" if failure else phase(policy, inits, mains, ended=ended)
    reported = {key: value for key, value in (pod.get("status") or {}).items() if key not in {"reason", "message"}}
    status: Object = {
        **reported,
        "phase": found_phase,
        "conditions": _conditions(pod, found_phase, inits, mains, begun=state is not None and not ended, now=now),
        "hostIP": host_address,
        "hostIPs": [{"ip": host_address}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": reported.get("startTime") or format_time(now),
        "containerStatuses": _statuses(pod, "containers", mains),
    }
    if inits:
        status["initContainerStatuses"] = _statuses(pod, "initContainers", inits)
    if failure:
        status |= {"reason": failure, "message": (state or {}).get("message", "")}
    return status


def transitions(before: Object, after: Object) -> list[tuple[str, str, str]]:
    """Events (type, reason, message) of what happened to containers between two statuses of a pod."""
    events = []
    for kind in ("initContainerStatuses", "containerStatuses"):
        known = {status["name"]: status for status in before.get(kind) or []}
        for status in after.get(kind) or []:
            old = known.get(status["name"], {"state": {}, "restartCount": 0})
            again = status["restartCount"] != old["restartCount"]
            if "running" in status["state"] and ("running" not in old["state"] or again):
                events.append(("Normal", "Started", f"Started container {status['name']}"))
            waiting = status["state"].get("waiting", {})
            if waiting.get("reason") == container_status.CRASH_LOOP and old["state"].get("waiting") != waiting:
                events.append(("Warning", "BackOff", waiting["message"]))
    return events


def empty_state(pod: Object, *, problems: Sequence[Problem] = ()) -> dict[str, Any]:
    """The records of a pod of which nothing ran yet."""
    inits, mains = _records(pod, None, problems)
    return {"finished": False, "reason": "", "message": "", "initContainers": inits, "containers": mains}


def phase(policy: str, inits: Sequence[Record], mains: Sequence[Record], *, ended: bool) -> str:
    """The kubelet's rules. `ended`: nothing of the pod will run again, whatever its policy says."""
    failed_init = any(container_status.exit_code_of(record) not in {None, 0} for record in inits)
    if not container_status.initialized(list(inits)):
        return "Failed" if ended or (failed_init and policy == container_status.NEVER) else "Pending"
    if any("waiting" in record["state"] and not record["last"] for record in mains):
        return "Failed" if ended else "Pending"
    if any("running" in record["state"] for record in mains):
        return "Running"
    codes = [container_status.exit_code_of(record) for record in mains]
    if all(code == 0 for code in codes) and (ended or policy != container_status.ALWAYS):
        return "Succeeded"
    if ended or policy == container_status.NEVER:
        return "Failed"
    return "Running"


def same_status(one: Any, other: Any) -> bool:
    """Equal but for what servers add or drop: nulls and empty parts."""
    return bool(_substance(one) == _substance(other))


def _substance(value: Any) -> Any:
    if isinstance(value, dict):
        parts = {key: _substance(part) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part not in (None, {}, [], "")}
    return [_substance(part) for part in value] if isinstance(value, list) else value


def _records(
    pod: Object, state: Mapping[str, Any] | None, problems: Sequence[Problem]
) -> tuple[list[Record], list[Record]]:
    if state is not None:
        return list(state["initContainers"]), list(state["containers"])
    spec = pod["spec"]
    has_inits = bool(spec.get("initContainers"))
    inits = [container_status.new_record(one["name"], initialized=True) for one in spec.get("initContainers") or []]
    mains = [container_status.new_record(one["name"], initialized=not has_inits) for one in spec["containers"]]
    for record in [*inits, *mains]:
        for problem in problems:
            if problem.container in {None, record["name"]}:
                record["state"] = container_status.waiting(problem.reason, problem.message)
                break
    return inits, mains


def _statuses(pod: Object, kind: str, records: Sequence[Record]) -> list[Object]:
    images = {spec["name"]: spec.get("image", "") for spec in pod["spec"].get(kind) or []}
    statuses = []
    for record in records:
        state = record["state"]
        is_running = "running" in state
        has_run = is_running or "terminated" in state or bool(record["last"])
        ready = container_status.exit_code_of(record) == 0 if kind == "initContainers" else is_running
        container = f"trainwright://{pod['metadata']['uid']}/{record['name']}/{record['restarts']}" if has_run else ""
        statuses.append(
            {
                "name": record["name"],
                "state": _in_seconds(state),
                "lastState": _in_seconds(record["last"]),
                "ready": ready,
                "started": is_running,
                "restartCount": record["restarts"],
                "image": images.get(record["name"], ""),
                "imageID": "",
                **({"containerID": container} if container else {}),
            }
        )
    return statuses


def _in_seconds(state: Record) -> Record:
    """The API's times have no fractions."""
    return {
        kind: {key: format_time(parse_time(value)) if key in _TIMES else value for key, value in fields.items()}
        for kind, fields in state.items()
    }


def _conditions(
    pod: Object, found_phase: str, inits: Sequence[Record], mains: Sequence[Record], *, begun: bool, now: datetime
) -> list[Object]:
    before = {condition["type"]: condition for condition in (pod.get("status") or {}).get("conditions") or []}
    unfinished = [record["name"] for record in inits if container_status.exit_code_of(record) != 0]
    unready = [record["name"] for record in mains if "running" not in record["state"]]
    ready = _readiness(found_phase, unready)
    initialized: Object = {"status": "True"}
    if found_phase == "Succeeded":
        initialized["reason"] = "PodCompleted"
    elif unfinished:
        message = f"containers with incomplete status: [{' '.join(unfinished)}]"
        initialized = {"status": "False", "reason": "ContainersNotInitialized", "message": message}
    wanted = {
        "PodReadyToStartContainers": {"status": "True" if begun else "False"},
        "Initialized": initialized,
        "Ready": ready,
        "ContainersReady": ready,
        "PodScheduled": before.get("PodScheduled", {"status": "True"}),
    }
    ours = [_condition(kind, values, before.get(kind), now) for kind, values in wanted.items()]
    return ours + [condition for kind, condition in before.items() if kind not in wanted]


def _readiness(found_phase: str, unready: Sequence[str]) -> Object:
    if found_phase in {"Succeeded", "Failed"}:
        return {"status": "False", "reason": "PodCompleted" if found_phase == "Succeeded" else "PodFailed"}
    if unready:
        message = f"containers with unready status: [{' '.join(unready)}]"
        return {"status": "False", "reason": "ContainersNotReady", "message": message}
    return {"status": "True"}


def _condition(kind: str, values: Object, before: Object | None, now: datetime) -> Object:
    same = before is not None and before.get("status") == values["status"]
    since = before.get("lastTransitionTime") if before is not None and same else None
    return {"type": kind, "lastTransitionTime": since or format_time(now), **values}
