"""Starts processes inside running containers: the commands of exec sessions, exec probes and lifecycle hooks.

Such a process has the file system, environment, working directory and pid namespace of its container. The supervisor
reaps it, and it ends with the container. Standard library only.
"""

from __future__ import annotations

import os
import signal

from trainwright.cluster.node.supervisor import processes
from trainwright.cluster.node.supervisor.containers.container_start import error_text, execute_program
from trainwright.cluster.node.supervisor.sandbox import sandbox

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwright.cluster.node.supervisor.containers.container import Container
    from trainwright.cluster.node.supervisor.pod_json import PodJson

EXIT_NOT_STARTED = 126
"""Exit status of a process whose program could not be executed."""


class ContainerExec:
    """The processes that were started inside the containers of one pod, besides the containers' own programs."""

    def __init__(self, pod: PodJson) -> None:
        self.on_listener: Callable[[int], None] | None = None
        """See `restrict_process`."""
        self._overlay = pod["sandbox"] == sandbox.OVERLAY
        self._running: dict[int, tuple[Container, Callable[[int], None]]] = {}
        self._commands: dict[int, Container] = {}
        """Those that may save their state before their container ends. Their pids are also their sessions."""
        self._ending: dict[int, Container] = {}
        """Those that have got SIGTERM."""

    def start(
        self,
        container: Container,
        argv: list[str],
        *,
        streams: tuple[int, int, int],
        on_exit: Callable[[int], None],
        on_start_error: Callable[[str], None],
        terminal: Callable[[int], None] | None = None,
        is_command: bool = False,
    ) -> int:
        """Returns the pid; `on_exit` gets the wait status. The container must be running.

        The streams stay open here. `on_start_error` is called in the child if the program cannot be executed.
        `terminal`: see `execute_program`. `is_command`: it can be ended by `terminate`.
        """
        if container.process is None:
            raise ProcessLookupError(f"container {container.name} is not running")
        # Opened here, where the pid cannot be reused before it is reaped.
        pidfd = os.pidfd_open(container.process) if self._overlay else None
        try:
            pid = processes.fork()
            if pid == 0:
                try:
                    execute_program(
                        container,
                        argv,
                        streams,
                        enter=lambda: None if pidfd is None else sandbox.join_container(pidfd),
                        on_listener=self.on_listener,
                        terminal=terminal,
                    )
                except (OSError, ValueError) as error:
                    on_start_error(error_text(error))
                finally:
                    os._exit(EXIT_NOT_STARTED)
        finally:
            if pidfd is not None:
                os.close(pidfd)
        self._running[pid] = (container, on_exit)
        if is_command:
            self._commands[pid] = container
        return pid

    def reaped(self, pid: int, status: int) -> None:
        """To be called for every child of the supervisor that has ended."""
        self._commands.pop(pid, None)
        if pid in self._running:
            _, on_exit = self._running.pop(pid)
            on_exit(status)

    def has_commands(self, container: Container) -> bool:
        return container in self._commands.values()

    def terminate(self, container: Container) -> None:
        """Sends SIGTERM to the commands of a container whose program does not handle it, such as those of mpirun in a
        worker. Under a kubelet such a program ignores SIGTERM, so that its commands have the whole grace period."""
        for pid, its_container in self._commands.items():
            if its_container is container:
                self._ending[pid] = container
                processes.kill_group(pid, signal.SIGTERM)

    def are_ending(self, container: Container, proc: str) -> bool:
        """Whether processes of its terminated commands are left; their first one may have ended before others."""
        sessions = {session for _, session in processes.list_processes(proc).values()}
        return any(its_container is container and pid in sessions for pid, its_container in self._ending.items())

    def container_ended(self, container: Container, proc: str | None) -> None:
        """Kills what was started inside the container; `proc` is the pod's /proc. The processes are reaped later."""
        for pid, (its_container, _) in self._running.items():
            if its_container is container:
                processes.kill(pid, signal.SIGKILL)
                if proc:
                    processes.kill_session(pid, proc)
        # The container may run again: a new process can have the pid of one of these commands.
        self._ending = {pid: other for pid, other in self._ending.items() if other is not container}

    def all_killed(self) -> None:
        """To be called when every process of the pod was killed and reaped."""
        running, self._running = self._running, {}
        self._commands, self._ending = {}, {}
        for _, on_exit in running.values():
            on_exit(signal.SIGKILL)
