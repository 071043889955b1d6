"""How agent and supervisor communicate: small files that are written atomically, and a datagram that announces a
change.

Standard library only.
"""

from __future__ import annotations

import errno
import json
import os
import time

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping
    from typing import Any

    from trainwright.cluster.node.supervisor.pod_json import IdentityJson, PodJson, PodState

_REQUIRED: Any = object()

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a full disk: a reason to try again, not to end a pod."""

CGROUPS_FILE = "cgroups.json"
"""In the node's directory: its directories in the cgroup file systems."""

DISK_FULL_NOTE = "disk-full"
"""After a uid in a notification: the supervisor cannot write."""

AGENT_SOCKET = "agent.sock"
"""In the node's directory, while its agent runs."""

API_SOCKET = "api/api.sock"
"""In the node's directory, while the API server runs. Launchers have its directory, to start commands in other pods."""

SESSION_SOCKET = "sessions.sock"
"""In the pod's directory, while its supervisor runs."""

_RETRY_SECONDS = 0.1
_DISK_FULL_REPORT_SECONDS = 10.0


def read_json(path: str, default: Any = _REQUIRED) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        if default is _REQUIRED:
            raise
        return default


def read_pod(directory: str) -> PodJson | None:
    """pod.json; None if there is none, or if a power failure truncated it."""
    found: PodJson | None = _read_whole(os.path.join(directory, "pod.json"))
    return found


def read_state(directory: str) -> PodState | None:
    """state.json, in the same way."""
    found: PodState | None = _read_whole(os.path.join(directory, "state.json"))
    return found


def _read_whole(path: str) -> Any:
    try:
        return read_json(path, default=None)
    except ValueError:
        return None


def write_json(path: str, value: Mapping[str, object], *, durable: bool = True) -> None:
    """Writes the file atomically. `durable`: waits until it is on the disk, for files that are needed after a
    reboot."""
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(json.dumps(value))  # json.dump does not use the C encoder
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.rename(f"{path}.new", path)


def own_identity() -> IdentityJson:
    """How the agent identifies this process later: a pid alone may be reused.

    In the pid namespace of a pod, too, /proc is still the host's, and so is the pid.
    """
    with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
        boot = file.read().strip()
    return {"pid": int(os.readlink("/proc/self")), "startTicks": int(stat_fields("/proc/self")[19]), "bootId": boot}


def stat_fields(process: str) -> list[str]:
    """What the kernel says about a process, whose directory in a /proc is given, from its state on."""
    with open(f"{process}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()  # the name before it may contain blanks and brackets


def notify_agent(node_directory: str, message: str) -> bool:
    """Sends the uid of a pod and perhaps a note to the agent, which syncs the pod; False if its queue of datagrams is
    full and the caller has to try again.

    An agent that is not running syncs every pod when it starts.
    """
    import socket  # imported here, where it does not delay the first container

    with SocketPath(node_directory, AGENT_SOCKET) as path:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as agent:
                agent.sendto(message.encode(), path)
        except BlockingIOError:  # by default the kernel queues ten
            return False
        except OSError:
            pass
    return True


class StateFile:
    """state.json: what a supervisor reports to the agent. Tries again while the disk is full or the agent is busy."""

    def __init__(self, directory: str, uid: str) -> None:
        self._path = os.path.join(directory, "state.json")
        self._node = os.path.dirname(os.path.dirname(directory))
        self._uid = uid
        self.changed = False
        """True if the state is to be written."""
        self.retry_at: float | None = None
        """When to repeat a failed write or notification, in monotonic seconds."""
        self._disk_full_reported_at: float | None = None

    def notify_soon(self) -> None:
        """The agent has something else to read."""
        if self.retry_at is None:
            self.retry_at = time.monotonic()

    def publish(self, state: Callable[[], PodState]) -> None:
        """Writes the state if it has changed, and notifies the agent."""
        now = time.monotonic()
        if (not self.changed and self.retry_at is None) or (self.retry_at is not None and now < self.retry_at):
            return
        if self.changed:
            try:
                write_json(self._path, state())
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
                self.retry_at = now + _RETRY_SECONDS
                self.report_full_disk()
                return
        self.changed = False
        self.retry_at = None if notify_agent(self._node, self._uid) else now + _RETRY_SECONDS

    def report_full_disk(self) -> None:
        """Notifies the agent, which records an event: nothing can be written to this disk."""
        now = time.monotonic()
        last = self._disk_full_reported_at
        if (last is None or now >= last + _DISK_FULL_REPORT_SECONDS) and notify_agent(
            self._node, f"{self._uid} {DISK_FULL_NOTE}"
        ):
            self._disk_full_reported_at = now


def receive(connection: socket.socket, size: int, descriptors: int) -> tuple[bytes, list[int], int]:
    """A message with its descriptors, which no program inherits, and its flags. (recv_fds of Python 3.11 does not pass
    MSG_CMSG_CLOEXEC on.)"""
    from socket import recv_fds  # not at the start of every pod

    data, received, flags, _ = recv_fds(connection, size, descriptors)
    for descriptor in received:
        os.set_inheritable(descriptor, False)
    return data, received, flags


def listen_for_sessions(directory: str) -> socket.socket:
    """Opens the socket in the pod's directory on which the agent asks for sessions in containers."""
    import socket  # imported here, where it does not delay the first container

    remove_file(os.path.join(directory, SESSION_SOCKET))  # of an earlier supervisor that was killed
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    with SocketPath(directory, SESSION_SOCKET) as path:
        listener.bind(path)
    listener.listen(16)
    return listener


def read_text(path: str) -> str:
    """Empty if the file cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


class SocketPath:
    """A path by the directory's descriptor, because the path of a Unix socket is limited to 107 characters."""

    def __init__(self, directory: str, name: str) -> None:
        self._directory = directory
        self._name = name

    def __enter__(self) -> str:
        self._descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._descriptor}/{self._name}"

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def remove_file(path: str) -> None:
    """Does nothing if there is none."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
