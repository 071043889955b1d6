"""The agent's side of the fork server, which starts the supervisors of pods; it is started again if it has ended."""

import asyncio
import contextlib
import hashlib
import hmac
import os
import signal
import socket
from collections import deque
from pathlib import Path

from trainwright.cluster.node.pods.pod_directory import PodDirectory, SupervisorProcess
from trainwright.cluster.node.supervisor.files import receive
from trainwright.cluster.node.supervisor.sandbox.detection import PROGRAM
from trainwright.cluster.node.supervisor.supervise import ADDRESS_MARK, FORK_SERVER
from trainwright.cluster.process_identity import ProcessIdentity, identify

_UID_LENGTH = 36
_MAX_ANSWER = 64


def session_key(secret: bytes, uid: str) -> str:
    """The key with which this node opens sessions in a pod; empty without a secret, as for a supervisor without an
    agent.

    A supervisor cannot see who connects to its socket: processes of other pods and the agent look alike from inside. It
    has the key in memory, and the agent derives it from a secret outside of the node's directory.
    """
    return hmac.new(secret, uid.encode(), hashlib.sha256).hexdigest() if secret else ""


class ForkServer:
    """`python` runs the supervisors of the pods below the node's directory; `session_secret` is that of the keys with
    which sessions are opened in them, `address_mark` a descriptor that all of them inherit. To be used in one event
    loop."""

    def __init__(self, python: str, node: Path, session_secret: bytes, address_mark: int) -> None:
        self._python = python
        self._session_secret = session_secret
        self._address_mark = address_mark
        self._longest_path = str(node / "pods" / ("-" * _UID_LENGTH))
        self._log = node / "fork-server.log"
        self._socket: socket.socket | None = None
        self._pid = 0
        self._waiting: deque[asyncio.Future[SupervisorProcess]] = deque()
        """For answers, which come in the order of the requests."""

    def start(self) -> None:
        """Does nothing if it runs. Can be left out: the first pod starts it, but then waits for its imports."""
        if self._socket is not None:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._pid = os.posix_spawn(
                    self._python,
                    [self._python, "-I", "-S", PROGRAM, f"{FORK_SERVER}{self._longest_path}"],
                    {"PATH": os.defpath, "LANG": "C.UTF-8"},
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                        (os.POSIX_SPAWN_OPEN, 1, str(self._log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
                        (os.POSIX_SPAWN_DUP2, 1, 2),
                        (os.POSIX_SPAWN_DUP2, self._address_mark, ADDRESS_MARK),
                    ],
                    setsid=True,
                    setsigmask=[],
                    setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGHUP],
                )
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        self._socket = ours
        asyncio.get_running_loop().add_reader(ours, self._on_answer)

    async def start_supervisor(self, directory: PodDirectory) -> SupervisorProcess:
        """In a session of its own, so that it outlives this process. Raises OSError if it cannot be started."""
        self.start()
        assert self._socket is not None  # noqa: S101 - it has just been started
        answer: asyncio.Future[SupervisorProcess] = asyncio.get_running_loop().create_future()
        try:
            key = session_key(self._session_secret, directory.path.name)
            self._socket.send(f"{key} ".encode() + os.fsencode(directory.path))
        except ConnectionError as error:
            self._on_end()
            raise self._failure from error
        self._waiting.append(answer)
        return await answer

    def close(self) -> None:
        """Ends it. The supervisors keep running."""
        if self._socket is not None:
            self._on_end()

    def _on_answer(self) -> None:
        assert self._socket is not None  # noqa: S101 - it has just become readable
        try:
            answer, descriptors, _ = receive(self._socket, _MAX_ANSWER, 1)
        except BlockingIOError:
            return
        except ConnectionError:
            answer = b""
        if not answer:
            self._on_end()
            return
        waiting = self._waiting.popleft()
        if waiting.cancelled():
            for descriptor in descriptors:
                os.close(descriptor)
        elif (pid := int(answer)) < 0:
            waiting.set_exception(OSError(-pid, os.strerror(-pid)))
        else:  # it may have ended already, as the pidfd shows
            identity = identify(pid) or ProcessIdentity(pid, 0, "")
            waiting.set_result(SupervisorProcess(identity, descriptors[0]))

    def _on_end(self) -> None:
        """Supervisors that it started after its last answer are found by their files when their pods are synced."""
        assert self._socket is not None  # noqa: S101 - it was running
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self._socket = None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)  # it would end by itself, but then it would not be reaped
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        while self._waiting:
            if not (waiting := self._waiting.popleft()).cancelled():
                waiting.set_exception(self._failure)

    @property
    def _failure(self) -> OSError:
        """With the last line of its log."""
        try:
            lines = self._log.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        return OSError(f"the fork server of supervisors ended: {lines[-1] if lines else 'unknown reason'}")
