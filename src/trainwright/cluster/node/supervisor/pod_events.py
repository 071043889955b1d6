"""Events that a supervisor observes and the agent records: `events.json` in the pod's directory has the last ones.

Each has a number, so that the agent records it once, also if it was not running when it happened. Standard library
only.
"""

from __future__ import annotations

import os

from trainwright.cluster.node.supervisor.files import DISK_FULL, read_json, write_json

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from trainwright.cluster.node.supervisor.pod_json import EventJson

MAX_EVENTS = 50
"""More happen only while no agent runs."""

PORT_IN_USE = "PortInUse"
"""The reason of the event whose port a program of the machine has."""

_MAX_MESSAGE = 1024


class EventLog:
    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, "events.json")
        self._events: list[EventJson] = read_events(directory)
        self._written = True

    def add(
        self,
        kind: str,
        reason: str,
        message: str,
        *,
        at: str,
        container: str = "",
        init: bool = False,
        port: int | None = None,
    ) -> None:
        """`kind` is Normal or Warning. An event about the whole pod names no container. `port` is in use."""
        number = self._events[-1]["number"] + 1 if self._events else 1
        event: EventJson = {
            "number": number,
            "type": kind,
            "reason": reason,
            "message": message[:_MAX_MESSAGE],
            "at": at,
            "container": container,
            "init": init,
        }
        if port is not None:
            event["port"] = port
        self._events = [*self._events, event][-MAX_EVENTS:]
        self._written = False

    def write(self) -> bool:
        """True if there was something to write. Events that do not fit on the disk are written with the next one."""
        if self._written:
            return False
        self._written = True
        try:
            write_json(self._path, {"events": self._events}, durable=False)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
        return True


def read_events(directory: str) -> list[EventJson]:
    try:
        found = read_json(os.path.join(directory, "events.json"), default={"events": []})
    except ValueError:  # truncated by a power failure
        return []
    return list(found["events"])
