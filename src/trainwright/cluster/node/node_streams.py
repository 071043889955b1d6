"""Streams into running pods for the API server: exec, attach and port-forward.

A pod's supervisor starts the process of an exec session; its streams are pipes or a terminal between that process and
this one. Attached sessions read the container's log, which has every byte that the container has written.
"""

import asyncio
import errno
import os
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from trainwright.cluster.linux.listening_sockets import ANY, open_sockets, read_listeners
from trainwright.cluster.node.file_events import FileEvents
from trainwright.cluster.node.pod_processes import process_trees
from trainwright.cluster.node.pods.fork_server_starter import session_key
from trainwright.cluster.node.records.log_files import LogFiles, find_log, find_pod, run_has_ended, split_records
from trainwright.cluster.node.supervisor.containers import terminals
from trainwright.cluster.node.supervisor.files import SESSION_SOCKET, SocketPath, read_json, receive
from trainwright.kube.client.exec_protocol import Output
from trainwright.objects import Object
from trainwright.objects.kinds.pod_subresources import StreamOptions, StreamUnavailable

_CHUNK = 32 * 1024
_MAX_MESSAGE_BYTES = 64 * 1024
_EXIT_KILLED = 137


class Pipe:
    """One end of a pipe or terminal. Closing it ends a waiting read or write."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self._waiting: set[asyncio.Future[None]] = set()
        self._closed = self._ending = False

    def finish(self) -> None:
        """Reads what is there and waits for no more, although processes may have the other end open."""
        self._ending = True
        self._wake_all()

    async def read(self) -> bytes:
        """Waits for data; nothing at the end."""
        while not self._closed:
            try:
                return os.read(self.descriptor, _CHUNK)
            except BlockingIOError:
                if self._ending:
                    return b""
                loop = asyncio.get_running_loop()
                await self._wait(loop.add_reader, loop.remove_reader)
            except OSError as error:
                if error.errno == errno.EIO:  # a terminal that no process has open any more
                    return b""
                raise
        return b""

    async def write(self, data: bytes) -> None:
        """Waits until all is written. Raises BrokenPipeError if no process reads it any more."""
        view = memoryview(data)
        while view:
            if self._closed:
                raise BrokenPipeError(errno.EPIPE, "closed")
            try:
                view = view[os.write(self.descriptor, view) :]
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                await self._wait(loop.add_writer, loop.remove_writer)
            except OSError as error:
                if error.errno == errno.EIO:
                    raise BrokenPipeError(errno.EPIPE, "the terminal is closed") from error
                raise

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.descriptor)
        loop.remove_writer(self.descriptor)
        os.close(self.descriptor)
        self._wake_all()

    def _wake_all(self) -> None:
        for waiter in self._waiting:
            _wake(waiter)

    async def _wait(self, add: Callable[..., object], remove: Callable[[int], object]) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        add(self.descriptor, _wake, waiter)
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)
            if not self._closed:
                remove(self.descriptor)


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


class NodeStreams:
    """`directory` and `session_secret` are the node's, the same as those of the agent."""

    def __init__(self, directory: Path, session_secret: bytes = b"") -> None:
        self._node = directory
        self._session_secret = session_secret
        self._events = FileEvents()

    async def exec(self, pod: Object, container: str, options: StreamOptions) -> "ExecSession":
        """Starts a command in a running container."""
        connection = _connect(self._node / "pods" / _uid(pod), _not_found(container))
        theirs: list[int] = []
        ours: list[Pipe | None] = [None, None, None]
        try:
            if not options.tty:
                for number, wanted in enumerate((options.stdin, options.stdout, options.stderr)):
                    reader, writer = os.pipe() if wanted else (os.open(os.devnull, os.O_RDWR), -1)
                    theirs.append(writer if wanted and number else reader)
                    if wanted:
                        ours[number] = Pipe(reader if number else writer)
            request = {"exec": {"container": container, "argv": options.command, "tty": options.tty}}
            self._send(connection, pod, request, theirs)
            session = ExecSession(connection, ours, container)
            if options.tty:
                await session.receive_terminal()
            return session
        except BaseException:
            connection.close()
            for pipe in ours:
                if pipe is not None:
                    pipe.close()
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)

    async def prepare_exec(self, pod: Object, container: str, command: Sequence[str]) -> "PreparedExec":
        """Opens a session without starting its command."""
        connection = _connect(self._node / "pods" / _uid(pod), _not_found(container))
        session = PreparedExec(connection)
        theirs = [os.open(os.devnull, os.O_RDONLY)]
        try:
            theirs += [session.new_output() for _ in ("stdout", "stderr")]
            request = {"prepare": {"container": container, "argv": command, "tty": False}}
            self._send(connection, pod, request, theirs)
            answer, _ = await _receive(connection)
            if answer is None or "prepared" not in answer:
                raise StreamUnavailable(_not_found(container))
        except BaseException:
            session.close()
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        return session

    async def attach(self, pod: Object, container: str, options: StreamOptions) -> "AttachSession":
        """Attaches to the program of a running container."""
        uid, name = _uid(pod), f"{pod['metadata']['name']}_{pod['metadata']['namespace']}"
        missing = f"unable to upgrade connection: container {container} not found in pod {name}"
        connection = _connect(self._node / "pods" / uid, missing)
        try:
            self._send(connection, pod, {"attach": {"container": container, "stdin": options.stdin}}, [])
            answer, descriptors = await _receive(connection)
        finally:
            connection.close()
        if answer is None or "run" not in answer:
            raise StreamUnavailable(missing)
        run = int(answer["run"])
        files = LogFiles(lambda: find_log(self._node, uid, container, run))
        if not (answer["first"] and descriptors):
            files.skip_to_tail(0)
        # Otherwise the container was waiting for this session: what it has printed meanwhile belongs to it.
        stdin = Pipe(descriptors[0]) if descriptors else None
        return AttachSession(
            node=self._node,
            uid=uid,
            container=container,
            run=run,
            tty=bool(answer["tty"]),
            options=options,
            stdin=stdin,
            files=files,
            events=self._events,
        )

    def _send(self, connection: socket.socket, pod: Object, request: Object, descriptors: list[int]) -> None:
        key = session_key(self._session_secret, _uid(pod))
        try:
            socket.send_fds(connection, [msgspec.json.encode({**request, "key": key})], descriptors)
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise StreamUnavailable("error executing command in container: argument list too long") from error
            raise StreamUnavailable(f"the supervisor of the pod does not answer: {error.strerror}") from error

    async def connect(self, pod: Object, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connects to a port on which a process of the pod listens."""
        directory = self._node / "pods" / _uid(pod)
        addresses = await asyncio.to_thread(_addresses, directory, port)
        preferred = str(pod.get("status", {}).get("podIP") or "127.0.0.1")
        reason = f"no process of the pod listens on port {port}"
        for address in sorted(addresses, key=lambda address: address != preferred):
            try:
                return await asyncio.open_connection(_reachable(address, preferred), port)
            except OSError as error:
                reason = os.strerror(error.errno) if error.errno else str(error)
        namespace = pod["metadata"]["namespace"]
        raise StreamUnavailable(f'failed to connect to localhost:{port} inside namespace "{namespace}": {reason}')


class PreparedExec:
    """A command that has not been started. The process that gets the descriptors starts it by a message on the first
    one, the session with the pod's supervisor, which also announces its end. This process is not needed any more."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._outputs: list[int] = []

    def new_output(self) -> int:
        """The command's end of the next pipe."""
        reader, writer = os.pipe()
        self._outputs.append(reader)
        return writer

    @property
    def descriptors(self) -> list[int]:
        return [self._connection.fileno(), *self._outputs]

    def close(self) -> None:
        self._connection.close()
        while self._outputs:
            os.close(self._outputs.pop())


class ExecSession:
    """A command in a container. Without a terminal `outputs` end when all processes that have them open have ended."""

    def __init__(self, connection: socket.socket, pipes: Sequence[Pipe | None], container: str) -> None:
        self._connection = connection
        self._stdin, self._stdout, self._stderr = pipes
        self._terminal: Pipe | None = None
        self._early_answer: Any = None
        self._container = container

    async def receive_terminal(self) -> None:
        answer, descriptors = await _receive(self._connection)
        if descriptors:
            self._terminal = self._stdin = self._stdout = Pipe(descriptors[0])
        else:
            self._early_answer = answer

    @property
    def outputs(self) -> list[AsyncGenerator[Output, None]]:
        pipes = ((self._stdout, False), (self._stderr, True))
        return [_read_output(pipe, is_error=is_error) for pipe, is_error in pipes if pipe is not None]

    async def write(self, data: bytes) -> None:
        if self._stdin is not None:
            await self._stdin.write(data)

    def close_stdin(self) -> None:
        if self._stdin is not None and self._terminal is None:
            self._stdin.close()

    def resize(self, width: int, height: int) -> None:
        if self._terminal is not None:
            with suppress(OSError):
                terminals.resize(self._terminal.descriptor, width, height)

    async def wait(self) -> int:
        """The exit code. Raises StreamUnavailable if the command cannot be started."""
        answer = self._early_answer or (await _receive(self._connection))[0]
        if self._terminal is not None:
            self._terminal.finish()
        if answer is None:
            return _EXIT_KILLED  # the supervisor has ended, and the pod with it
        if "notFound" in answer:
            raise StreamUnavailable(_not_found(self._container))
        if "error" in answer:
            raise StreamUnavailable(f"error executing command in container: {answer['error']}")
        return int(answer["exit"])

    def close(self) -> None:
        """The command loses its streams; it may go on running."""
        for pipe in {self._stdin, self._stdout, self._stderr}:
            if pipe is not None:
                pipe.close()
        self._connection.close()


@dataclass(eq=False, kw_only=True)
class AttachSession:
    """The output of one run of a container, byte for byte, and its input if the client writes it."""

    node: Path
    uid: str
    container: str
    run: int
    tty: bool
    options: StreamOptions
    stdin: Pipe | None
    files: LogFiles
    events: FileEvents
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def outputs(self) -> list[AsyncGenerator[Output, None]]:
        return [self._output()]

    async def _output(self) -> AsyncGenerator[Output, None]:
        directory = find_pod(self.node, self.uid)
        try:
            with self.events.watching(directory, directory / "logs" / self.container) as changes:
                last = False
                while not last:
                    changes.clear()
                    # The order matters: a container's last output is in the log before its end is recorded.
                    last = run_has_ended(find_pod(self.node, self.uid), self.container, self.run)
                    for output in (output for records in self.files.read() for output in _outputs(records)):
                        if self.options.stderr if output.is_error else self.options.stdout:
                            yield output
                    if not last:
                        await changes.wait()
        finally:
            self._ended.set()

    async def write(self, data: bytes) -> None:
        if self.stdin is not None and self.options.stdin:
            await self.stdin.write(data)

    def close_stdin(self) -> None:
        if self.stdin is not None and not self.tty:
            self.stdin.close()

    def resize(self, width: int, height: int) -> None:
        if self.stdin is not None and self.tty:
            with suppress(OSError):
                terminals.resize(self.stdin.descriptor, width, height)

    async def wait(self) -> int:
        """Returns when the container has ended; its exit code is in the pod's status."""
        await self._ended.wait()
        return 0

    def close(self) -> None:
        if self.stdin is not None:
            self.stdin.close()
        self.files.close()


def _outputs(records: bytes) -> list[Output]:
    """Adjacent records of one stream are joined."""
    found: list[tuple[bool, list[bytes]]] = []
    for _, stream, tag, text in split_records(records):
        is_error = stream == b"stderr"
        if not found or found[-1][0] != is_error:
            found.append((is_error, []))
        found[-1][1].append(text + b"\n" if tag == b"F" else text)
    return [Output(b"".join(pieces), is_error=is_error) for is_error, pieces in found]


async def _read_output(pipe: Pipe, *, is_error: bool) -> AsyncGenerator[Output, None]:
    while data := await pipe.read():
        yield Output(data, is_error=is_error)


def _not_found(container: str) -> str:
    return f'unable to upgrade connection: container not found ("{container}")'


def _uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def _connect(directory: Path, missing: str) -> socket.socket:
    """Connects to the supervisor of the pod in this directory."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    try:
        with SocketPath(str(directory), SESSION_SOCKET) as path:
            connection.connect(path)
    except OSError as error:
        connection.close()
        if error.errno == errno.EAGAIN:
            raise StreamUnavailable("too many sessions are being opened in this pod, please try again later") from error
        raise StreamUnavailable(missing) from error
    return connection


async def _receive(connection: socket.socket) -> tuple[Any, list[int]]:
    """A message of the supervisor with its descriptors; None if it has closed the connection."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            data, descriptors, _ = receive(connection, _MAX_MESSAGE_BYTES, 1)
        except BlockingIOError:
            readable = asyncio.Event()
            loop.add_reader(connection, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(connection)
            continue
        except ConnectionError:
            return None, []
        return (msgspec.json.decode(data) if data else None), descriptors


def _addresses(directory: Path, port: int) -> set[str]:
    """The addresses on which processes of the pod listen on the port. Reads /proc, so not for the event loop."""
    supervisor = read_json(str(directory / "supervisor.json"), default=None)
    listening = {listener.inode: listener.address for listener in read_listeners() if listener.port == port}
    if supervisor is None or not listening:
        return set()
    tree = process_trees([int(supervisor["pid"])])
    pids = (process.pid for processes in tree.values() for process in processes)
    return {listening[inode] for pid in pids for inode in open_sockets(pid) if inode in listening}


def _reachable(address: str, preferred: str) -> str:
    """The pod's own address if a process listens on all of them."""
    return preferred if address in ANY else address
