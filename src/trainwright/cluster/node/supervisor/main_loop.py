"""The init process of one pod: starts containers in their sandbox, forwards signals, reaps, restarts, writes status.

It runs in a session of its own, so pods outlive the agent. Both share files in the pod's directory:
- `pod.json`, written by the agent: the runtime config;
- `stop.json`, written by the agent: stop the pod, with this grace period. If it says that the cluster is shut down, the
  pod starts again with the next agent, according to its restart policy;
- `state.json`: the status of the containers; `supervisor.json`: the identity of this process; `logs/`.

Standard library only, and little of it: every pod has such a process, and its start-up is part of the pod's.
"""

from __future__ import annotations

import os
import signal
import time

from trainwright.cluster.node.supervisor import files, processes
from trainwright.cluster.node.supervisor.containers import container_exit, container_start, container_status
from trainwright.cluster.node.supervisor.containers.container import Container
from trainwright.cluster.node.supervisor.containers.container_exec import ContainerExec
from trainwright.cluster.node.supervisor.containers.pacing import OutputPacer
from trainwright.cluster.node.supervisor.network.pod_sockets import PodSockets
from trainwright.cluster.node.supervisor.poller import Poller
from trainwright.cluster.node.supervisor.processes import SIGNALS
from trainwright.cluster.node.supervisor.sandbox import cgroups, sandbox

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    import socket

    from trainwright.cluster.node.supervisor.containers.cri_log import LogPipe
    from trainwright.cluster.node.supervisor.containers.exec_sessions import ExecSessions
    from trainwright.cluster.node.supervisor.lifecycle.pod_lifecycle import PodLifecycle
    from trainwright.cluster.node.supervisor.pod_json import ContainerJson, ContainerStatus, PodJson, PodState, StopJson

_DISK_FULL_SECONDS = 1.0
"""Between two attempts to start a container on a full disk."""
_DEADLINE = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")


