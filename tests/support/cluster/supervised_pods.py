"""Pods under a real supervisor without a node agent: a test writes pod.json and reads the supervisor's files."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwright.cluster.address_range import second_address
from trainwright.cluster.node.pods.pod_directory import pod_directories
from trainwright.cluster.node.supervisor.files import read_json
from trainwright.cluster.node.supervisor.sandbox.detection import PROGRAM, Sandbox, detect_sandbox

NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
LAYERED_DIRECTORY = "/opt" if os.access("/opt", os.W_OK) else str(Path.home())
"""A directory of this machine that the tests can write and that pods see below a private layer, unlike /tmp."""
_PATIENCE = 60.0


@dataclass(frozen=True)
class User:
    """The user that runs supervisors: the user of the tests or, if that is root, an unprivileged one too."""

    name: str
    prefix: tuple[str, ...] = ()
    python: str = sys.executable

    def run(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*self.prefix, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def own(self, path: Path) -> None:
        if self.prefix:
            os.chown(path, NOBODY, NOBODY)

    def sandbox(self, directory: Path) -> Sandbox:
        """The strongest sandbox level for this user, as the node agent detects it."""
        if not self.prefix:
            return detect_sandbox(str(directory), forced=None, python=self.python)
        detection = self.run(self.python, "-I", "-S", PROGRAM, "--detect-sandbox", str(directory))
        output, _ = detection.communicate(timeout=_PATIENCE)
        assert detection.returncode == 0, output
        return Sandbox("overlay", user_namespace=True) if '"works": true' in output else Sandbox("plain", reason=output)


def users() -> list[User]:
    """As root: root and an unprivileged user. Otherwise only the current user."""
    if os.getuid() != 0:
        return [User("ordinary")]
    return [User("root"), User("ordinary", AS_NOBODY, _python_for_all())]


def _python_for_all() -> str:
    """A Python that an unprivileged user can run, even if that of the tests is in root's home."""
    for candidate in (sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin")):
        if candidate:
            command = [*AS_NOBODY, candidate, "-I", "-S", PROGRAM, "--detect-sandbox", "/nonexistent"]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                return candidate
    raise AssertionError("no Python 3.11 or later that an ordinary user may run: install one in /usr/bin")


@dataclass
class SupervisedPod:
    user: User
    directory: Path
    process: "subprocess.Popen[str]" = field(repr=False)

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = read_json(str(self.directory / "state.json"), default={"containers": []})
        return found

    def container(self, name: str = "main") -> dict[str, Any]:
        containers = [*self.state.get("initContainers", []), *self.state["containers"]]
        nothing_yet: dict[str, Any] = {"state": {}, "last": {}, "restarts": 0}
        return next((record for record in containers if record["name"] == name), nothing_yet)

    def output(self, name: str = "main", restart: int = 0) -> list[str]:
        """The text of each log line."""
        path = self.directory / "logs" / name / f"{restart}.log"
        return [line.split(" ", 3)[3] for line in path.read_text().splitlines()] if path.exists() else []

    def wait(self) -> dict[str, Any]:
        """Until the supervisor has ended; the last state."""
        output, _ = self.process.communicate(timeout=_PATIENCE)
        assert self.process.returncode == 0, output
        assert self.state["finished"]
        return self.state

    def until(self, done: Callable[["SupervisedPod"], object]) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not done(self):
            assert time.monotonic() < deadline, (self.state, self.output())
            assert self.process.poll() is None or done(self), self.process.communicate()[0]
            time.sleep(0.005)

    def stop(self) -> None:
        os.kill(self._supervisor, signal.SIGTERM)

    def kill(self) -> None:
        os.kill(self._supervisor, signal.SIGKILL)

    @property
    def _supervisor(self) -> int:
        pid: int = read_json(str(self.directory / "supervisor.json"))["pid"]
        return pid


def container(script: str, *, name: str = "main", **fields: Any) -> dict[str, Any]:
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", **fields.pop("env", {})}
    return {
        "name": name,
        "argv": ["/bin/sh", "-c", script],
        "env": environment,
        "cwd": "/",
        "mounts": [],
        **fields,
    }


@contextmanager
def supervised(
    user: User,
    node: Path,
    sandbox: Sandbox,
    *containers: dict[str, Any],
    files: dict[str, Any] | None = None,
    **fields: Any,
) -> Iterator[SupervisedPod]:
    """Runs the pod while the block does. `files` are in its directory from the start."""
    directory = node / "pods" / "uid"
    directory.mkdir(parents=True)
    for name, content in (files or {}).items():
        (directory / name).write_text(json.dumps(content))
    for path in (node, directory.parent, directory, *directory.iterdir()):
        user.own(path)
    address = fields.pop("address", "127.64.0.1")
    pod = {
        "uid": "uid",
        "namespace": "default",
        "name": "pod",
        "address": address,
        "secondAddress": second_address(address),
        "sandbox": sandbox.level,
        "ownUsers": sandbox.user_namespace,
        "hostname": "pod",
        "grace": 10,
        "restartPolicy": "Never",
        "backoff": {"initial": 0.05, "limit": 0.1, "reset": 600.0},
        "memoryVolumes": [],
        "hidden": [],
        "initContainers": [],
        "containers": list(containers),
        **fields,
    }
    with supervised_again(user, directory, pod) as supervised_pod:
        yield supervised_pod


@contextmanager
def supervised_again(user: User, directory: Path, pod: dict[str, Any] | None = None) -> Iterator[SupervisedPod]:
    if pod is not None:
        (directory / "pod.json").write_text(json.dumps(pod))
    process = user.run(user.python, "-I", "-S", PROGRAM, str(directory))
    try:
        yield SupervisedPod(user, directory, process)
    finally:
        process.kill()  # the kernel then ends the pod
        process.communicate()


def end_supervisors(node: Path) -> None:
    """Stops the pods of a node without an agent through their supervisors, and waits until they have ended."""
    running = [
        (directory, supervisor)
        for directory in pod_directories(node).values()
        if (supervisor := directory.find_supervisor()) is not None
    ]
    for directory, supervisor in running:
        directory.stop(supervisor, 0)
    for directory, supervisor in running:
        ended, _, _ = select.select([supervisor.descriptor], [], [], _PATIENCE)
        supervisor.signal(signal.SIGKILL)
        supervisor.close()
        assert ended, f"the supervisor of {directory.path} did not end"


def processes_with(marker: str) -> list[int]:
    """Processes whose command line contains the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                zombie = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                continue
            if marker.encode() in command and not zombie:
                found.append(int(entry.name))
    return found
