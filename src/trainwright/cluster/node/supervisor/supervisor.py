"""The init process of one pod: starts containers in their sandbox, forwards signals, reaps, restarts, writes status.

It runs in a session of its own, so pods outlive the agent. Both share the pod's directory: `pod.json` (the runtime
config, written by the agent), `stop.json` (stop the pod, its grace period, and whether the cluster is shut down, after
which the pod starts again according to its restart policy), `state.json` (status of the
containers), `supervisor.json` (identity of this process) and `logs/`. Standard library only, and little of it:
every pod has such a process, and its start-up is part of the pod's.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import sys
import time

from trainwright.cluster.node.supervisor import (
    cgroups,
    container_start,
    container_status,
    ports,
    privileges,
    processes,
    sandbox,
)
from trainwright.cluster.node.supervisor.container import Container
from trainwright.cluster.node.supervisor.container_exec import ContainerExec
from trainwright.cluster.node.supervisor.cri_log import MAX_LOG_BYTES, LogFile, remove_old_logs
from trainwright.cluster.node.supervisor.files import (
    DISK_FULL,
    DISK_FULL_NOTE,
    SESSION_SOCKET,
    listen_for_sessions,
    notify_agent,
    own_identity,
    read_json,
    remove_file,
    remove_tree,
    write_json,
)
from trainwright.cluster.node.supervisor.pacing import OutputPacer

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import Any

    from trainwright.cluster.node.supervisor.exec_sessions import ExecSessions

EXIT_ALREADY_SUPERVISED = 75
"""Exit status if another supervisor of the same pod is running."""

_SIGNALS = {signal.SIGTERM, signal.SIGCHLD}
_RETRY_SECONDS = 0.1
_DISK_FULL_SECONDS = 1.0
"""Between two attempts to start a container on a full disk."""
_DISK_FULL_REPORT_SECONDS = 10.0
_KEPT_SCRATCHES = 3
"""Of how many runs of a container the private files are kept."""


def main(arguments: list[str]) -> None:
    if arguments[0] == "--detect-sandbox":
        from trainwright.cluster.node.supervisor import sandbox_detection  # pods do not need it

        sys.stdout.write(json.dumps(sandbox_detection.try_overlay(arguments[1])))
        return
    directory = os.path.abspath(arguments[0])
    pod = read_json(os.path.join(directory, "pod.json"))
    lock = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held until this process and pid 1 of the pod have ended
    except BlockingIOError:
        sys.exit(EXIT_ALREADY_SUPERVISED)
    write_json(os.path.join(directory, "supervisor.json"), own_identity(), durable=False)  # meaningless after a reboot
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    if pod["sandbox"] == sandbox.PLAIN:
        sandbox.become_subreaper()
        Supervisor(directory, pod, is_pid_1=False).run()
        return
    try:
        sandbox.enter_pod(
            directory,
            hostname=pod["hostname"],
            user_namespace=pod["ownUsers"],
            memory_volumes=pod["memoryVolumes"],
            memory_limit=pod.get("memoryLimit"),
        )
    except OSError as error:
        Supervisor(directory, pod, is_pid_1=False).fail("SandboxFailed", error.strerror or str(error))
        return
    _wait_for_pid_1(directory, pod)


def _wait_for_pid_1(directory: str, pod: dict[str, Any]) -> None:
    """Forks pid 1 of the pod and stays outside its pid namespace, where the agent can signal it; pid 1 dies with it."""
    child = os.fork()
    if child == 0:
        sandbox.die_with_parent(signal.SIGKILL)
        if not pod["ownUsers"]:
            privileges.hide_process()  # it sees the host's files; in a user namespace only its capabilities count
        Supervisor(directory, pod, is_pid_1=True).run()
        os._exit(0)
    while True:
        if signal.sigwait(_SIGNALS) == signal.SIGTERM:
            processes.kill(child, signal.SIGTERM)
        elif os.waitpid(child, os.WNOHANG)[0]:
            return


class Supervisor:
    def __init__(self, directory: str, pod: dict[str, Any], *, is_pid_1: bool) -> None:
        self._directory = directory
        self._pod = pod
        self._is_pid_1 = is_pid_1
        self._stop_file = os.path.join(directory, "stop.json")
        self._policy = str(pod["restartPolicy"])
        last = read_json(os.path.join(directory, "state.json"), default=None)
        self._inits = self._containers("initContainers", last, init=True)
        self._mains = self._containers("containers", last, init=False)
        self._all = self._inits + self._mains
        self._exec = ContainerExec(pod)
        self._reason = self._message = ""
        self._kill_at: float | None = None
        self._reserved_ports: dict[int, Any] = {}
        self._finished = False
        self._stopping = False
        self._shutdown = False
        self._changed = False
        self._retry_at: float | None = None
        """When to repeat a failed write or notification, in monotonic seconds."""
        self._disk_full_reported_at: float | None = None
        self._proc: str | None = "/proc"
        self._listener: socket.socket | None = None
        self._sessions: ExecSessions | None = None
        self._watched: dict[int, Callable[[], None]] = {}
        """Descriptors besides those of containers, each with what to call when it is readable."""
        self._poll = select.poll()
        self._signal_poll = select.poll()
        self._pacer = OutputPacer()

    def _containers(self, field: str, last: dict[str, Any] | None, *, init: bool) -> list[Container]:
        specs = self._pod[field]
        if last is None:
            first = init or not self._pod["initContainers"]
            statuses = [container_status.new_status(spec["name"], initialized=first) for spec in specs]
        else:
            statuses = [
                container_status.reset_for_restart(status, init=init, policy=self._policy) for status in last[field]
            ]
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
                remove_file(os.path.join(self._directory, SESSION_SOCKET))

    def _run(self) -> None:
        if self._is_pid_1:
            self._proc = sandbox.mount_proc(self._directory)
        wakeup = self._install_signal_handlers()
        self._check_stop_request()
        while True:
            self._flush_output()
            self._sync()
            if self._changed or self._retry_at is not None:
                self._publish_status()
            if self._finished and not self._changed:
                if self._shutdown and os.path.exists(self._stop_file):
                    os.unlink(self._stop_file)
                return
            self._let_output_gather()
            for descriptor, _ in self._poll.poll(self._timeout()):
                if descriptor == wakeup:
                    self._on_signals(os.read(wakeup, 4096))
                elif descriptor in self._watched:
                    self._watched[descriptor]()
                else:
                    self._on_output(descriptor)

    def fail(self, reason: str, message: str) -> None:
        """Ends the pod before a container has started."""
        self._reason, self._message = reason, message
        self._finish()
        self._publish_status()

    # From status to actions

    def _sync(self) -> None:
        now = time.monotonic()
        if self._stopping:
            if self._kill_at is not None and now >= self._kill_at:
                self._kill_at = None
                for container in self._all:
                    if container.process:
                        processes.kill(container.process, signal.SIGKILL)
            if not any(container.process for container in self._all):
                self._finish()
            return
        statuses = [[container.status for container in group] for group in (self._inits, self._mains)]
        if container_status.is_finished(self._policy, *statuses):
            self._finish()
            return
        current = next((container for container in self._inits if container.exit_code != 0), None)
        if current is not None:
            self._start_if_due(current, now)
            return
        if self._pod["listenPorts"] and self._first_start_is_due(now):
            conflicts = [conflict for port in self._pod["listenPorts"] if (conflict := self._reserve(port))]
            if conflicts:
                self.fail("PortTaken", "; ".join(conflicts))
                return
        for container in self._mains:
            self._start_if_due(container, now)

    def _reserve(self, port: int) -> str | None:
        """Reserves the port for the rest of the pod's life; returns why that is impossible."""
        if port not in self._reserved_ports:
            reservation = ports.reserve_port(port)
            if reservation is None:
                return f"port {port} is taken by another pod on this machine"
            self._reserved_ports[port] = reservation
        return ports.port_conflict(port)

    def _first_start_is_due(self, now: float) -> bool:
        """True if a container is due while none runs. A port that is in use then belongs to another process.

        Restarts are checked too: a program may have failed because its port was taken after the first check.
        """
        return not any(container.process for container in self._mains) and any(
            container.is_due(now) for container in self._mains
        )

    def _start_if_due(self, container: Container, now: float) -> None:
        if container.is_due(now):
            container.start_at = None
            self._start(container)

    def _timeout(self) -> float | None:
        """Milliseconds until the next timer."""
        timers = [self._retry_at, self._kill_at if self._stopping else self._next_start(), self._next_flush()]
        pending = [timer for timer in timers if timer is not None]
        return max(0.0, min(pending) - time.monotonic()) * 1000 + 1 if pending else None

    def _next_start(self) -> float | None:
        return min((container.start_at for container in self._all if container.start_at), default=None)

    def _next_flush(self) -> float | None:
        return min(
            (pipe.flush_at for container in self._all for pipe in container.pipes if pipe.flush_at is not None),
            default=None,
        )

    def _let_output_gather(self) -> None:
        """Waits a moment before the next read of a program that prints many lines; signals end it."""
        if pause := self._pacer.pause(time.monotonic()):
            self._signal_poll.poll(pause * 1000)

    def _flush_output(self) -> None:
        now = time.monotonic()
        for container in self._all:
            for pipe in container.pipes:
                if pipe.flush_at is not None and now >= pipe.flush_at:
                    pipe.flush(_now())

    def _finish(self) -> None:
        processes.kill_descendants(is_pid_1=self._is_pid_1)
        cgroups.remove(self._pod)
        for container in () if self._shutdown else self._mains:
            if self._reason:
                container.status = {
                    **container.status,
                    "state": container_status.waiting(self._reason, self._message),
                }
            elif self._stopping:
                container.status = container_status.terminated_with_pod(container.status, _now())
        self._finished = self._changed = True

    # Starting a container

    def _start(self, container: Container) -> None:
        status = container_status.next_run(container.status)
        try:
            self._create_files(container, int(status["restarts"]))
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            container.start_at = time.monotonic() + _DISK_FULL_SECONDS
            self._report_full_disk()
            return
        container.status = status
        if self._pod.get("cgroups") and container.spec.get("limits"):
            name = f"{container.name}-{status['restarts']}"
            container.cgroups = cgroups.container_directories(self._pod["cgroups"], name)
        streams = container_start.ProgramStreams(container, self._pacer)
        container.started, container.started_at = time.monotonic(), _now()
        # Blocked until the child has reset the handlers: it would swallow a signal for the program.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        container.process = os.fork()
        if container.process == 0:
            container_start.execute(container, streams, directory=self._directory, pod=self._pod)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        streams.close()
        for descriptor in (*(pipe.reader for pipe in container.pipes), container.start_pipe):
            assert descriptor is not None  # noqa: S101 - opened just now
            self._poll.register(descriptor, select.POLLIN)

    def _create_files(self, container: Container, run: int) -> None:
        """The log, and the directory for files outside of volumes. Can be repeated after an error."""
        logs = os.path.join(self._directory, "logs", container.name)
        os.makedirs(logs, exist_ok=True)
        remove_old_logs(logs, run)
        container.scratch = os.path.join(self._directory, "scratch", f"{container.name}-{run}")
        if self._pod["sandbox"] == sandbox.OVERLAY:
            if os.path.exists(container.scratch):  # of a start that was interrupted
                sandbox.unmount_memory(container.scratch)
                remove_tree(container.scratch)
            sandbox.make_scratch(container.scratch, memory_limit=self._pod.get("memoryLimit"))
            # A container that restarts without end must not fill the disk.
            remove_tree(os.path.join(self._directory, "scratch", f"{container.name}-{run - _KEPT_SCRATCHES}"))
        limit = int(self._pod.get("logLimit", MAX_LOG_BYTES))  # pods of an earlier version have none
        container.log = LogFile(os.path.join(logs, f"{run}.log"), limit=limit)

    # Signals, output and exits

    def _install_signal_handlers(self) -> int:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        self._poll.register(reader, select.POLLIN)
        self._signal_poll.register(reader, select.POLLIN)
        return reader

    def _on_signals(self, numbers: bytes) -> None:
        # Also when a container has ended: it may have lost a peer that is stopped with the cluster.
        self._check_stop_request(signalled=signal.SIGTERM in numbers)
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process == 0:
                return
            self._exec.reaped(process, status)
            for container in self._all:
                if container.process == process:
                    self._on_exit(container, status)

    def _check_stop_request(self, *, signalled: bool = False) -> None:
        """The agent writes the grace period to stop.json, then sends SIGTERM. Its default is the pod's own."""
        stop = read_json(self._stop_file, default={})
        if "shutdown" in stop and stop["shutdown"] != read_json(os.path.join(self._directory, "supervisor.json")):
            stop = {}  # meant an earlier supervisor of this pod, which was killed
        if not signalled and not stop:
            return
        self._shutdown = self._shutdown or "shutdown" in stop
        kill_at = time.monotonic() + float(stop.get("grace", self._pod["grace"]))
        self._kill_at = kill_at if self._kill_at is None else min(kill_at, self._kill_at)
        if self._stopping:
            return
        self._stopping = True
        for container in self._all:
            container.start_at = None
            if container.process:
                processes.kill(container.process, signal.SIGTERM)

    def _on_output(self, descriptor: int) -> None:
        for container in self._all:
            if descriptor == container.start_pipe:
                self._on_start_report(container)
                return
            for pipe in container.pipes:
                if pipe.reader == descriptor:
                    if not pipe.copy(_now(), time.monotonic()):
                        self._poll.unregister(descriptor)
                    if pipe.drops_output:
                        self._report_full_disk()
                    return

    def _on_start_report(self, container: Container) -> None:
        """The child writes its pid; exec closes the pipe. Anything after the pid is the error of a failed start."""
        if self._read_start_report(container):
            return
        self._close_start_pipe(container)
        if not container.start_report.partition(b"\n")[2]:
            self._listen_for_sessions()  # before the agent knows that the container runs
            state = container_status.running(container.started_at)
            container.status = {**container.status, "state": state, "process": container.host_process}
            self._changed = True

    def _read_start_report(self, container: Container) -> bool:
        """False at its end."""
        more, terminal = container_start.read_report(container, self._pacer)
        if terminal is not None:
            self._poll.register(terminal.reader, select.POLLIN)
        return more

    def _close_start_pipe(self, container: Container) -> None:
        if container.start_pipe is not None:
            self._poll.unregister(container.start_pipe)
            os.close(container.start_pipe)
            container.start_pipe = None
        host_process = container.start_report.partition(b"\n")[0]
        container.host_process = int(host_process) if host_process else 0

    def _on_exit(self, container: Container, status: int) -> None:
        finished_at = _now()  # before anything that takes time: it shows which of several pods failed first
        process, container.process = container.process, None
        assert process is not None  # noqa: S101 - the caller found it by this process
        if not any(other.process for other in self._all):
            processes.kill_descendants(is_pid_1=self._is_pid_1)
            self._exec.all_killed()
        else:
            self._exec.container_ended(container, self._proc)
            if self._proc:
                processes.kill_session(process, self._proc)
        self._collect_output(container)
        code, number = container_status.decode_wait_status(status)
        error = container.start_report.partition(b"\n")[2].decode(errors="replace")
        reason = "StartError" if error else "Error" if code else "Completed"
        if code and not self._stopping and self._ran_out_of_memory(container, number):
            reason = "OOMKilled"
        cgroups.remove_directories(container.cgroups)
        container.cgroups = []
        state = container_status.terminated(
            exit_code=code,
            signal=number,
            reason=reason,
            message=error,
            started_at=container.started_at,
            finished_at=finished_at,
        )
        if self._shutdown:
            container.status = container_status.ended_by_shutdown(
                container.status, code, started_at=container.started_at, finished_at=finished_at
            )
        else:
            container.status = container_status.with_finished_run(container.status, state)
        self._changed = True
        if not self._stopping and container_status.should_restart(self._policy, code, init=container.init):
            self._schedule_restart(container, state)

    def _ran_out_of_memory(self, container: Container, number: int) -> bool:
        """By its own limit, or together with the machine."""
        if cgroups.oom_kills(container.cgroups):
            return True
        return number == signal.SIGKILL and processes.was_oom_killed(container.host_process)

    def _schedule_restart(self, container: Container, last: container_status.ContainerState) -> None:
        ran = time.monotonic() - container.started
        container.backoff = container_status.next_backoff(container.backoff, ran=ran, backoff=self._pod["backoff"])
        container.start_at = time.monotonic() + container.backoff
        if container.backoff == 0:
            return
        pod = f"{self._pod['name']}_{self._pod['namespace']}"
        message = f"back-off {container.backoff:g}s restarting failed container={container.name} pod={pod}"
        state = container_status.waiting(container_status.CRASH_LOOP_BACK_OFF, message)
        container.status = {**container.status, "last": last, "state": state}

    def _collect_output(self, container: Container) -> None:
        while container.start_pipe is not None and self._read_start_report(container):
            pass
        self._close_start_pipe(container)
        for descriptor in (container.stdin, container.terminal):
            if descriptor is not None:
                os.close(descriptor)
        container.stdin = container.terminal = None
        for pipe in container.pipes:
            try:
                self._poll.unregister(pipe.reader)
            except KeyError:
                pass  # closed before the process ended
            pipe.close(_now())
        container.pipes = []
        if container.log is not None:
            container.log.close()
            container.log = None
        if container.scratch is not None and self._pod["sandbox"] == sandbox.OVERLAY:
            from trainwright.cluster.node.supervisor.private_files import keep_private_files  # not needed before

            keep_private_files(container.scratch)
            container.scratch = None

    # Sessions

    def _listen_for_sessions(self) -> None:
        if self._listener is None:
            self._listener = listen_for_sessions(self._directory)
            self._watch(self._listener.fileno(), self._on_connection)

    def _on_connection(self) -> None:
        if self._sessions is None:
            from trainwright.cluster.node.supervisor.exec_sessions import ExecSessions  # most pods have none

            self._sessions = ExecSessions(
                self._all, self._exec, pid_namespace=self._is_pid_1, watch=self._watch, unwatch=self._unwatch
            )
        assert self._listener is not None  # noqa: S101 - it has just become readable
        self._sessions.accept(self._listener)

    def _watch(self, descriptor: int, handler: Callable[[], None]) -> None:
        self._watched[descriptor] = handler
        self._poll.register(descriptor, select.POLLIN)

    def _unwatch(self, descriptor: int) -> None:
        del self._watched[descriptor]
        self._poll.unregister(descriptor)

    # Status

    def _publish_status(self) -> None:
        """Writes state.json and notifies the agent; tries again if the disk is full or the agent busy."""
        now = time.monotonic()
        if self._retry_at is not None and now < self._retry_at:
            return
        if self._changed:
            try:
                self._write_state()
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
                self._retry_at = now + _RETRY_SECONDS
                self._report_full_disk()
                return
        self._changed = False
        self._retry_at = None if self._notify_agent() else now + _RETRY_SECONDS

    def _report_full_disk(self) -> None:
        """Tells the agent, which records an event; nothing can be written here."""
        now = time.monotonic()
        last = self._disk_full_reported_at
        if (last is None or now >= last + _DISK_FULL_REPORT_SECONDS) and self._notify_agent(f" {DISK_FULL_NOTE}"):
            self._disk_full_reported_at = now

    def _notify_agent(self, note: str = "") -> bool:
        return notify_agent(os.path.dirname(os.path.dirname(self._directory)), f"{self._pod['uid']}{note}")

    def _write_state(self) -> None:
        state = {
            "sandbox": self._pod["sandbox"],
            "finished": self._finished and not self._shutdown,
            "reason": self._reason,
            "message": self._message,
            "initContainers": [container.status for container in self._inits],
            "containers": [container.status for container in self._mains],
        }
        write_json(os.path.join(self._directory, "state.json"), state)


def _now() -> str:
    return container_status.timestamp(time.time_ns())
