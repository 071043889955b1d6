"""The init of one pod: starts its containers in their sandbox, passes on signals, reaps, restarts, records.

It is a process of its own in a session of its own, so pods outlive the agent; the two share the pod's directory:
`pod.json` (what to run, written by the agent), `stop.json` (end it, and how long that may take), `state.json` (how
things stand), `supervisor.json` (who supervises) and `logs/`. Standard library only, and little of it: there is one
such process per pod, and its start is part of every pod's start.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import sys
import time

from trainwright.cluster.node.supervisor import container_status, ports, processes, sandbox
from trainwright.cluster.node.supervisor.cri_log import LIMIT, LogFile, Pipe, remove_log
from trainwright.cluster.node.supervisor.files import NO_ROOM, own_identity, poke, read_json, remove_tree, write_json

TYPE_CHECKING = False  # typing itself would cost every pod four milliseconds
if TYPE_CHECKING:
    from typing import Any

ALREADY_SUPERVISED = 75
"""Exit status of a supervisor that found another one on the same pod."""

_START_FAILED = 128
_HANDLED = {signal.SIGTERM, signal.SIGCHLD}
_SECONDS_TO_TELL_AGAIN = 0.1


def main(arguments: list[str]) -> None:
    if arguments[0] == "--probe":
        from trainwright.cluster.node.supervisor import sandbox_detection  # late: pods have no use for it

        sys.stdout.write(json.dumps(sandbox_detection.try_overlay(arguments[1])))
        return
    directory = os.path.abspath(arguments[0])
    pod = read_json(os.path.join(directory, "pod.json"))
    lock = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held until this process and the pod's first have ended
    except BlockingIOError:
        sys.exit(ALREADY_SUPERVISED)
    write_json(os.path.join(directory, "supervisor.json"), own_identity(), durable=False)  # ends with the boot anyway
    signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
    if pod["sandbox"] == sandbox.PLAIN:
        sandbox.adopt_orphans()
        Supervisor(directory, pod, process_one=False).run()
        return
    try:
        sandbox.enter_pod(
            directory, hostname=pod["hostname"], own_users=pod["ownUsers"], memory_volumes=pod["memoryVolumes"]
        )
    except OSError as error:
        Supervisor(directory, pod, process_one=False).give_up("SandboxFailed", error.strerror or str(error))
        return
    _watch_over_process_one(directory, pod)


def _watch_over_process_one(directory: str, pod: dict[str, Any]) -> None:
    """Stays outside the pod's process namespace, where the agent can signal it; if it dies, the pod dies."""
    child = os.fork()
    if child == 0:
        sandbox.die_with_parent(signal.SIGKILL)
        Supervisor(directory, pod, process_one=True).run()
        os._exit(0)
    while True:
        if signal.sigwait(_HANDLED) == signal.SIGTERM:
            processes.kill(child, signal.SIGTERM)
        elif os.waitpid(child, os.WNOHANG)[0]:
            return


class Container:
    """One container: what to run, how it stands, and its process while it has one."""

    def __init__(self, spec: dict[str, Any], record: container_status.Record, *, init: bool) -> None:
        self.spec = spec
        self.record = record
        self.init = init
        self.process: int | None = None
        self.host_process = 0
        self.report: int | None = None
        self.report_text = b""
        self.pipes: list[Pipe] = []
        self.log: LogFile | None = None
        self.scratch: str | None = None
        self.started = 0.0
        self.started_at = ""
        self.delay: float | None = None
        self.due: float | None = 0.0
        """When to start, in monotonic seconds; None: not by time."""

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def exit_code(self) -> int | None:
        return container_status.exit_code_of(self.record)


