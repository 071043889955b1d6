"""The events about pods that the agent records: its own, and those that supervisors have observed.

A warning is recorded once for each pod. An event about a port that is in use names the process that has it.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from trainwright.cluster.linux.listening_sockets import find_holder, find_listener
from trainwright.cluster.node.pods.config.pod_context import PodWarning
from trainwright.cluster.node.pods.config.runtime_config import WaitingReason
from trainwright.cluster.node.pods.pod_directory import PodDirectory
from trainwright.cluster.node.pods.pod_status import field_path
from trainwright.cluster.node.supervisor.files import read_json, read_pod, write_json
from trainwright.cluster.node.supervisor.pod_events import PORT_IN_USE, read_events
from trainwright.cluster.node.supervisor.pod_json import EventJson
from trainwright.cluster.node.supervisor.processes import list_processes
from trainwright.kube.controller.deduplicator import Deduplicator
from trainwright.kube.controller.event_correlator import object_reference
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.objects import Object
from trainwright.objects.kinds.nodes import NODE_ADDRESS
from trainwright.objects.times import parse_time

_FIX = "stop it, let it listen on an address of its own, or use another port"


class PodRecorder:
    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._reported = Deduplicator[str, PodWarning]()
        self._seen: dict[str, int] = {}
        """The number of the last relayed event, by uid of the pod."""

    def warn(self, pod: Object, *warnings: PodWarning) -> None:
        for warning in warnings:
            if self._reported.first(pod["metadata"]["uid"], warning):
                self._recorder.record(pod, "Warning", warning.reason, warning.message)

    def warn_of_waiting(self, pod: Object, waiting: Iterable[WaitingReason]) -> None:
        self.warn(pod, *(PodWarning(reason.reason, reason.message) for reason in waiting))

    def record(self, pod: Object, reason: str, message: str) -> None:
        self._recorder.record(pod, "Normal", reason, message)

    def record_about(self, pod: Object, path: str, reason: str, message: str, *, type_: str = "Normal") -> None:
        """An event about a container."""
        self._recorder.record({**object_reference(pod), "fieldPath": path}, type_, reason, message)

    async def relay(self, pod: Object, directory: PodDirectory) -> None:
        """Records the new events of the pod's supervisor."""
        events = read_events(str(directory.path))
        if not events:
            return
        uid = pod["metadata"]["uid"]
        if uid not in self._seen:
            self._seen[uid] = _read_seen(directory)
        for event in events:
            if event["number"] > self._seen[uid]:
                await self._relay(pod, event, directory)
        if events[-1]["number"] != self._seen[uid]:
            self._seen[uid] = events[-1]["number"]
            with contextlib.suppress(OSError):  # a full disk: an event may be recorded again by the next agent
                write_json(str(directory.path / "events-seen.json"), {"number": self._seen[uid]}, durable=False)

    def forget(self, uid: str) -> None:
        self._reported.forget(uid)
        self._seen.pop(uid, None)

    async def _relay(self, pod: Object, event: EventJson, directory: PodDirectory) -> None:
        about = pod
        if event["container"]:
            field = "initContainers" if event["init"] else "containers"
            about = {**object_reference(pod), "fieldPath": field_path(field, event["container"])}
        at: datetime = parse_time(event["at"])
        message = event["message"]
        if event["reason"] == PORT_IN_USE and isinstance(event.get("port"), int):
            namespace = pod["metadata"]["namespace"]
            holder = await asyncio.to_thread(describe_holder, event["port"], namespace, directory.path.parent)
            message = f"{message} by {holder}; {_FIX}"
        self._recorder.record(about, event["type"], event["reason"], message, at=at)


def _read_seen(directory: PodDirectory) -> int:
    try:
        return int(read_json(str(directory.path / "events-seen.json"), default={"number": 0})["number"])
    except (ValueError, KeyError):
        return 0


def describe_holder(port: int, namespace: str, pods: Path) -> str:
    """For users of the namespace: the process, and its pod if it has one. Without its arguments, and without names of
    other namespaces. `pods` is the directory of the pods of the node."""
    listener = find_listener(port, NODE_ADDRESS, "::1")
    if listener is None:
        return "a process that has ended meanwhile"
    holder = find_holder(listener.inode)
    if holder is None:
        return f"a process of user {listener.uid}"
    pod = _pod_of(holder.pid, pods)
    if pod is None:
        return holder.title
    return f"process {holder.pid} of pod {pod[1]}" if pod[0] == namespace else "a pod of another namespace"


def _pod_of(pid: int, pods: Path) -> tuple[str, str] | None:
    """Namespace and name of the pod below whose supervisor the process is."""
    supervisors = {read_json(str(path), default={}).get("pid"): path.parent for path in pods.glob("*/supervisor.json")}
    processes = list_processes("/proc")
    while pid in processes:
        if pid in supervisors:
            pod = read_pod(str(supervisors[pid]))
            return (pod["namespace"], pod["name"]) if pod is not None else ("", "")
        pid, _ = processes[pid]
    return None
