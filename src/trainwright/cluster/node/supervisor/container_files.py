"""The files of one run of a container: its log, its termination message, and a directory for what it writes outside of
volumes.

Standard library only.
"""

from __future__ import annotations

import os

from trainwright.cluster.node.supervisor import sandbox
from trainwright.cluster.node.supervisor.cri_log import MAX_LOG_BYTES, LogFile, remove_old_logs
from trainwright.cluster.node.supervisor.files import remove_tree

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from typing import Any

    from trainwright.cluster.node.supervisor.container import Container

_KEPT_SCRATCHES = 3
"""Of how many runs of a container the private files are kept."""


def create_files(directory: str, pod: dict[str, Any], container: Container, run: int) -> None:
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