class Supervisor:
    def __init__(self, directory: str, pod: dict[str, Any], *, process_one: bool) -> None:
        self._directory = directory
        self._pod = pod
        self._process_one = process_one
        self._policy = str(pod["restartPolicy"])
        before = read_json(os.path.join(directory, "state.json"), default=None)
        self._inits = self._containers("initContainers", before, init=True)
        self._mains = self._containers("containers", before, init=False)
        self._all = self._inits + self._mains
        self._reason = self._message = ""
        self._kill_at: float | None = None
        self._finished = False
        self._stopping = False
        self._changed = False
        self._tell_at: float | None = None
        """When to write or tell again what could not be, in monotonic seconds."""
        self._proc: str | None = "/proc"
        self._poll = select.poll()

    def _containers(self, field: str, before: dict[str, Any] | None, *, init: bool) -> list[Container]:
        specs = self._pod[field]
        if before is None:
            first = init or not self._pod["initContainers"]
            records = [container_status.new_record(spec["name"], initialized=first) for spec in specs]
        else:
            records = [container_status.resumed(record, init=init, policy=self._policy) for record in before[field]]
        return [Container(spec, record, init=init) for spec, record in zip(specs, records, strict=True)]

    def run(self) -> None:
        """Until nothing of the pod is left to run. Whatever goes wrong here, no process is left without supervision."""
        try:
            self._run()
        except BaseException:
            processes.end_all_below(process_one=self._process_one)
            raise

    def _run(self) -> None:
        if self._process_one:
            self._proc = sandbox.own_processes(self._directory)
        wakeup = self._listen_to_signals()
        self._look_for_stop()
        while True:
            self._advance()
            if self._changed or self._tell_at is not None:
                self._record()
            if self._finished and not self._changed:
                return
            for descriptor, _ in self._poll.poll(self._timeout()):
                if descriptor == wakeup:
                    self._on_signals(os.read(wakeup, 4096))
                else:
                    self._on_output(descriptor)

    def give_up(self, reason: str, message: str) -> None:
        """Ends the pod before anything of it ran."""
        self._reason, self._message = reason, message
        self._end()
        self._record()

    # What should happen next, given how things stand

    def _advance(self) -> None:
        now = time.monotonic()
        if self._stopping:
            if self._kill_at is not None and now >= self._kill_at:
                self._kill_at = None
                for container in self._all:
                    if container.process:
                        processes.kill(container.process, signal.SIGKILL)
            if not any(container.process for container in self._all):
                self._end()
            return
        records = [[container.record for container in group] for group in (self._inits, self._mains)]
        if container_status.settled(self._policy, *records):
            self._end()
            return
        current = next((container for container in self._inits if container.exit_code != 0), None)
        if current is not None:
            self._start_if_due(current, now)
            return
        if self._pod["listenPorts"] and self._about_to_start(now):
            taken = [why for port in self._pod["listenPorts"] if (why := ports.why_taken(port))]
            if taken:
                self.give_up("PortTaken", "; ".join(taken))
                return
        for container in self._mains:
            self._start_if_due(container, now)

    def _about_to_start(self, now: float) -> bool:
        """Whether a program is due while none runs: whoever has the pod's ports then is somebody else. A restart counts
        as well, because a program may have died of a port that was taken after the first look."""
        return not any(container.process for container in self._mains) and any(
            _is_due(container, now) for container in self._mains
        )

    def _start_if_due(self, container: Container, now: float) -> None:
        if _is_due(container, now):
            container.due = None
            self._start(container)

    def _timeout(self) -> float | None:
        """Milliseconds until time alone changes something."""
        moments = [self._tell_at, self._kill_at if self._stopping else self._next_due()]
        known = [moment for moment in moments if moment is not None]
        return max(0.0, min(known) - time.monotonic()) * 1000 + 1 if known else None

    def _next_due(self) -> float | None:
        waiting = [container.due for container in self._all if container.due]
        return min(waiting, default=None)

    def _end(self) -> None:
        processes.end_all_below(process_one=self._process_one)
        for container in self._mains:
            if self._reason:
                container.record = {
                    **container.record,
                    "state": container_status.waiting(self._reason, self._message),
                }
            elif self._stopping:
                container.record = container_status.closed(container.record, _now())
        self._finished = self._changed = True

    # Starting a container

    def _start(self, container: Container) -> None:
        if container.exit_code is not None:
            container.record = {**container.record, "last": container.record["state"]}
        if container.record["last"]:
            container.record = {**container.record, "restarts": container.record["restarts"] + 1}
        restart = int(container.record["restarts"])
        logs = os.path.join(self._directory, "logs", container.name)
        os.makedirs(logs, exist_ok=True)
        limit = int(self._pod.get("logLimit", LIMIT))  # a test says less, the agent nothing
        container.log = LogFile(os.path.join(logs, f"{restart}.log"), limit=limit)
        remove_log(os.path.join(logs, f"{restart - 2}.log"))  # as the kubelet: this run's and the previous one's
        container.scratch = os.path.join(self._directory, "scratch", f"{container.name}-{restart}")
        if self._pod["sandbox"] == sandbox.OVERLAY:
            os.makedirs(container.scratch)
        (out, out_end), (err, err_end), (report, report_end) = os.pipe(), os.pipe(), os.pipe()
        container.started, container.started_at = time.monotonic(), _now()
        container.report_text = b""
        # Until the child has no handlers of ours any more: it would take a signal that is meant for the program.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        container.process = os.fork()
        if container.process == 0:
            self._become(container, out_end, err_end, report_end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        for descriptor in (out_end, err_end, report_end):
            os.close(descriptor)
        container.pipes = [Pipe(out, container.log, "stdout"), Pipe(err, container.log, "stderr")]
        container.report = report
        for descriptor in (out, err, report):
            self._poll.register(descriptor, select.POLLIN)

    def _become(self, container: Container, out: int, err: int, report: int) -> None:
        """In the child: turns it into the container's program. What goes wrong is reported, in one line."""
        try:
            os.setsid()
            sandbox.die_with_parent(signal.SIGKILL)
            # /proc is still the host's here, and so is the number; the log of the kernel speaks of that one.
            os.write(report, f"{os.readlink('/proc/self')}\n".encode())
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, set())
            nothing = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((nothing, 0), (out, 1), (err, 2)):
                os.dup2(source, target)
            os.umask(0o022)
            self._enter(container)
            _execute(container.spec["argv"], container.spec["env"])
        except OSError as error:
            os.write(report, (error.strerror or str(error)).encode())
        except ValueError as error:  # a zero byte in an argument or variable
            os.write(report, str(error).encode())
        finally:
            os._exit(_START_FAILED)

    def _enter(self, container: Container) -> None:
        cwd = container.spec["cwd"]
        if self._pod["sandbox"] == sandbox.OVERLAY:
            sandbox.enter_container(
                self._directory,
                scratch=str(container.scratch),
                mounts=container.spec["mounts"],
                working_directory=cwd,
                own_users=self._pod["ownUsers"],
            )
        try:
            os.chdir(cwd)
        except OSError as error:
            raise OSError(error.errno, f"working directory {cwd}: {_lower(error)}") from error

    # What happened

    def _listen_to_signals(self) -> int:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in _HANDLED:
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        self._poll.register(reader, select.POLLIN)
        return reader

    def _on_signals(self, numbers: bytes) -> None:
        if signal.SIGTERM in numbers:
            self._look_for_stop(asked=True)
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process == 0:
                return
            for container in self._all:
                if container.process == process:
                    self._on_exit(container, status)

    def _look_for_stop(self, *, asked: bool = False) -> None:
        """The agent writes how long the end may take, then signals; without the file the pod's own time counts."""
        stop = read_json(os.path.join(self._directory, "stop.json"), default={"grace": self._pod["grace"]})
        if not asked and not os.path.exists(os.path.join(self._directory, "stop.json")):
            return
        kill_at = time.monotonic() + float(stop["grace"])
        self._kill_at = kill_at if self._kill_at is None else min(kill_at, self._kill_at)
        if self._stopping:
            return
        self._stopping = True
        for container in self._all:
            container.due = None
            if container.process:
                processes.kill(container.process, signal.SIGTERM)

    def _on_output(self, descriptor: int) -> None:
        for container in self._all:
            if descriptor == container.report:
                self._on_report(container)
                return
            for pipe in container.pipes:
                if pipe.reader == descriptor:
                    if not pipe.pump(_now()):
                        self._poll.unregister(descriptor)
                    return

    def _on_report(self, container: Container) -> None:
        """The child says who it is, then closes by running its program; anything more is why it could not."""
        assert container.report is not None  # noqa: S101 - the caller found it by this descriptor
        data = os.read(container.report, 4096)
        container.report_text += data
        if data:
            return
        self._close_report(container)
        if not container.report_text.partition(b"\n")[2]:
            state = container_status.running(container.started_at)
            container.record = {**container.record, "state": state, "process": container.host_process}
            self._changed = True

    def _close_report(self, container: Container) -> None:
        if container.report is not None:
            self._poll.unregister(container.report)
            os.close(container.report)
            container.report = None
        host_process = container.report_text.partition(b"\n")[0]
        container.host_process = int(host_process) if host_process else 0

    def _on_exit(self, container: Container, status: int) -> None:
        process, container.process = container.process, None
        assert process is not None  # noqa: S101 - the caller found it by this process
        if not any(other.process for other in self._all):
            processes.end_all_below(process_one=self._process_one)
        elif self._proc:
            processes.end_session(process, self._proc)
        self._collect_output(container)
        code, number = container_status.exit_of(status)
        trouble = container.report_text.partition(b"\n")[2].decode(errors="replace")
        reason = "StartError" if trouble else "Error" if code else "Completed"
        if number == signal.SIGKILL and not self._stopping and processes.killed_for_memory(container.host_process):
            reason = "OOMKilled"
        ended = container_status.terminated(
            exit_code=code,
            signal=number,
            reason=reason,
            message=trouble,
            started_at=container.started_at,
            finished_at=_now(),
        )
        container.record = {**container.record, "state": ended}
        self._changed = True
        if not self._stopping and container_status.restarts(self._policy, code, init=container.init):
            self._schedule_restart(container, ended)

    def _schedule_restart(self, container: Container, ended: container_status.Record) -> None:
        ran = time.monotonic() - container.started
        container.delay = container_status.next_delay(container.delay, ran=ran, backoff=self._pod["backoff"])
        container.due = time.monotonic() + container.delay
        if container.delay == 0:
            return
        pod = f"{self._pod['name']}_{self._pod['namespace']}"
        message = f"back-off {container.delay:g}s restarting failed container={container.name} pod={pod}"
        state = container_status.waiting(container_status.CRASH_LOOP, message)
        container.record = {**container.record, "last": ended, "state": state}

    def _collect_output(self, container: Container) -> None:
        if container.report is not None:
            container.report_text += os.read(container.report, 4096)
        self._close_report(container)
        for pipe in container.pipes:
            try:
                self._poll.unregister(pipe.reader)
            except KeyError:
                pass  # it had ended before the process did
            pipe.close(_now())
        container.pipes = []
        if container.log is not None:
            container.log.close()
            container.log = None
        if container.scratch is not None:
            remove_tree(container.scratch)

    # Telling it

    def _record(self) -> None:
        """Nothing of it gets lost: what a full disk or a busy agent does not take is tried again."""
        now = time.monotonic()
        if self._tell_at is not None and now < self._tell_at:
            return
        if self._changed:
            try:
                self._write_state()
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                self._tell_at = now + _SECONDS_TO_TELL_AGAIN
                return
        self._changed = False
        told = poke(os.path.dirname(os.path.dirname(self._directory)), str(self._pod["uid"]))
        self._tell_at = None if told else now + _SECONDS_TO_TELL_AGAIN

    def _write_state(self) -> None:
        state = {
            "sandbox": self._pod["sandbox"],
            "finished": self._finished,
            "reason": self._reason,
            "message": self._message,
            "initContainers": [container.record for container in self._inits],
            "containers": [container.record for container in self._mains],
        }
        write_json(os.path.join(self._directory, "state.json"), state)


def _execute(argv: list[str], env: dict[str, str]) -> None:
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606 - no shell is the point
    except FileNotFoundError as error:
        found = "no such file or directory, or its interpreter is missing"
        missing = found if "/" in argv[0] else "executable file not found in $PATH"
        raise OSError(error.errno, f'exec: "{argv[0]}": {missing}') from error
    except OSError as error:
        raise OSError(error.errno, f'exec: "{argv[0]}": {_lower(error)}') from error


def _is_due(container: Container, now: float) -> bool:
    return container.process is None and container.due is not None and now >= container.due


def _now() -> str:
    return container_status.timestamp(time.time_ns())


def _lower(error: OSError) -> str:
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]
