"""Records the events that supervisors observed, such as failed probes, each once, also those of the time without an
agent."""

import asyncio
import contextlib
from datetime import datetime

from trainwright.cluster.node.pods.pod_directory import PodDirectory
from trainwright.cluster.node.pods.pod_status import field_path
from trainwright.cluster.node.pods.port_holders import describe_holder
from trainwright.cluster.node.supervisor.files import read_json, write_json
from trainwright.cluster.node.supervisor.pod_events import PORT_IN_USE, read_events
from trainwright.cluster.node.supervisor.pod_json import EventJson
from trainwright.kube.controller.event_correlator import object_reference
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.objects import Object
from trainwright.objects.times import parse_time

_FIX = "stop it, let it listen on an address of its own, or use another port"


class EventRelay:
    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._seen: dict[str, int] = {}
        """The number of the last recorded event, by uid of the pod."""

    async def relay(self, pod: Object, directory: PodDirectory) -> None:
        events = read_events(str(directory.path))
        if not events:
            return
        uid = pod["metadata"]["uid"]
        if uid not in self._seen:
            self._seen[uid] = _read_seen(directory)
        for event in events:
            if event["number"] > self._seen[uid]:
                await self._record(pod, event, directory)
        if events[-1]["number"] != self._seen[uid]:
            self._seen[uid] = events[-1]["number"]
            with contextlib.suppress(OSError):  # a full disk: an event may be recorded again by the next agent
                write_json(str(directory.path / "events-seen.json"), {"number": self._seen[uid]}, durable=False)

    def forget(self, uid: str) -> None:
        self._seen.pop(uid, None)

    async def _record(self, pod: Object, event: EventJson, directory: PodDirectory) -> None:
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
