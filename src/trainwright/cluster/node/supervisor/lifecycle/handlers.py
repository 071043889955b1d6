"""Runs the handlers of probes and lifecycle hooks, each in a short-lived process with a deadline.

A handler is `{"exec": argv}`, `{"http": {...}}`, `{"tcp": {...}}`, `{"grpc": {...}}`, `{"sleep": seconds}` or, if it
cannot be run, `{"error": reason}`. Standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import time

from trainwright.cluster.node.supervisor import processes
from trainwright.cluster.node.supervisor.containers import container_status
from trainwright.cluster.node.supervisor.lifecycle import network_handlers
from trainwright.cluster.node.supervisor.lifecycle.probe_state import FAILURE, SUCCESS, UNKNOWN

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwright.cluster.node.supervisor.containers.container import Container
    from trainwright.cluster.node.supervisor.containers.container_exec import ContainerExec

    OnDone = Callable[[str, str], None]
    """Called once with the outcome and its text."""
    from trainwright.cluster.node.supervisor.pod_json import HandlerJson
    from trainwright.cluster.node.supervisor.poller import Poller

WARNING = "warning"
"""The outcome of a check that succeeded with something to report."""

_MAX_OUTPUT = 10 * 1024


class _Run:
    def __init__(self, container: Container, deadline: float | None, on_done: OnDone, timeout: tuple[str, str]) -> None:
        self.container = container
        self.deadline = deadline
        self.on_done = on_done
        self.timeout = timeout
        """Outcome and text if the deadline passes."""
        self.pid: int | None = None
        self.output: int | None = None
        self.errors: int | None = None
        self.text = b""


class Handlers:
    """The handlers that run in one pod. `proc` is the pod's /proc, None if it cannot be mounted."""

    def __init__(self, poller: Poller, execs: ContainerExec, proc: str | None) -> None:
        self._poller = poller
        self._execs = execs
        self._proc = proc
        self._runs: list[_Run] = []
        self._children: dict[int, _Run] = {}
        """The processes of handlers that are not executed in a container."""

    def start(self, container: Container, handler: HandlerJson, seconds: float | None, on_done: OnDone) -> None:
        """`on_done` is called later, never from here, and not at all if the container ends before."""
        now = time.monotonic()
        deadline = None if seconds is None else now + seconds
        if "sleep" in handler:
            ends = now + float(handler["sleep"])
            slept = (SUCCESS, "") if deadline is None or ends <= deadline else (FAILURE, "")
            self._runs.append(_Run(container, ends if slept[0] == SUCCESS else deadline, on_done, slept))
            return
        if "error" in handler:
            self._runs.append(_Run(container, now, on_done, (UNKNOWN, str(handler["error"]))))
            return
        run = _Run(container, deadline, on_done, (FAILURE, _timeout_text(handler, seconds)))
        run.output, output = os.pipe()
        if "exec" in handler:
            run.errors, errors = os.pipe()
            devnull = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            try:
                run.pid = self._execs.start(
                    container,
                    handler["exec"],
                    streams=(devnull, output, output),
                    on_exit=lambda status: self._on_exec_exit(run, status),
                    on_start_error=lambda text: _write(errors, text),
                )
            finally:
                os.close(devnull)
                os.close(errors)
        else:
            run.pid = fork_check(lambda: network_handlers.check(handler, seconds), output)
            self._children[run.pid] = run
        os.close(output)
        os.set_blocking(run.output, False)
        self._poller.watch(run.output, lambda: self._read(run))
        self._runs.append(run)

    def reaped(self, pid: int, status: int) -> None:
        """To be called for every child of the supervisor that has ended."""
        if (run := self._children.pop(pid, None)) is not None:
            code, _ = container_status.decode_wait_status(status)
            self._finish(run, network_handlers.OUTCOMES.get(code, UNKNOWN))

    def container_ended(self, container: Container) -> None:
        """Forgets the handlers of the container. Its processes are killed with it."""
        for run in [run for run in self._runs if run.container is container]:
            self._kill(run)
            self._forget(run)

    def expire(self, now: float) -> None:
        for run in [run for run in self._runs if run.deadline is not None and now >= run.deadline]:
            self._kill(run)
            self._forget(run)
            run.on_done(*run.timeout)

    @property
    def next_at(self) -> float | None:
        return min((run.deadline for run in self._runs if run.deadline is not None), default=None)

    def _on_exec_exit(self, run: _Run, status: int) -> None:
        if run not in self._runs:
            return  # it has been killed
        assert run.errors is not None  # noqa: S101 - of every exec
        if error := os.read(run.errors, 4096):
            run.text = error
            self._finish(run, UNKNOWN)
            return
        code, _ = container_status.decode_wait_status(status)
        self._finish(run, FAILURE if code else SUCCESS)

    def _finish(self, run: _Run, outcome: str) -> None:
        if run not in self._runs:
            return
        if run.output is not None and outcome != UNKNOWN:
            self._read(run)
        self._forget(run)
        run.on_done(outcome, run.text.decode(errors="replace"))

    def _read(self, run: _Run) -> None:
        assert run.output is not None  # noqa: S101 - the callers found it
        try:
            while data := os.read(run.output, 65536):
                run.text = (run.text + data)[:_MAX_OUTPUT]
        except BlockingIOError:
            return
        self._poller.unwatch(run.output)
        os.close(run.output)
        run.output = None

    def _kill(self, run: _Run) -> None:
        if run.pid is not None:
            processes.kill(run.pid, signal.SIGKILL)
            if self._proc:
                processes.kill_session(run.pid, self._proc)

    def _forget(self, run: _Run) -> None:
        self._runs.remove(run)
        if run.pid is not None:
            self._children.pop(run.pid, None)
        if run.output is not None:
            self._poller.unwatch(run.output)
        for descriptor in (run.output, run.errors):
            if descriptor is not None:
                os.close(descriptor)
        run.output = run.errors = None


def fork_check(check: Callable[[], tuple[int, str]], output: int) -> int:
    """A child that runs the check and writes its text; its exit code is the result."""
    pid = processes.fork()
    if pid == 0:
        code = network_handlers.EXIT_UNKNOWN
        try:
            os.setsid()
            processes.reset_signals()
            code, text = check()
            os.write(output, text.encode(errors="replace")[:_MAX_OUTPUT])
        finally:
            os._exit(code)
    return pid


def _write(descriptor: int, text: str) -> None:
    os.write(descriptor, text.encode())


def _timeout_text(handler: HandlerJson, seconds: float | None) -> str:
    if "exec" in handler:
        command = json.dumps(" ".join(handler["exec"]), ensure_ascii=False)
        return f"command timed out: {command} timed out after {container_status.duration(seconds or 0)}"
    return network_handlers.timeout_text(handler)
