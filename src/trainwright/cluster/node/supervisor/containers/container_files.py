"""The files of one run of a container: its log, its termination message, and a directory for what it writes outside of
volumes.

Standard library only.
"""

from __future__ import annotations

import os
import time

from trainwright.cluster.linux.trees import remove_tree
from trainwright.cluster.node.supervisor.containers import container_status
from trainwright.cluster.node.supervisor.containers.cri_log import MAX_LOG_BYTES, LogFile, remove_old_logs
from trainwright.cluster.node.supervisor.sandbox import sandbox

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from trainwright.cluster.node.supervisor.containers.container import Container
    from trainwright.cluster.node.supervisor.pod_json import PodJson

_KEPT_SCRATCHES = 3
"""The last runs of a container whose private files are kept."""


def create_files(directory: str, pod: PodJson, container: Container, run: int) -> None:
    """Can be repeated after an error."""
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


def next_flush(containers: list[Container]) -> float | None:
    """When `flush_output` is due, in monotonic seconds."""
    pipes = [pipe for container in containers for pipe in container.pipes]
    return min((pipe.flush_at for pipe in pipes if pipe.flush_at is not None), default=None)


def flush_output(containers: list[Container]) -> None:
    """Writes lines that a program has not ended for a while."""
    now = time.monotonic()
    for container in containers:
        for pipe in container.pipes:
            if pipe.flush_at is not None and now >= pipe.flush_at:
                pipe.flush(container_status.timestamp(time.time_ns()))


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


def termination_message(container: Container, error: str, *, failed: bool) -> str:
    """`error` is why its program could not be executed, else empty."""
    settings = container.spec.get("terminationMessage")
    if settings is None:
        return error
    from trainwright.cluster.node.supervisor.containers.termination_message import read_message  # not needed before

    policy = settings["policy"]
    message = read_message(settings["file"], policy=policy, failed=failed and not error, log=container.log_path)
    return ": ".join(filter(None, (error, message)))
