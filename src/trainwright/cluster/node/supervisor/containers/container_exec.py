"""Starts processes inside running containers: the commands of exec sessions, exec probes and lifecycle hooks.

Such a process has the file system, environment, working directory and pid namespace of its container. The supervisor
reaps it, and it ends with the container. Standard library only.
"""

from __future__ import annotations

import os
import signal

from trainwright.cluster.linux import privileges
from trainwright.cluster.linux.privileges import die_with_parent
from trainwright.cluster.node.supervisor import processes
from trainwright.cluster.node.supervisor.sandbox import cgroups, sandbox

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
        stdin: int,
        stdout: int,
        stderr: int,
        on_exit: Callable[[int], None],
        on_start_error: Callable[[str], None] | None = None,
        terminal: Callable[[int], None] | None = None,
        is_command: bool = False,
    ) -> int:
        """Returns the pid; `on_exit` gets the wait status. The container must be running.

        The descriptors stay open here. `on_start_error` is called in the child if the program cannot be executed; by
        default the child writes the error to `stderr`. `terminal` gives the process a terminal instead of the
        descriptors: it is called in the child with the descriptor of the terminal's other end. `is_command`: it can be
        ended by `terminate`.
        """
        if container.process is None:
            raise ProcessLookupError(f"container {container.name} is not running")
        # Opened here, where the pid cannot be reused before it is reaped.
        pidfd = os.pidfd_open(container.process) if self._overlay else None
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
        try:
            pid = os.fork()
            if pid == 0:
                try:
                    self._execute(container, argv, pidfd, (stdin, stdout, stderr), terminal)
                except (OSError, ValueError) as error:  # ValueError: a zero byte in an argument
                    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
                    if on_start_error is not None:
                        on_start_error(text)
                    else:
                        os.write(stderr, f"{text}\n".encode())
                finally:
                    os._exit(EXIT_NOT_STARTED)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
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

    def _execute(
        self,
        container: Container,
        argv: list[str],
        pidfd: int | None,
        streams: tuple[int, int, int],
        terminal: Callable[[int], None] | None,
    ) -> None:
        """In the child."""
        os.setsid()
        die_with_parent(signal.SIGKILL)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        if terminal is not None:
            # Most pods have none; and the container may not see the files of this program.
            from trainwright.cluster.node.supervisor.containers import terminals
        cgroups.enter(container.cgroups, container.spec.get("limits") or {})
        if pidfd is not None:
            sandbox.join_container(pidfd)
        os.umask(0o022)
        processes.change_directory(container.spec["cwd"])
        privileges.restrict_process(container.spec.get("security") or {}, self.on_listener)
        die_with_parent(signal.SIGKILL)  # forgotten when the user changes
        environment = dict(container.spec["env"])
        if terminal is not None:
            terminals.enter_terminal(terminal)
            environment = {**terminals.ENVIRONMENT, **environment}
        else:
            for descriptor, target in _in_safe_order(streams):
                os.dup2(descriptor, target)
        processes.execute(argv, environment)


def _in_safe_order(streams: tuple[int, int, int]) -> list[tuple[int, int]]:
    """Pairs of descriptor and target, with copies of descriptors that would be overwritten before they are used."""
    return [(os.dup(descriptor) if descriptor < 3 else descriptor, target) for target, descriptor in enumerate(streams)]
