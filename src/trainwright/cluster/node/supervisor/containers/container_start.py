"""Starts the program of a container: its streams, and what the child does before it executes the program.

Standard library only.
"""

from __future__ import annotations

import os
import signal

from trainwright.cluster.linux import privileges
from trainwright.cluster.linux.privileges import die_with_parent
from trainwright.cluster.node.supervisor import processes
from trainwright.cluster.node.supervisor.containers.cri_log import LogPipe
from trainwright.cluster.node.supervisor.sandbox import cgroups, sandbox

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwright.cluster.node.supervisor.containers.container import Container
    from trainwright.cluster.node.supervisor.containers.pacing import OutputPacer
    from trainwright.cluster.node.supervisor.pod_json import PodJson

_EXIT_START_FAILED = 128
_MAX_REPORT_BYTES = 4096


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

    def close(self) -> None:
        for descriptor in (self.stdin, self.stdout, self.stderr, self.report):
            if descriptor is not None:
                os.close(descriptor)


def execute(
    container: Container,
    streams: ProgramStreams,
    *,
    directory: str,
    pod: PodJson,
    on_listener: Callable[[int], None] | None,
) -> None:
    """In the child: executes the container's program. Reports its pid on the host and, if it fails, the error.
    `on_listener`: see `restrict_process`."""
    try:
        os.setsid()
        die_with_parent(signal.SIGKILL)
        # /proc is still the host's here, and so is this pid; the kernel's log uses it.
        os.write(streams.report, f"{os.readlink('/proc/self')}\n".encode())
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        stdin = os.open(os.devnull, os.O_RDONLY) if streams.stdin is None else streams.stdin
        for source, target in ((stdin, 0), (streams.stdout, 1), (streams.stderr, 2)):
            os.dup2(source, target)
        os.umask(0o022)
        cgroups.enter(container.cgroups, container.spec.get("limits") or {})
        _enter_sandbox(container, directory, pod, on_listener)
        environment = container.spec["env"]
        if container.spec.get("tty"):
            from trainwright.cluster.node.supervisor.containers import terminals  # most pods have none

            terminals.enter_terminal(lambda master: terminals.send_terminal(streams.report, master))
            environment = {**terminals.ENVIRONMENT, **environment}
        processes.execute(container.spec["argv"], environment)
    except OSError as error:
        os.write(streams.report, (error.strerror or str(error)).encode())
    except ValueError as error:  # a zero byte in an argument or variable
        os.write(streams.report, str(error).encode())
    finally:
        os._exit(_EXIT_START_FAILED)


def _enter_sandbox(
    container: Container, directory: str, pod: PodJson, on_listener: Callable[[int], None] | None
) -> None:
    cwd = container.spec["cwd"]
    security = container.spec.get("security") or {}  # pods of an earlier version have none
    if pod["sandbox"] == sandbox.OVERLAY:
        root = container.spec.get("root")
        sandbox.enter_container(
            directory,
            scratch=str(container.scratch),
            mounts=container.spec["mounts"],
            hidden=pod["hidden"],
            private=pod.get("privateHomes"),
            working_directory=cwd,
            user_namespace=pod["ownUsers"],
            devices=container.spec.get("devices"),
            privileged=bool(security.get("privileged")),
            read_only_root=bool(security.get("readOnlyRoot")),
            layers=root["layers"] if root else None,
            host_files=root["hostFiles"] if root else True,
            image_volumes=root["volumes"] if root else None,
        )
    processes.change_directory(cwd)
    privileges.restrict_process(security, on_listener)
    die_with_parent(signal.SIGKILL)  # forgotten when the user changes


def read_report(container: Container, pacer: OutputPacer) -> tuple[bool, LogPipe | None]:
    """Reads what the child reports; False at its end. The pipe is that of a new terminal."""
    assert container.start_pipe is not None  # noqa: S101 - open until the end was read
    pipe = None
    if container.spec.get("tty"):
        from trainwright.cluster.node.supervisor.containers import terminals  # most pods have none

        data, terminal = terminals.receive_report(container.start_pipe, _MAX_REPORT_BYTES)
        if terminal is not None:
            assert container.log is not None  # noqa: S101 - created for each run
            container.terminal = terminal
            pipe = LogPipe(os.dup(terminal), container.log, "stdout", pacer, interactive=True)
            container.pipes.append(pipe)
    else:
        data = os.read(container.start_pipe, _MAX_REPORT_BYTES)
    container.start_report += data
    return bool(data) or pipe is not None, pipe
