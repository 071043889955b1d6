"""The directory of one pod on this node, and the process that supervises the pod: started, found again, stopped."""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from trainwright.cluster.node.supervisor.files import read_json, remove_tree, write_json
from trainwright.cluster.node.supervisor.sandbox_detection import PROGRAM
from trainwright.cluster.process_identity import ProcessIdentity, identify


class Supervision:
    """A supervisor that runs. Its end is announced once, through the event loop."""

    def __init__(self, identity: ProcessIdentity, descriptor: int) -> None:
        self.identity = identity
        self.descriptor = descriptor
        self.since = time.monotonic()
        """When it was started or found."""
        self.stop_seconds: float | None = None
        """How long this agent has given the pod to end; None if it has not told it to."""

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.descriptor, number)

    def reap(self) -> None:
        """Once it has ended: a child of this process, whoever started it, leaves its exit status behind."""
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, self.descriptor, os.WEXITED | os.WNOHANG)
        os.close(self.descriptor)


class PodDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def pod(self) -> dict[str, Any] | None:
        """What was handed to the supervisor; None if it never was, or not completely."""
        return self._read("pod.json")

    @property
    def state(self) -> dict[str, Any] | None:
        return self._read("state.json")

    @property
    def supervised_before(self) -> bool:
        return (self.path / "supervisor.json").exists()

    @property
    def told_to_stop(self) -> bool:
        return (self.path / "stop.json").exists()

    @property
    def last_words(self) -> str:
        """The last line that a supervisor wrote about itself: why it broke, if it did."""
        try:
            lines = (self.path / "supervisor.log").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        return lines[-1] if lines else "it has not said why"

    def create(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write_pod(self, pod: dict[str, Any]) -> None:
        write_json(str(self.path / "pod.json"), pod)

    def write_state(self, state: dict[str, Any]) -> None:
        self.create()
        write_json(str(self.path / "state.json"), state)

    def supervise(self, python: str = sys.executable) -> Supervision:
        """Starts a supervisor in a session of its own: it outlives this process."""
        log = str(self.path / "supervisor.log")
        child = os.posix_spawn(
            python,
            [python, "-I", "-S", PROGRAM, str(self.path)],
            {"PATH": os.defpath, "LANG": "C.UTF-8"},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGHUP],
        )
        descriptor = os.pidfd_open(child)
        identity = identify(child) or ProcessIdentity(child, 0, "")  # it may have ended already: the pidfd will tell
        return Supervision(identity, descriptor)

    def find_supervision(self) -> Supervision | None:
        """The supervisor that was started by an earlier agent, if exactly that process still runs."""
        found = self._read("supervisor.json")
        if found is None:
            return None
        identity = ProcessIdentity(int(found["pid"]), int(found["startTicks"]), str(found["bootId"]))
        if not identity.alive:  # its number may be a thread's by now, which the next call would not take
            return None
        try:
            descriptor = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            return None
        if not identity.alive:  # asked after the descriptor was opened, so that both mean the same process
            os.close(descriptor)
            return None
        return Supervision(identity, descriptor)

    def stop(self, supervision: Supervision, seconds: float) -> None:
        """Harmless when repeated. An earlier agent may have been killed between the two steps."""
        write_json(str(self.path / "stop.json"), {"grace": seconds})
        supervision.signal(signal.SIGTERM)
        supervision.stop_seconds = seconds

    def remove(self) -> None:
        remove_tree(str(self.path))

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] | None = read_json(str(self.path / name), default=None)
        except ValueError:
            return None  # cut off by a power failure: as if it had not been written
        return found


def pod_directories(node: Path) -> dict[str, PodDirectory]:
    """By the pods' uids."""
    pods = node / "pods"
    return {path.name: PodDirectory(path) for path in pods.iterdir()} if pods.is_dir() else {}
