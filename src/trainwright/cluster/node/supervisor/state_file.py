"""state.json: what a supervisor reports to the agent. Tries again while the disk is full or the agent is busy.

Standard library only.
"""

from __future__ import annotations

import os
import time

from trainwright.cluster.node.supervisor.files import DISK_FULL, DISK_FULL_NOTE, notify_agent, write_json

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwright.cluster.node.supervisor.pod_json import PodState

_RETRY_SECONDS = 0.1
_DISK_FULL_REPORT_SECONDS = 10.0


class StateFile:
    def __init__(self, directory: str, uid: str) -> None:
        self._path = os.path.join(directory, "state.json")
        self._node = os.path.dirname(os.path.dirname(directory))
        self._uid = uid
        self.changed = False
        """True if the state is to be written."""
        self.retry_at: float | None = None
        """When to repeat a failed write or notification, in monotonic seconds."""
        self._disk_full_reported_at: float | None = None

    def notify_soon(self) -> None:
        """The agent has something else to read."""
        if self.retry_at is None:
            self.retry_at = time.monotonic()

    def publish(self, state: Callable[[], PodState]) -> None:
        """Writes the state if it has changed, and notifies the agent."""
        now = time.monotonic()
        if (not self.changed and self.retry_at is None) or (self.retry_at is not None and now < self.retry_at):
            return
        if self.changed:
            try:
                write_json(self._path, state())
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
                self.retry_at = now + _RETRY_SECONDS
                self.report_full_disk()
                return
        self.changed = False
        self.retry_at = None if notify_agent(self._node, self._uid) else now + _RETRY_SECONDS

    def report_full_disk(self) -> None:
        """Notifies the agent, which records an event: nothing can be written to this disk."""
        now = time.monotonic()
        last = self._disk_full_reported_at
        if (last is None or now >= last + _DISK_FULL_REPORT_SECONDS) and notify_agent(
            self._node, f"{self._uid} {DISK_FULL_NOTE}"
        ):
            self._disk_full_reported_at = now
