"""One container of a pod: its config, its status, and its process while it runs. Standard library only."""

from __future__ import annotations

import time

from trainwright.cluster.node.supervisor.containers import container_status
from trainwright.cluster.node.supervisor.containers.cri_log import LogFile, LogPipe

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from trainwright.cluster.node.supervisor.containers.termination import Termination
    from trainwright.cluster.node.supervisor.lifecycle.probes import ContainerProbes
    from trainwright.cluster.node.supervisor.pod_json import ContainerJson, ContainerState, ContainerStatus, PodJson


class Container:
    def __init__(self, spec: ContainerJson, status: ContainerStatus, *, init: bool) -> None:
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

    @property
    def flush_at(self) -> float | None:
        """When `flush_output` is due, in monotonic seconds."""
        return min((pipe.flush_at for pipe in self.pipes if pipe.flush_at is not None), default=None)

    def flush_output(self, now: float) -> None:
        """Writes lines that the program has not ended for a while."""
        for pipe in self.pipes:
            if pipe.flush_at is not None and now >= pipe.flush_at:
                pipe.flush(container_status.timestamp(time.time_ns()))

    def is_due(self, now: float) -> bool:
        return self.process is None and self.start_at is not None and now >= self.start_at

    def schedule_restart(self, last: ContainerState, pod: PodJson, now: float, *, killed: bool) -> None:
        """After the run that ended with the state `last`. `killed`: by the supervisor, to restart it. As for the
        kubelet, back-off then begins with the end of the run before."""
        since, self.exited = self.exited if killed else now, now
        self.backoff = container_status.next_backoff(self.backoff, ran=now - self.started, backoff=pod["backoff"])
        self.start_at = now if since is None else max(now, since + self.backoff)
        if self.start_at > now:
            name = f"{pod['name']}_{pod['namespace']}({pod['uid']})"
            delay = container_status.duration(self.backoff)
            message = f"back-off {delay} restarting failed container={self.name} pod={name}"
            state = container_status.waiting(container_status.CRASH_LOOP_BACK_OFF, message)
        elif killed:  # restarts regardless of the restart policy
            state = container_status.waiting(container_status.CONTAINER_CREATING)
        else:
            return
        self.status = {**self.status, "last": last, "state": state}
