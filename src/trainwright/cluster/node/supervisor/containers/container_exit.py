"""The end of a run of a container: its state, its termination message, and what is kept of its files.

The message is what the program wrote to its terminationMessagePath, else the end of its log. Standard library only.
"""

from __future__ import annotations

import os
import signal
import time

from trainwright.cluster.node.supervisor import processes
from trainwright.cluster.node.supervisor.containers import container_status
from trainwright.cluster.node.supervisor.sandbox import cgroups, sandbox

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from trainwright.cluster.node.supervisor.containers.container import Container
    from trainwright.cluster.node.supervisor.pod_json import ContainerState, PodJson

MAX_BYTES = 4096
"""The longest message in the file."""
MAX_LOG_BYTES = 2048
MAX_LOG_LINES = 80

FALLBACK_TO_LOGS = "FallbackToLogsOnError"

_TAIL = 256 * 1024


def terminated_state(
    container: Container, wait_status: int, finished_at: str, *, stopping: bool
) -> tuple[int, ContainerState]:
    """The exit code and the state of a container whose process has ended. `stopping`: the pod is."""
    code, number = container_status.decode_wait_status(wait_status)
    error = container.start_report.partition(b"\n")[2].decode(errors="replace")
    reason = "StartError" if error else "Error" if code else "Completed"
    if code and not stopping and _ran_out_of_memory(container, number):
        reason = "OOMKilled"
    message = error
    if settings := container.spec.get("terminationMessage"):
        failed = code != 0 and not error
        found = read_message(settings["file"], policy=settings["policy"], failed=failed, log=container.log_path)
        message = ": ".join(filter(None, (error, found)))
    return code, container_status.terminated(
        exit_code=code,
        signal=number,
        reason=reason,
        message=message,
        started_at=container.started_at,
        finished_at=finished_at,
    )


def _ran_out_of_memory(container: Container, number: int) -> bool:
    """By its own limit, or together with the machine."""
    if cgroups.oom_kills(container.cgroups):
        return True
    return number == signal.SIGKILL and processes.was_oom_killed(container.host_process)


def close_files(pod: PodJson, container: Container) -> None:
    """When the container has ended: copies the rest of its output and keeps its private files."""
    for descriptor in (container.stdin, container.terminal):
        if descriptor is not None:
            os.close(descriptor)
    container.stdin = container.terminal = None
    for pipe in container.pipes:
        pipe.close(container_status.timestamp(time.time_ns()))
    container.pipes = []
    if container.log is not None:
        container.log.close()
        container.log = None
    if container.scratch is not None and pod["sandbox"] == sandbox.OVERLAY:
        from trainwright.cluster.node.supervisor.sandbox.private_layers import keep_private_files  # not needed before

        keep_private_files(container.scratch)
        container.scratch = None


def read_message(path: str | None, *, policy: str, failed: bool, log: str) -> str:
    """`path` is the file on the host, `log` the current file of the container's log."""
    message = _tail(path, MAX_BYTES) if path else b""
    if not message and failed and policy == FALLBACK_TO_LOGS:
        message = end_of_log(_tail(log, _TAIL))
    return message.decode(errors="replace")


def end_of_log(records: bytes) -> bytes:
    """The last lines of a log in CRI format, which may begin within a record."""
    lines: list[bytes] = [b""]
    for record in records.split(b"\n"):
        fields = record.split(b" ", 3)
        if len(fields) == 4 and fields[2] in {b"F", b"P"}:
            lines[-1] += fields[3]
            if fields[2] == b"F":
                lines[-1] += b"\n"
                lines.append(b"")
    kept = lines[:-1] if not lines[-1] else lines
    return b"".join(kept[-MAX_LOG_LINES:])[-MAX_LOG_BYTES:]


def _tail(path: str, size: int) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size)
    except OSError:
        return b""
