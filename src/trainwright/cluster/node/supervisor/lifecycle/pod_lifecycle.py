"""Hooks, probes and terminations of the containers of one pod. The supervisor calls it in every round of its loop.

Pods without hooks and probes need it only when they are stopped. Standard library only.
"""

from __future__ import annotations

import signal
import time

from trainwright.cluster.node.supervisor import processes
from trainwright.cluster.node.supervisor.containers import container_status, termination
from trainwright.cluster.node.supervisor.containers.termination import Termination
from trainwright.cluster.node.supervisor.pod_events import PORT_IN_USE

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwright.cluster.node.supervisor.containers.container import Container
    from trainwright.cluster.node.supervisor.containers.container_exec import ContainerExec
    from trainwright.cluster.node.supervisor.lifecycle.handlers import Handlers
    from trainwright.cluster.node.supervisor.pod_events import EventLog
    from trainwright.cluster.node.supervisor.pod_json import ContainerJson, PodJson
    from trainwright.cluster.node.supervisor.poller import Poller


class PodLifecycle:
    """`on_change` is called with a container whose `started` or `ready` may have changed."""

    def __init__(
        self,
        directory: str,
        pod: PodJson,
        inits: list[Container],
        mains: list[Container],
        *,
        poller: Poller,
        execs: ContainerExec,
        proc: str | None,
        on_change: Callable[[Container], None],
    ) -> None:
        self._directory = directory
        self._pod = pod
        self._inits = inits
        self._mains = mains
        self._poller = poller
        self._execs = execs
        self._proc = proc
        self._on_change = on_change
        self._handlers: Handlers | None = None
        self._events: EventLog | None = None

    # Events of the supervisor's loop

    def begin(self, container: Container, *, on_started: Callable[[], None]) -> None:
        """The program of the container has been executed. `on_started` is called after its postStart hook."""
        hook = container.spec.get("hooks", {}).get("postStart")
        if hook is None:
            on_started()
            return

        def on_done(outcome: str, _: str) -> None:
            container.starting = False
            on_started()
            if outcome not in {"success", "warning"}:
                self.record("Warning", "FailedPostStartHook", "PostStartHook failed", container)
                self.terminate(container, float(self._pod["grace"]), "FailedPostStartHook")

        self._get_handlers().start(container, hook, None, on_done)

    def begin_probes(self, container: Container) -> None:
        from trainwright.cluster.node.supervisor.lifecycle.probes import ContainerProbes  # most pods have none

        container.probes = ContainerProbes(
            container,
            self._get_handlers(),
            record=lambda reason, message: self.record("Warning", reason, message, container),
            on_change=lambda: self._on_change(container),
        )
        container.probes.begin(time.monotonic())

    def tick(self, now: float, *, stopping: bool) -> None:
        """`stopping`: the whole pod is stopped."""
        if self._handlers is not None:
            self._handlers.expire(now)
        turns = termination.turns(
            [(container.sidecar, container.process is not None) for container in self._inits],
            mains_running=any(container.process for container in self._mains),
        )
        for container, its_turn in zip(
            [*self._inits, *self._mains], [*turns, *(True for _ in self._mains)], strict=True
        ):
            if container.process is not None:
                self._check_probes(container, now, stopping=stopping)
                self._continue_termination(container, now, its_turn=its_turn or not stopping)

    def ended(self, container: Container) -> None:
        """The process of the container has ended, and all that were started in it are killed."""
        container.probes = container.termination = None
        if self._handlers is not None:
            self._handlers.container_ended(container)

    def reaped(self, pid: int, status: int) -> None:
        if self._handlers is not None:
            self._handlers.reaped(pid, status)

    def next_at(self, *, stopping: bool) -> float | None:
        found = [self._handlers.next_at] if self._handlers is not None else []
        for container in [*self._inits, *self._mains]:
            terminating = stopping or container.termination is not None
            found.append(container.probes.next_at(terminating=terminating) if container.probes else None)
            found.append(container.termination.next_at if container.termination else None)
        return min((at for at in found if at is not None), default=None)

    def write_events(self) -> bool:
        """True if the agent has to be notified."""
        return self._events is not None and self._events.write()

    # Actions

    def terminate(self, container: Container, grace: float, message: str | None = None) -> None:
        """`message` is that of the event Killing; without one there is no event."""
        now = time.monotonic()
        if container.termination is not None:
            container.termination.shorten(now + grace)
            return
        if message is not None:
            self.record("Normal", "Killing", message, container)
        hook = container.spec.get("hooks", {}).get("preStop")
        container.termination = Termination(now, grace, hook=hook is not None)

    def apply_changes(self, pod: PodJson, specs: list[ContainerJson], *, stopping: bool) -> None:
        """The pod's config has changed: containers with another image restart."""
        self._pod = pod
        for container, spec in zip([*self._inits, *self._mains], specs, strict=True):
            changed, container.spec = container.spec.get("image") != spec.get("image"), spec
            if changed and container.process and not stopping and (container.sidecar or not container.init):
                container.restarts_after_termination, container.backoff = True, None
                subject = f"Init container {container.name}" if container.init else f"Container {container.name}"
                end = "" if container.init else ", will be restarted"
                self.terminate(container, float(pod["grace"]), f"{subject} definition changed{end}")

    def record_port_in_use(self, port: int) -> None:
        """The agent adds who has the port: from here, inside a user namespace, other processes cannot be inspected."""
        self.record("Warning", PORT_IN_USE, f"port {port} is in use", port=port)

    def record(
        self, kind: str, reason: str, message: str, container: Container | None = None, *, port: int | None = None
    ) -> None:
        if self._events is None:
            from trainwright.cluster.node.supervisor.pod_events import EventLog  # most pods have none

            self._events = EventLog(self._directory)
        at = container_status.timestamp(time.time_ns())
        name, init = ("", False) if container is None else (container.name, container.init)
        self._events.add(kind, reason, message, at=at, container=name, init=init, port=port)

    def _check_probes(self, container: Container, now: float, *, stopping: bool) -> None:
        if container.probes is None:
            return
        terminating = stopping or container.termination is not None
        container.probes.tick(now, terminating=terminating)
        failed = container.probes.failed
        if failed is None or terminating:
            return
        restarts = self._pod["restartPolicy"] != container_status.NEVER
        container.restarts_after_termination = restarts or container.sidecar
        grace = container.spec["probes"][failed].get("grace")
        if container.init:
            message = f"Init container {container.name} failed {failed} probe"
        elif restarts:
            message = f"Container {container.name} failed {failed} probe, will be restarted"
        elif any(other.process for other in self._mains if other is not container):
            message = f"Container {container.name} failed {failed} probe"
        else:  # nothing is left to run: the kubelet stops the pod as a whole
            message, grace = f"Stopping container {container.name}", None
        self.terminate(container, float(self._pod["grace"] if grace is None else grace), message)

    def _continue_termination(self, container: Container, now: float, *, its_turn: bool) -> None:
        ending = container.termination
        while ending is not None and container.process is not None:
            step = ending.next_step(now, its_turn=its_turn)
            if step == termination.WAIT:
                if ending.waits_for_commands and not self._execs.are_ending(container, self._proc or "/proc"):
                    ending.waits_for_commands = False
                    self._send_stop_signal(container)
                return
            if step == termination.HOOK:
                self._run_pre_stop(container, ending, now)
            elif step == termination.KILL:
                processes.kill(container.process, signal.SIGKILL)
            elif ending.deadline > now and self._waits_only(container):
                self._execs.terminate(container)
                ending.waits_for_commands = True
            else:
                self._send_stop_signal(container)

    def _waits_only(self, container: Container) -> bool:
        """Whether commands work in the container, and not its program."""
        assert container.process is not None  # noqa: S101 - the caller has checked it
        proc = self._proc or "/proc"
        return self._execs.has_commands(container) and not processes.handles_sigterm(container.process, proc)

    def _send_stop_signal(self, container: Container) -> None:
        if container.process is not None:
            processes.kill(container.process, int(container.spec.get("stopSignal", signal.SIGTERM)))

    def _run_pre_stop(self, container: Container, ending: Termination, now: float) -> None:
        def on_done(outcome: str, _: str) -> None:
            ending.hook_ended()
            if outcome not in {"success", "warning"}:
                self.record("Warning", "FailedPreStopHook", "PreStopHook failed", container)

        self._get_handlers().start(container, container.spec["hooks"]["preStop"], ending.deadline - now, on_done)

    def _get_handlers(self) -> Handlers:
        if self._handlers is None:
            from trainwright.cluster.node.supervisor.lifecycle.handlers import Handlers  # most pods have none

            self._handlers = Handlers(self._poller, self._execs, self._proc)
        return self._handlers
