"""Kills the pods of a node whose agent has been stopped: at once, as when the machine is switched off.

The Pod objects stay as they are: the next agent treats them as the kubelet does after a reboot.
"""

import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from trainwright.cluster.node.pods.pod_directory import PodDirectory, pod_directories
from trainwright.cluster.node.supervisor.processes import descendants, kill, list_processes
from trainwright.cluster.process_identity import ProcessIdentity

_EXIT_SECONDS = 5.0


def kill_pods(node: Path) -> int:
    """Kills every running pod; returns how many there were."""
    killed = [identity for pod in pod_directories(node).values() if (identity := _kill(pod))]
    deadline = time.monotonic() + _EXIT_SECONDS
    while any(identity.alive for identity in killed) and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(killed)


def kill_orphaned_pods(node: Path) -> int:
    """Kills the pods whose directories have been removed. Their supervisors are found by their command lines."""
    processes = list_processes("/proc")
    supervisors = {pid for pid in processes if _is_supervisor(pid, node)}
    for pid in supervisors:
        _kill_tree(pid, partial(kill, pid, signal.SIGKILL))
    return sum(processes[pid][0] not in supervisors for pid in supervisors)


def _is_supervisor(pid: int, node: Path) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    pods = f"{node}/pods/".encode()
    return any(word.endswith(b"/supervise.py") for word in words) and any(word.startswith(pods) for word in words)


def _kill(pod: PodDirectory) -> ProcessIdentity | None:
    supervisor = pod.find_supervisor()
    if supervisor is None:
        return None
    _kill_tree(supervisor.identity.pid, partial(supervisor.signal, signal.SIGKILL))
    supervisor.reap()
    return supervisor.identity


def _kill_tree(supervisor: int, kill_supervisor: Callable[[], None]) -> None:
    """Kills the supervisor first: it would restart a container that ends before it."""
    before = list_processes("/proc")
    below = descendants(before, supervisor)
    kill_supervisor()
    for pid in below:
        kill(pid, signal.SIGKILL)
    # Processes that were forked meanwhile are in a session of the pod.
    sessions = {before[pid][1] for pid in below}
    for pid, (_, session) in list_processes("/proc").items():
        if session in sessions:
            kill(pid, signal.SIGKILL)
