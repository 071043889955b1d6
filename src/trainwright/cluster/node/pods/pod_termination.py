"""Ends the pods of a node whose agent has been stopped, by their grace periods or at once.

The Pod objects stay as they are: the next agent treats them as the kubelet does after a reboot.
"""

import contextlib
import select
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from trainwright.cluster.node.pod_processes import read_command
from trainwright.cluster.node.pods.pod_directory import pod_directories
from trainwright.cluster.node.supervisor.files import AGENT_SOCKET, API_SOCKET, CGROUPS_FILE, SESSION_SOCKET, read_json
from trainwright.cluster.node.supervisor.processes import descendants, kill, list_processes
from trainwright.cluster.node.supervisor.sandbox import cgroups

_EXIT_SECONDS = 5.0
"""For a supervisor to end after its containers."""
_CGROUP_SECONDS = 1.0


class StoppingPods:
    """The pods that were running on a node. `stop` asks them to end, `wait` waits for them, `kill` kills the rest."""

    def __init__(self, node: Path) -> None:
        self._node = node
        found = ((directory, directory.find_supervisor()) for directory in pod_directories(node).values())
        self._running = [(directory, supervisor) for directory, supervisor in found if supervisor is not None]
        self._deadline = time.monotonic()
        self.total = len(self._running)

    @property
    def left(self) -> int:
        """How many have not ended yet."""
        return len(self._running)

    @property
    def seconds(self) -> float:
        """How long the grace periods last at most."""
        return max(0.0, self._deadline - time.monotonic())

    def stop(self) -> None:
        """Sends SIGTERM to all of them at once. After its grace period a pod is killed by its supervisor."""
        # All requests come first: a program that fails because it lost a peer has been stopped too.
        grace_periods = [directory.request_shutdown() for directory, _ in self._running]
        for _, supervisor in self._running:
            supervisor.signal(signal.SIGTERM)
        self._deadline = time.monotonic() + max(grace_periods, default=0.0)

    def wait(self, seconds: float) -> bool:
        """Waits for this time; True when all have ended, or when those that have not must be killed."""
        last = self._deadline + _EXIT_SECONDS
        until = min(time.monotonic() + seconds, last)
        while self._running and (left := until - time.monotonic()) > 0:
            self._collect(left)
        return not self._running or time.monotonic() >= last

    def kill(self) -> int:
        """Kills the pods that are left, and removes control groups and sockets; returns how many there were."""
        killed = len(self._running)
        for directory, _ in self._running:
            with contextlib.suppress(OSError):  # for example a full disk: the pods must end
                directory.request_shutdown()
        for _, supervisor in self._running:
            _kill_tree(supervisor.identity.pid, partial(supervisor.signal, signal.SIGKILL))
        until = time.monotonic() + _EXIT_SECONDS
        while self._running and (left := until - time.monotonic()) > 0:
            self._collect(left)
        cgroups.remove(
            read_json(str(self._node / CGROUPS_FILE), default={}).get("cgroups", {}), seconds=_CGROUP_SECONDS
        )
        # Processes that were killed could not remove theirs.
        pods = [directory.path / SESSION_SOCKET for directory in pod_directories(self._node).values()]
        for path in (self._node / AGENT_SOCKET, self._node / API_SOCKET, *pods):
            path.unlink(missing_ok=True)
        return killed

    def _collect(self, seconds: float) -> None:
        """Waits until at least one has ended."""
        poll = select.poll()
        for _, supervisor in self._running:
            poll.register(supervisor.descriptor, select.POLLIN)
        ended = {descriptor for descriptor, _ in poll.poll(seconds * 1000)}
        for _, supervisor in self._running:
            if supervisor.descriptor in ended:
                supervisor.close()
        self._running = [(pod, supervisor) for pod, supervisor in self._running if supervisor.descriptor not in ended]


def kill_orphaned_pods(node: Path) -> int:
    """Kills the pods whose directories have been removed. Their supervisors are found by their command lines."""
    processes = list_processes("/proc")
    supervisors = {pid for pid in processes if _is_supervisor(pid, node)}
    for pid in supervisors:
        _kill_tree(pid, partial(kill, pid, signal.SIGKILL))
    return sum(processes[pid][0] not in supervisors for pid in supervisors)


def _is_supervisor(pid: int, node: Path) -> bool:
    words = read_command(pid)
    is_below = any(word.startswith(f"{node}/pods/") for word in words)
    return is_below and any(word.endswith("/supervise.py") for word in words)


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
