"""Starts the program of a container: the files of its run, its streams, and what the child does before it executes it.

Standard library only.
"""

from __future__ import annotations

import os
import signal

from trainwright.cluster.linux import privileges
from trainwright.cluster.linux.privileges import die_with_parent
from trainwright.cluster.linux.trees import remove_tree
from trainwright.cluster.node.supervisor import processes
from trainwright.cluster.node.supervisor.containers.cri_log import MAX_LOG_BYTES, LogFile, LogPipe, remove_old_logs
from trainwright.cluster.node.supervisor.sandbox import cgroups, sandbox

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwright.cluster.node.supervisor.containers.container import Container
    from trainwright.cluster.node.supervisor.containers.pacing import OutputPacer
    from trainwright.cluster.node.supervisor.pod_json import PodJson

_EXIT_START_FAILED = 128
_MAX_REPORT_BYTES = 4096
_KEPT_SCRATCHES = 3
"""The last runs of a container whose private files are kept."""


def create_files(directory: str, pod: PodJson, container: Container, run: int) -> None:
    """The log of a run, its termination message, and a directory for what it writes outside of volumes. Can be repeated
    after an error."""
    logs = os.path.join(directory, "logs", container.name)
    os.makedirs(logs, exist_ok=True)
    remove_old_logs(logs, run)
    container.scratch = os.path.join(directory, "scratch", f"{container.name}-{run}")
    if pod["sandbox"] == sandbox.OVERLAY:
        if os.path.exists(container.scratch):  # of a start that was interrupted
            sandbox.unmount_memory(container.scratch)
            remove_tree(container.scratch)
        sandbox.make_scratch(container.scratch, memory_limit=pod.get("memoryLimit"))
        # A container that restarts without end must not fill the disk.
        remove_tree(os.path.join(directory, "scratch", f"{container.name}-{run - _KEPT_SCRATCHES}"))
    if message := container.spec.get("terminationMessage"):
        with open(message["file"], "wb"):
            os.chmod(message["file"], 0o666)  # noqa: S103 - as the kubelet; the pod's directory above it is private
    limit = int(pod.get("logLimit", MAX_LOG_BYTES))  # pods of an earlier version have none
    container.log_path = os.path.join(logs, f"{run}.log")
    container.log = LogFile(container.log_path, limit=limit)


class ProgramStreams:
    """The ends of the pipes that the program gets, and the one on which the child reports."""

    def __init__(self, container: Container, pacer: OutputPacer) -> None:
        """Gives the container the other ends."""
        assert container.log is not None  # noqa: S101 - created for each run
        (out, self.stdout), (err, self.stderr) = os.pipe(), os.pipe()
        self.stdin: int | None = None
        if container.spec.get("tty"):
            from trainwright.cluster.node.supervisor.containers import terminals  # most pods have none

            container.start_pipe, self.report = terminals.start_channel()
        else:
            container.start_pipe, self.report = os.pipe()
            if container.spec.get("stdin"):
                self.stdin, container.stdin = os.pipe()
        container.start_report = b""
        container.attached = False
        container.pipes = [
            LogPipe(reader, container.log, stream, pacer, interactive=self.stdin is not None)
            for reader, stream in ((out, "stdout"), (err, "stderr"))
        ]

    def send_terminal(self, master: int) -> None:
        from trainwright.cluster.node.supervisor.containers import terminals  # imported before

        terminals.send_terminal(self.report, master)

    def close(self) -> None:
        for descriptor in (self.stdin, self.stdout, self.stderr, self.report):
            if descriptor is not None:
                os.close(descriptor)


def start(
    container: Container,
    streams: ProgramStreams,
    *,
    directory: str,
    pod: PodJson,
    on_listener: Callable[[int], None] | None,
) -> None:
    """Starts the container's program in a child, which reports its pid on the host and, if it fails, the error.
    `on_listener`: see `restrict_process`."""
    container.process = processes.fork()
    if container.process:
        streams.close()
        return
    try:
        # /proc is still the host's here, and so is this pid; the kernel's log uses it.
        os.write(streams.report, f"{os.readlink('/proc/self')}\n".encode())
        stdin = os.open(os.devnull, os.O_RDONLY) if streams.stdin is None else streams.stdin
        execute_program(
            container,
            container.spec["argv"],
            (stdin, streams.stdout, streams.stderr),
            enter=lambda: _enter_sandbox(container, directory, pod),
            on_listener=on_listener,
            terminal=streams.send_terminal if container.spec.get("tty") else None,
        )
    except (OSError, ValueError) as error:
        os.write(streams.report, error_text(error).encode())
    finally:
        os._exit(_EXIT_START_FAILED)


def execute_program(
    container: Container,
    argv: list[str],
    streams: tuple[int, int, int],
    *,
    enter: Callable[[], None],
    on_listener: Callable[[int], None] | None,
    terminal: Callable[[int], None] | None,
) -> None:
    """In a child: becomes a program in the container. Raises OSError, or ValueError for a zero byte in an argument or
    variable.

    `enter` gives this process the container's file system. `on_listener`: see `restrict_process`. `terminal` gives the
    program a terminal instead of the streams, and is called with the descriptor of its other end.
    """
    os.setsid()
    die_with_parent(signal.SIGKILL)
    processes.reset_signals()
    if terminal is not None:
        # Most pods have none; and the container may not see the files of this program.
        from trainwright.cluster.node.supervisor.containers import terminals
    os.umask(0o022)
    cgroups.enter(container.cgroups, container.spec.get("limits") or {})
    enter()
    processes.change_directory(container.spec["cwd"])
    privileges.restrict_process(container.spec.get("security") or {}, on_listener)
    die_with_parent(signal.SIGKILL)  # forgotten when the user changes
    environment = container.spec["env"]
    if terminal is not None:
        terminals.enter_terminal(terminal)
        environment = {**terminals.ENVIRONMENT, **environment}
    else:
        for descriptor, target in _in_safe_order(streams):
            os.dup2(descriptor, target)
    processes.execute(argv, environment)


def error_text(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _in_safe_order(streams: tuple[int, int, int]) -> list[tuple[int, int]]:
    """Pairs of descriptor and target, with copies of descriptors that would be overwritten before they are used."""
    return [(os.dup(descriptor) if descriptor < 3 else descriptor, target) for target, descriptor in enumerate(streams)]


def _enter_sandbox(container: Container, directory: str, pod: PodJson) -> None:
    if pod["sandbox"] == sandbox.OVERLAY:
        sandbox.enter_container(directory, pod, container.spec, str(container.scratch))


def read_report(container: Container, pacer: OutputPacer, on_terminal: Callable[[LogPipe], None]) -> bool:
    """Reads what the child reports; False at its end. `on_terminal` gets the pipe of a new terminal."""
    assert container.start_pipe is not None  # noqa: S101 - open until the end was read
    terminal = None
    if container.spec.get("tty"):
        from trainwright.cluster.node.supervisor.containers import terminals  # most pods have none

        data, terminal = terminals.receive_report(container.start_pipe, _MAX_REPORT_BYTES)
    else:
        data = os.read(container.start_pipe, _MAX_REPORT_BYTES)
    if terminal is not None:
        assert container.log is not None  # noqa: S101 - created for each run
        container.terminal = terminal
        container.pipes.append(LogPipe(os.dup(terminal), container.log, "stdout", pacer, interactive=True))
        on_terminal(container.pipes[-1])
    container.start_report += data
    return bool(data) or terminal is not None