class Supervisor:
    def __init__(self, directory: str, pod: PodJson, *, is_pid_1: bool, session_key: str = "") -> None:
        self._directory = directory
        self._session_key = session_key
        self._pod = pod
        self._is_pid_1 = is_pid_1
        self._stop_file = os.path.join(directory, "stop.json")
        self._policy = str(pod["restartPolicy"])
        last = files.read_state(directory)
        self._inits = self._containers(pod["initContainers"], last and last["initContainers"], init=True)
        self._mains = self._containers(pod["containers"], last and last["containers"], init=False)
        self._all = self._inits + self._mains
        self._exec = ContainerExec(pod)
        self._reason = self._message = ""
        self._lifecycle: PodLifecycle | None = None
        self._initialized = False
        self._finished = False
        self._completed = False
        """True when no container will run again, except sidecars."""
        self._stopping = False
        self._shutdown = False
        self._state_file = files.StateFile(directory, str(pod["uid"]))
        self._proc: str | None = "/proc"
        self._listener: socket.socket | None = None
        self._sessions: ExecSessions | None = None
        self._poller = Poller()
        self._pacer = OutputPacer()
        self._sockets = PodSockets(
            pod,
            poller=self._poller,
            on_port_in_use=lambda port: self._get_lifecycle().record_port_in_use(port),
        )

    def _containers(
        self, specs: list[ContainerJson], last: list[ContainerStatus] | None, *, init: bool
    ) -> list[Container]:
        if last is None:
            first = init or not self._pod["initContainers"]
            statuses = [
                container_status.new_status(spec["name"], initialized=first, sidecar=bool(spec.get("sidecar")))
                for spec in specs
            ]
        else:
            statuses = [container_status.reset_for_restart(status, init=init, policy=self._policy) for status in last]
        return [Container(spec, status, init=init) for spec, status in zip(specs, statuses, strict=True)]

    def run(self) -> None:
        """Runs the pod to its end. If the supervisor itself fails, it leaves no process behind."""
        try:
            self._run()
        except BaseException:
            processes.kill_descendants(is_pid_1=self._is_pid_1)
            raise
        finally:
            if self._listener is not None:
                files.remove_file(os.path.join(self._directory, files.SESSION_SOCKET))

    def _run(self) -> None:
        if self._is_pid_1:
            self._proc = sandbox.mount_proc(self._directory)
        self._sockets.open(self._proc)
        self._exec.on_listener = self._sockets.on_listener
        self._install_signal_handlers()
        self._check_stop_request()
        while True:
            for container in self._all:
                container.flush_output(time.monotonic())
            self._sync()
            if self._lifecycle is not None and self._lifecycle.write_events():
                self._state_file.notify_soon()
            self._state_file.publish(self._state)
            if self._finished and not self._state_file.changed:
                if self._shutdown and os.path.exists(self._stop_file):
                    os.unlink(self._stop_file)
                return
            if pause := self._pacer.pause(time.monotonic()):
                self._poller.let_output_gather(pause)
            self._poller.wait(self._timeout())

    def fail(self, reason: str, message: str) -> None:
        """Ends the pod before a container has started."""
        self._reason, self._message = reason, message
        self._finish()
        self._state_file.publish(self._state)

    # From status to actions

    def _sync(self) -> None:
        now = time.monotonic()
        if self._sockets.tick(now):
            self._state_file.changed = True
        if self._lifecycle is not None:
            self._lifecycle.tick(now, stopping=self._stopping)
        if self._stopping:
            if not any(container.process for container in self._all):
                self._finish()
            return
        if (deadline := self._deadline()) is not None and now >= deadline:
            self._get_lifecycle().record("Normal", *_DEADLINE)
            self._reason, self._message = _DEADLINE
            self._stop(float(self._pod["grace"]))
            return
        statuses = [[container.status for container in group] for group in (self._inits, self._mains)]
        if container_status.is_finished(self._policy, *statuses):
            self._completed = True
            if any(container.process for container in self._all):
                self._stop(float(self._pod["grace"]))  # sidecars
            else:
                self._finish()
            return
        if not self._initialize(now):
            return
        for container in self._mains:
            self._start_if_due(container, now)
            if container.starting:
                return

    def _initialize(self, now: float) -> bool:
        """Starts the init containers that are due; True when all have succeeded and all sidecars have started."""
        for container in self._inits:
            if container.sidecar:
                self._start_if_due(container, now)
                if not self._initialized and not container_status.is_started(container.status):
                    return False
            elif not self._initialized and container.exit_code != 0:
                self._start_if_due(container, now)
                return False
        self._initialized = True
        return True

    def _deadline(self) -> float | None:
        """When activeDeadlineSeconds end, in monotonic seconds."""
        at = self._pod.get("deadlineAt")
        return None if at is None else time.monotonic() + float(at) - time.time()

    def _start_if_due(self, container: Container, now: float) -> None:
        if container.is_due(now):
            container.start_at = None
            self._start(container)

    def _timeout(self) -> float | None:
        """Milliseconds until the next timer."""
        timers = [self._state_file.retry_at, self._sockets.next_at, *(container.flush_at for container in self._all)]
        if not self._stopping:
            timers += [self._next_start(), self._deadline()]
        if self._lifecycle is not None:
            timers.append(self._lifecycle.next_at(stopping=self._stopping))
        pending = [timer for timer in timers if timer is not None]
        return max(0.0, min(pending) - time.monotonic()) * 1000 + 1 if pending else None

    def _next_start(self) -> float | None:
        return min((container.start_at for container in self._all if container.start_at), default=None)

    def _finish(self) -> None:
        processes.kill_descendants(is_pid_1=self._is_pid_1)
        cgroups.remove_pod(self._pod)
        for container in () if self._shutdown else self._all:
            stopped = self._stopping and not self._completed
            if container.status["last"] if container.init else stopped:
                container.status = container_status.terminated_with_pod(container.status, _now())
            elif self._reason and not container.init:
                state = container_status.waiting(self._reason, self._message)
                container.status = {**container.status, "state": state}
        self._finished = self._state_file.changed = True

    # Starting a container

    def _start(self, container: Container) -> None:
        status = container_status.next_run(container.status)
        try:
            container_start.create_files(self._directory, self._pod, container, int(status["restarts"]))
        except OSError as error:
            if error.errno not in files.DISK_FULL:
                raise
            container.start_at = time.monotonic() + _DISK_FULL_SECONDS
            self._state_file.report_full_disk()
            return
        container.status = status
        if self._pod.get("cgroups") and container.spec.get("limits"):
            name = f"{container.name}-{status['restarts']}"
            container.cgroups = cgroups.container_directories(self._pod["cgroups"], name)
        self._sockets.container_starts(container.spec)
        streams = container_start.ProgramStreams(container, self._pacer)
        container.started, container.started_at = time.monotonic(), _now()
        container.starting = "postStart" in container.spec.get("hooks", ())
        container_start.start(
            container, streams, directory=self._directory, pod=self._pod, on_listener=self._sockets.on_listener
        )
        for pipe in container.pipes:
            self._watch_output(pipe)
        assert container.start_pipe is not None  # noqa: S101 - opened just now
        self._poller.watch(container.start_pipe, lambda: self._on_start_report(container))

    # Signals, output and exits

    def _install_signal_handlers(self) -> None:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        self._poller.watch(reader, lambda: self._on_signals(os.read(reader, 4096)), urgent=True)

    def _on_signals(self, numbers: bytes) -> None:
        # Also when a container has ended: it may have lost a peer that is stopped with the cluster.
        self._check_stop_request(signalled=signal.SIGTERM in numbers)
        if signal.SIGHUP in numbers:
            self._reload()
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process == 0:
                return
            self._exec.reaped(process, status)
            if self._lifecycle is not None:
                self._lifecycle.reaped(process, status)
            for container in self._all:
                if container.process == process:
                    self._on_exit(container, status)

    def _check_stop_request(self, *, signalled: bool = False) -> None:
        """The agent writes the grace period to stop.json, then sends SIGTERM. Its default is the pod's own."""
        stop: StopJson = files.read_json(self._stop_file, default={})
        if "shutdown" in stop and stop["shutdown"] != files.read_json(os.path.join(self._directory, "supervisor.json")):
            stop = {}  # meant an earlier supervisor of this pod, which was killed
        if not signalled and not stop:
            return
        self._shutdown = self._shutdown or "shutdown" in stop
        if stop.get("reason"):
            self._reason, self._message = str(stop["reason"]), str(stop.get("message", ""))
        self._stop(float(stop.get("grace", self._pod["grace"])), announce=False)

    def _stop(self, grace: float, *, announce: bool = True) -> None:
        """Terminates the containers that run; the pod finishes when they have ended. Can be repeated with a shorter
        grace period. `announce`: the agent does not know about it, and records the events of this supervisor."""
        self._stopping = True
        for container in self._all:
            container.start_at = None
            if container.process:
                message = f"Stopping container {container.name}" if announce else None
                self._get_lifecycle().terminate(container, grace, message)
        self._sync()

    def _reload(self) -> None:
        """The agent has written pod.json again: the deadline or the image of containers has changed."""
        self._pod = files.read_json(os.path.join(self._directory, "pod.json"))
        specs = [*self._pod["initContainers"], *self._pod["containers"]]
        self._get_lifecycle().apply_changes(self._pod, specs, stopping=self._stopping)

    def _get_lifecycle(self) -> PodLifecycle:
        if self._lifecycle is None:
            from trainwright.cluster.node.supervisor.lifecycle.pod_lifecycle import (
                PodLifecycle,  # not needed to start a pod
            )

            self._lifecycle = PodLifecycle(
                self._directory,
                self._pod,
                self._inits,
                self._mains,
                poller=self._poller,
                execs=self._exec,
                proc=self._proc,
                on_change=self._on_probe_result,
            )
        return self._lifecycle

    def _on_probe_result(self, container: Container) -> None:
        if container.probes is not None:
            probes = container.probes
            container.status = {**container.status, "started": probes.is_started, "ready": probes.is_ready}
            self._state_file.changed = True

    def _watch_output(self, pipe: LogPipe) -> None:
        self._poller.watch(pipe.reader, lambda: self._on_output(pipe))

    def _on_output(self, pipe: LogPipe) -> None:
        if not pipe.copy(_now(), time.monotonic()):
            self._poller.unwatch(pipe.reader)
        if pipe.drops_output:
            self._state_file.report_full_disk()

    def _on_start_report(self, container: Container) -> None:
        """The child writes its pid; exec closes the pipe. Anything after the pid is the error of a failed start."""
        if container_start.read_report(container, self._pacer, self._watch_output):
            return
        self._close_start_pipe(container)
        if container.start_report.partition(b"\n")[2]:
            return
        self._listen_for_sessions()  # before the agent knows that the container runs
        if container.starting:
            self._get_lifecycle().begin(container, on_started=lambda: self._on_started(container))
        else:
            self._on_started(container)

    def _on_started(self, container: Container) -> None:
        state = container_status.running(container.started_at)
        container.status = {**container.status, "state": state, "process": container.host_process}
        if container.spec.get("probes"):
            self._get_lifecycle().begin_probes(container)
            self._on_probe_result(container)
        self._state_file.changed = True

    def _close_start_pipe(self, container: Container) -> None:
        if container.start_pipe is not None:
            self._poller.unwatch(container.start_pipe)
            os.close(container.start_pipe)
            container.start_pipe = None
        host_process = container.start_report.partition(b"\n")[0]
        container.host_process = int(host_process) if host_process else 0

    def _on_exit(self, container: Container, status: int) -> None:
        finished_at = _now()  # before anything that takes time: it shows which of several pods failed first
        self._kill_rest_of(container)
        self._sockets.container_ended()
        self._collect_output(container)
        code, state = container_exit.terminated_state(container, status, finished_at, stopping=self._stopping)
        cgroups.remove_directories(container.cgroups)
        container.cgroups = []
        if self._shutdown:
            container.status = container_status.ended_by_shutdown(
                container.status, code, started_at=container.started_at, finished_at=finished_at
            )
        else:
            container.status = container_status.with_finished_run(container.status, state)
        self._state_file.changed = True
        killed, container.restarts_after_termination = container.restarts_after_termination, False
        restarts = container_status.should_restart(self._policy, code, init=container.init, sidecar=container.sidecar)
        if not self._stopping and (killed or restarts):
            container.schedule_restart(state, self._pod, time.monotonic(), killed=killed)

    def _kill_rest_of(self, container: Container) -> None:
        """Kills what the first process of the container has left; with the last container, all processes of the pod."""
        process, container.process = container.process, None
        assert process is not None  # noqa: S101 - the caller found it by this process
        container.starting = False
        if self._lifecycle is not None:
            self._lifecycle.ended(container)
        if not any(other.process for other in self._all):
            processes.kill_descendants(is_pid_1=self._is_pid_1)
            self._exec.all_killed()
        else:
            self._exec.container_ended(container, self._proc)
            if self._proc:
                processes.kill_session(process, self._proc)

    def _collect_output(self, container: Container) -> None:
        while container.start_pipe is not None and container_start.read_report(
            container, self._pacer, self._watch_output
        ):
            pass
        self._close_start_pipe(container)
        for pipe in container.pipes:
            self._poller.unwatch(pipe.reader)
        container_exit.close_files(self._pod, container)

    # Sessions

    def _listen_for_sessions(self) -> None:
        if self._listener is None:
            self._listener = files.listen_for_sessions(self._directory)
            self._poller.watch(self._listener.fileno(), self._on_connection)

    def _on_connection(self) -> None:
        if self._sessions is None:
            from trainwright.cluster.node.supervisor.containers.exec_sessions import ExecSessions  # most pods have none

            self._sessions = ExecSessions(
                self._all, self._exec, self._poller, key=self._session_key, pid_namespace=self._is_pid_1
            )
        assert self._listener is not None  # noqa: S101 - it has just become readable
        self._sessions.accept(self._listener)

    def _state(self) -> PodState:
        return {
            "sandbox": self._pod["sandbox"],
            "finished": self._finished and not self._shutdown,
            "reason": self._reason if self._finished else "",
            "message": self._message if self._finished else "",
            "listening": self._sockets.listening,
            "initContainers": [container.status for container in self._inits],
            "containers": [container.status for container in self._mains],
        }


def _now() -> str:
    return container_status.timestamp(time.time_ns())
