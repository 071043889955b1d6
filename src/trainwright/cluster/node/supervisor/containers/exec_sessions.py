"""The sessions that the agent opens in running containers: exec and attach. Imported when the first one is opened.

The agent connects to a Unix socket in the pod's directory. Its first message is a request in JSON, with the key of the
pod's sessions and the descriptors of an exec session's streams. The data flows between the agent and the process, not
through the supervisor.
Answers to exec: `terminal` with the descriptor of the terminal if there is one, then `exit` with the exit code, or
`error`. Answer to attach: `tty` and `first`, with the descriptor of the container's stdin if it has one.
Answer to prepare: `prepared`. At the next message the command is started, and the answers are those to exec. The agent
gives the connection to another process before that: if it is killed earlier, no command runs that no client knows.

Standard library only.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from hmac import compare_digest

from trainwright.cluster.node.supervisor.containers import container_status
from trainwright.cluster.node.supervisor.containers.host_paths import replace_paths
from trainwright.cluster.node.supervisor.files import receive

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from typing import Any

    from trainwright.cluster.node.supervisor.containers.container import Container
    from trainwright.cluster.node.supervisor.containers.container_exec import ContainerExec
    from trainwright.cluster.node.supervisor.poller import Poller

_MAX_REQUEST_BYTES = 256 * 1024
_MAX_SESSIONS = 64
"""Sessions of one pod at the same time."""
_STREAMS = 3


class ExecSessions:
    def __init__(
        self,
        containers: list[Container],
        container_exec: ContainerExec,
        poller: Poller,
        *,
        key: str,
        pid_namespace: bool,
    ) -> None:
        self._containers = containers
        self._exec = container_exec
        self._key = key
        self._pid_namespace = pid_namespace
        self._poller = poller
        self._connections: set[socket.socket] = set()
        self._prepared: dict[socket.socket, list[int]] = {}
        """Sessions whose command has not been started, with its streams."""

    def accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # the agent has given up
        if len(self._connections) >= _MAX_SESSIONS or not self._is_agent(connection):
            connection.close()
            return
        connection.setblocking(False)
        self._connections.add(connection)
        self._poller.watch(connection.fileno(), lambda: self._on_request(connection))

    def _is_agent(self, connection: socket.socket) -> bool:
        """False for processes of other users, and for those of this pod, which would have a pid here. Processes of
        other pods have none either: the agent proves by its key that it is none of them."""
        size = struct.calcsize("3i")
        pid, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        return user in (0, os.getuid()) and (pid == 0 or not self._pid_namespace)

    def _on_request(self, connection: socket.socket) -> None:
        try:
            data, descriptors, flags = receive(connection, _MAX_REQUEST_BYTES, _STREAMS)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors, flags = b"", [], 0
        try:
            request = json.loads(data) if data and not flags & socket.MSG_TRUNC else {}
            key = str(request.get("key", "")) if isinstance(request, dict) else ""
            if not isinstance(request, dict) or not compare_digest(key.encode(errors="replace"), self._key.encode()):
                request = {}
            # From here on the connection becomes readable only when the agent closes it.
            self._poller.watch(connection.fileno(), lambda: self._close(connection))
            if "exec" in request:
                self._start(connection, request["exec"], descriptors)
            elif "prepare" in request:
                self._prepare(connection, request["prepare"], descriptors)
            elif "attach" in request:
                self._attach(connection, request["attach"])
                self._close(connection)
            else:
                self._close(connection)
        except (ValueError, KeyError, TypeError, RecursionError):
            self._close(connection)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _prepare(self, connection: socket.socket, request: dict[str, Any], descriptors: list[int]) -> None:
        if self._find_running(connection, request) is None:
            return
        if len(descriptors) < _STREAMS:
            raise ValueError("no descriptor of this process is free for them")
        self._prepared[connection] = descriptors[:]
        descriptors.clear()  # closed with the session
        self._poller.watch(connection.fileno(), lambda: self._start_prepared(connection, request))
        _send(connection, {"prepared": True})

    def _start_prepared(self, connection: socket.socket, request: dict[str, Any]) -> None:
        try:
            message = connection.recv(_MAX_REQUEST_BYTES)
        except OSError:
            message = b""
        if not message:
            self._close(connection)
            return
        streams = self._prepared.pop(connection)
        try:
            self._poller.watch(connection.fileno(), lambda: self._close(connection))
            self._start(connection, request, streams)
        finally:
            for descriptor in streams:
                os.close(descriptor)

    def _start(self, connection: socket.socket, request: dict[str, Any], descriptors: list[int]) -> None:
        container = self._find_running(connection, request)
        if container is None:
            return
        tty = bool(request["tty"])
        stdin, stdout, stderr = (-1, -1, -1) if tty else descriptors

        def on_exit(status: int) -> None:
            _send(connection, {"exit": container_status.decode_wait_status(status)[0]})
            self._close(connection)

        try:
            self._exec.start(
                container,
                [replace_paths(str(argument), container.spec.get("hostPaths") or {}) for argument in request["argv"]],
                streams=(stdin, stdout, stderr),
                on_exit=on_exit,
                on_start_error=lambda text: _send(connection, {"error": text}),
                terminal=(lambda master: _send(connection, {"terminal": True}, [master])) if tty else None,
                is_command=not tty,
            )
        except OSError as error:
            _send(connection, {"error": error.strerror or str(error)})
            self._close(connection)

    def _attach(self, connection: socket.socket, request: dict[str, Any]) -> None:
        container = self._find_running(connection, request)
        if container is None:
            return
        spec = container.spec
        first, container.attached = not container.attached, True
        answer = {"tty": container.terminal is not None, "first": first, "run": int(container.status["restarts"])}
        if container.terminal is not None:
            _send(connection, answer, [container.terminal])
        elif container.stdin is not None and request["stdin"]:
            _send(connection, answer, [container.stdin])
            if spec.get("stdinOnce"):  # from now on the session has the only one: its end is the end of stdin
                os.close(container.stdin)
                container.stdin = None
        else:
            _send(connection, answer)

    def _find_running(self, connection: socket.socket, request: dict[str, Any]) -> Container | None:
        """The container of a request; if it does not run, the session ends."""
        for container in self._containers:
            if container.name == request["container"] and container.is_running:
                return container
        _send(connection, {"notFound": True})
        self._close(connection)
        return None

    def _close(self, connection: socket.socket) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            for descriptor in self._prepared.pop(connection, ()):
                os.close(descriptor)
            self._poller.unwatch(connection.fileno())
            connection.close()


def _send(connection: socket.socket, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
    try:
        socket.send_fds(connection, [json.dumps(message).encode()], descriptors or [])
    except OSError:
        pass  # the agent has closed the session
