"""The directory of a pod on this node, and its supervisor process: find it again, stop it."""

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

from trainwright.cluster.linux.trees import remove_tree
from trainwright.cluster.node.supervisor.files import SESSION_SOCKET, read_json, read_pod, read_state, write_json
from trainwright.cluster.node.supervisor.pod_json import IdentityJson, PodJson, PodState, StopJson
from trainwright.cluster.process_identity import ProcessIdentity

_NEEDED_BY_PROCESSES = ("volumes", "shm", "proc", "root")
"""Directories of a pod that are of no use once its processes have ended and its object is deleted."""


class SupervisorProcess:
    """A running supervisor. Its descriptor (pidfd) becomes readable when the process ends."""

    def __init__(self, identity: ProcessIdentity, descriptor: int) -> None:
        self.identity = identity
        self.descriptor = descriptor
        self.since = time.monotonic()
        """When it was started or found."""
        self.grace_period: float | None = None
        """The grace period with which this agent stopped the pod, in seconds; None if it did not."""

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.descriptor, number)

    def close(self) -> None:
        os.close(self.descriptor)


class Owner(NamedTuple):
    """The controller of a pod, such as a job."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class PodDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def runtime_config(self) -> PodJson | None:
        """pod.json; None before the pod is set up."""
        return read_pod(str(self.path))

    @property
    def owner(self) -> Owner | None:
        config = self.runtime_config
        owner = config.get("owner") if config is not None else None
        if config is None or not owner:
            return None
        return Owner(owner["apiVersion"], owner["kind"], config["namespace"], owner["name"], owner["uid"])

    @property
    def state(self) -> PodState | None:
        return read_state(str(self.path))

    @property
    def is_finished(self) -> bool:
        """True if no container runs or will run again, according to the state."""
        state = self.state
        return state is not None and state["finished"]

    @property
    def had_supervisor(self) -> bool:
        return (self.path / "supervisor.json").exists()

    @property
    def stop_requested(self) -> bool:
        return (self.path / "stop.json").exists()

    @property
    def shutdown_requested(self) -> bool:
        """True if the pod was stopped with the cluster and its supervisor could not end properly."""
        return "shutdown" in (self._read("stop.json") or {})

    @property
    def supervisor_error(self) -> str:
        """The last line of the supervisor's log: the error, if it failed."""
        try:
            lines = (self.path / "supervisor.log").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        return lines[-1] if lines else "unknown reason"

    def create(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write_runtime_config(self, config: PodJson) -> None:
        write_json(str(self.path / "pod.json"), config)

    def write_state(self, state: PodState) -> None:
        self.create()
        write_json(str(self.path / "state.json"), state)

    def find_supervisor(self) -> SupervisorProcess | None:
        """The supervisor that an earlier agent started, if exactly that process still runs."""
        found: IdentityJson | None = self._read("supervisor.json")
        if found is None:
            return None
        identity = ProcessIdentity(int(found["pid"]), int(found["startTicks"]), str(found["bootId"]))
        if not identity.alive:  # its pid may be that of a thread by now, which pidfd_open refuses
            return None
        try:
            descriptor = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            return None
        if not identity.alive:  # checked again, so that descriptor and identity are of the same process
            os.close(descriptor)
            return None
        return SupervisorProcess(identity, descriptor)

    def stop(self, supervisor: SupervisorProcess, grace_period: float, *, reason: str = "", message: str = "") -> None:
        """Can be repeated: an earlier agent may have been killed between the two steps.

        With a `reason` the pod fails with it, and none of its containers is started again.
        """
        self._write_stop({"grace": grace_period, "reason": reason, "message": message})
        supervisor.signal(signal.SIGTERM)
        supervisor.grace_period = grace_period

    def request_shutdown(self) -> float:
        """Before the supervisor gets SIGTERM: the pod is stopped with the cluster, and the next agent starts it again
        according to its restart policy.

        Returns the grace period. A pod that is being deleted keeps its own request.
        """
        config = self.runtime_config
        grace = float(config["grace"]) if config is not None else 30.0
        if not self.stop_requested or self.shutdown_requested:
            self._write_stop({"grace": grace, "shutdown": self._read("supervisor.json")})
        return grace

    def _write_stop(self, request: StopJson) -> None:
        write_json(str(self.path / "stop.json"), request)

    def forget_shutdown(self) -> None:
        if self.shutdown_requested:
            (self.path / "stop.json").unlink()

    def remove(self) -> None:
        _remove(self.path)

    def remove_private_files(self) -> None:
        remove_tree(str(self.path / "scratch"))

    def retire(self) -> "PodDirectory":
        """Moves the directory to those of deleted pods and returns it there. Logs, runs and private files stay.

        Can be repeated after an interruption.
        """
        work_directories = self.path.glob("scratch/*/*/*/work")
        for path in (*(self.path / name for name in _NEEDED_BY_PROCESSES), *work_directories):
            _remove(path)
        (self.path / SESSION_SOCKET).unlink(missing_ok=True)  # of a supervisor that was killed
        removed = removed_directory(self.path.parents[1])
        removed.mkdir(mode=0o700, exist_ok=True)
        return PodDirectory(self.path.rename(removed / self.path.name))

    def _read(self, name: str) -> Any:
        try:
            return read_json(str(self.path / name), default=None)
        except ValueError:
            return None  # truncated by a power failure


def _remove(path: Path) -> None:
    """Users of images may have left files that belong to none of this machine."""
    remove_tree(str(path))
    if path.exists() and os.geteuid() != 0:
        from trainwright.cluster.images.layers.namespace import remove_tree as remove_as_container_root  # few need it

        remove_as_container_root(path)


def pod_directories(node: Path) -> dict[str, PodDirectory]:
    """By uid of the pod."""
    return _directories_in(node / "pods")


def has_running_pods(node: Path) -> bool:
    for directory in pod_directories(node).values():
        if (supervisor := directory.find_supervisor()) is not None:
            supervisor.close()
            return True
    return False


def removed_pod_directories(node: Path) -> dict[str, PodDirectory]:
    """Directories of pods whose objects have been deleted while their owner exists, by uid of the pod."""
    return _directories_in(removed_directory(node))


def removed_directory(node: Path) -> Path:
    return node / "removed"


def _directories_in(folder: Path) -> dict[str, PodDirectory]:
    return {path.name: PodDirectory(path) for path in folder.iterdir()} if folder.is_dir() else {}
