"""Ends the pods of an embedded cluster whose process has been stopped: at once, as when the machine is switched off.

The pods' objects stay as they are, so that the next start treats them as a kubelet does after a reboot.
"""

import signal
import time
from pathlib import Path

from trainwright.cluster.identity import ProcessIdentity
from trainwright.cluster.node.directories import PodDirectory, pod_directories
from trainwright.cluster.node.processes import descendants, kill, listed

_GONE_SECONDS = 5.0


def end_pods(node: Path) -> int:
    """Kills every pod that runs; how many there were."""
    ended = [identity for pod in pod_directories(node).values() if (identity := _end(pod))]
    deadline = time.monotonic() + _GONE_SECONDS
    while any(identity.alive for identity in ended) and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(ended)


def _end(pod: PodDirectory) -> ProcessIdentity | None:
    """The supervisor goes first: it would start again what ends before it."""
    supervision = pod.find_supervision()
    if supervision is None:
        return None
    before = listed("/proc")
    below = descendants(before, supervision.identity.pid)
    supervision.signal(signal.SIGKILL)
    for pid in below:
        kill(pid, signal.SIGKILL)
    # Whoever was born meanwhile is in a session of the pod.
    sessions = {before[pid][1] for pid in below}
    for pid, (_, session) in listed("/proc").items():
        if session in sessions:
            kill(pid, signal.SIGKILL)
    supervision.reap()
    return supervision.identity
