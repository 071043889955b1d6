"""Ends the pods of an embedded cluster whose process has been stopped: at once, as when the machine is switched off.

The pods' objects stay as they are, so that the next start treats them as a kubelet does after a reboot.
"""

import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from trainwright.cluster.identity import ProcessIdentity
from trainwright.cluster.node.pods.pod_directories import PodDirectory, pod_directories
from trainwright.cluster.node.supervisor.processes import descendants, kill, listed

_GONE_SECONDS = 5.0


def end_pods(node: Path) -> int:
    """Kills every pod that runs; how many there were."""
    ended = [identity for pod in pod_directories(node).values() if (identity := _end(pod))]
    deadline = time.monotonic() + _GONE_SECONDS
    while any(identity.alive for identity in ended) and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(ended)


def end_lost_pods(node: Path) -> int:
    """Kills the pods whose directories have been removed: a supervisor is known by what it was started for."""
    processes = listed("/proc")
    supervisors = {pid for pid in processes if _supervises(pid, node)}
    for pid in supervisors:
        _end_with_all_below(pid, partial(kill, pid, signal.SIGKILL))
    return sum(processes[pid][0] not in supervisors for pid in supervisors)


def _supervises(pid: int, node: Path) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    pods = f"{node}/pods/".encode()
    return any(word.endswith(b"/supervise.py") for word in words) and any(word.startswith(pods) for word in words)


def _end(pod: PodDirectory) -> ProcessIdentity | None:
    supervision = pod.find_supervision()
    if supervision is None:
        return None
    _end_with_all_below(supervision.identity.pid, partial(supervision.signal, signal.SIGKILL))
    supervision.reap()
    return supervision.identity


def _end_with_all_below(supervisor: int, end: Callable[[], None]) -> None:
    """The supervisor goes first: it would start again what ends before it."""
    before = listed("/proc")
    below = descendants(before, supervisor)
    end()
    for pid in below:
        kill(pid, signal.SIGKILL)
    # Whoever was born meanwhile is in a session of the pod.
    sessions = {before[pid][1] for pid in below}
    for pid, (_, session) in listed("/proc").items():
        if session in sessions:
            kill(pid, signal.SIGKILL)
