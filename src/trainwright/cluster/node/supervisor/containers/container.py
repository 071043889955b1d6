"""One container of a pod: its config, its status, and its process while it runs. Standard library only."""

from __future__ import annotations

from trainwright.cluster.node.supervisor.containers import container_status
from trainwright.cluster.node.supervisor.containers.cri_log import LogFile, LogPipe

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from typing import Any

    from trainwright.cluster.node.supervisor.containers.termination import Termination
    from trainwright.cluster.node.supervisor.lifecycle.probes import ContainerProbes


class Container:
    def __init__(self, spec: dict[str, Any], status: container_status.ContainerStatus, *, init: bool) -> None:
        self.spec = spec
        self.status = status
        self.init = init
        self.process: int | None = None
        self.host_process = 0
        self.start_pipe: int | None = None
        self.start_report = b""
        self.pipes: list[LogPipe] = []
        self.log: LogFile | None = None
        self.stdin: int | None = None
        """The end of the pipe to which sessions write, if the container has a stdin and no terminal."""
        self.terminal: int | None = None
        """The other end of the container's terminal, if it has one."""
        self.attached = False
        """True once a session was attached to this run."""
        self.log_path = ""
        self.scratch: str | None = None
        self.cgroups: list[str] = []
        self.started = 0.0
        self.started_at = ""
        self.backoff: float | None = None
        self.start_at: float | None = 0.0
        """In monotonic seconds; None if no start is due."""
        self.exited: float | None = None
        """When the run before the current one ended, in monotonic seconds."""
        self.sidecar = bool(spec.get("sidecar"))
        self.probes: ContainerProbes | None = None
        """While it runs and has probes."""
        self.starting = False
        """While its postStart hook runs."""
        self.termination: Termination | None = None
        """While it is stopped by the supervisor."""
        self.restarts_after_termination = False

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def exit_code(self) -> int | None:
        return container_status.exit_code(self.status)

    @property
    def is_running(self) -> bool:
        """True from the execution of its program to its end."""
        return self.process is not None and self.start_pipe is None

    def is_due(self, now: float) -> bool:
        return self.process is None and self.start_at is not None and now >= self.start_at
