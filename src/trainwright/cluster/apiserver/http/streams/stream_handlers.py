"""Handles the subresources `exec`, `attach`, `portforward` and `log` of pods: checks the request and opens the streams.

A client on the Unix socket can ask for the descriptors of an exec session instead of its data. Then the command and its
client do not depend on this process any more: launchers of MPIJobs survive its end.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import ExitStack, aclosing, suppress
from datetime import datetime, timedelta

from multidict import MultiMapping

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.access.request_info import read_flag
from trainwright.cluster.apiserver.http.requests import ApiRequest, read_integer
from trainwright.cluster.apiserver.http.responses import UpgradeResponse
from trainwright.cluster.apiserver.http.streams import port_forward
from trainwright.cluster.apiserver.http.streams.node_interface import ContainerSession, PodStreams, PreparedExec
from trainwright.kube.client import exec_protocol
from trainwright.kube.client.exec_protocol import EndOfInput, Input, Output, Resize
from trainwright.net.websocket import WebSocket
from trainwright.objects import Object
from trainwright.objects.kinds.pod_subresources import LogOptions, StreamOptions, StreamUnavailable
from trainwright.objects.times import parse_time

EXEC_PROTOCOLS = (exec_protocol.V5, exec_protocol.V4)
"""The preferred one first."""
DESCRIPTORS = "descriptors.trainwright"
"""The subprotocol of clients that take over a session."""

_MAX_SESSIONS = 256
"""How many sessions of all clients are open at the same time."""
_NO_COMMAND = "you must specify at least one command for the container"
_PONG_SECONDS = 10.0
_LONGEST_SINCE = 10**9
"""Seconds, about thirty years; datetime has no times before the year one."""

Pongs = asyncio.Task[None]


def read_log_options(query: Mapping[str, str], now: datetime) -> LogOptions:
    since = None
    if (seconds := read_integer(query, "sinceSeconds")) is not None:
        since = now - timedelta(seconds=min(seconds, _LONGEST_SINCE))
    elif text := query.get("sinceTime"):
        try:
            since = parse_time(text)
        except ValueError as error:
            raise errors.bad_request(
                f"sinceTime: {text!r} is not an RFC 3339 time such as 2026-01-02T15:04:05Z"
            ) from error
    return LogOptions(
        follow=read_flag(query, "follow"),
        previous=read_flag(query, "previous"),
        since=since,
        tail_lines=read_integer(query, "tailLines"),
        timestamps=read_flag(query, "timestamps"),
        limit_bytes=read_integer(query, "limitBytes"),
    )


def container_of(pod: Object, wanted: str) -> str:
    """The container whose log is read; a pod with several containers needs a name."""
    name = pod["metadata"]["name"]
    spec = pod["spec"]
    mains = [container["name"] for container in spec["containers"]]
    inits = [container["name"] for container in spec.get("initContainers") or ()]
    if wanted:
        if wanted not in mains + inits:
            raise errors.bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(mains) > 1:
        choice = f"choose one of: [{' '.join(mains)}]" + (
            f" or one of the init containers: [{' '.join(inits)}]" if inits else ""
        )
        raise errors.bad_request(f"a container name must be specified for pod {name}, {choice}")
    return str(mains[0])


async def serve_session(session: ContainerSession, socket: WebSocket, options: StreamOptions) -> None:
    """Returns when the process has ended and all its output is sent, or when the client has closed the connection.

    A process that does not read, or a client that does not, makes the other side wait: nothing is queued here.
    """
    await socket.send(exec_protocol.output_message(Output(b"")))  # the real server opens the session so
    reading = asyncio.create_task(_forward_input(session, socket))
    working = asyncio.create_task(_forward_output(session, socket, options))
    try:
        await asyncio.wait({reading, working}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
            await socket.close()
    finally:
        for task in (reading, working):
            task.cancel()
        await asyncio.gather(reading, working, return_exceptions=True)


async def _forward_output(session: ContainerSession, socket: WebSocket, options: StreamOptions) -> None:
    copying = [asyncio.create_task(_copy(output, socket)) for output in session.outputs]
    try:
        try:
            exit_code = await session.wait()
        except StreamUnavailable as error:
            await socket.send(exec_protocol.error_message(str(error)))
            return
        await asyncio.gather(*copying)
        await socket.send(exec_protocol.exit_message(exit_code, protocol=socket.protocol, command=options.command))
    finally:
        for task in copying:
            task.cancel()
        await asyncio.gather(*copying, return_exceptions=True)


async def _copy(outputs: AsyncGenerator[Output, None], socket: WebSocket) -> None:
    async with aclosing(outputs):
        async for output in outputs:
            await socket.send(exec_protocol.output_message(output))
            await asyncio.sleep(0)  # lets other tasks run: neither side may ever be slow


async def _forward_input(session: ContainerSession, socket: WebSocket) -> None:
    """Returns when the client has closed the connection."""
    while (message := await socket.receive()) is not None:
        match exec_protocol.read_client_message(message):
            case Input(data):
                await _write(session, socket, data)
            case EndOfInput():
                session.close_stdin()
            case Resize(width, height):
                session.resize(width, height)


async def _write(session: ContainerSession, socket: WebSocket, data: bytes) -> None:
    """Waits until the process has read it. Clients that get no answer to their pings would give up meanwhile."""
    pongs = asyncio.get_running_loop().call_later(_PONG_SECONDS, _start_pongs, socket, answering := set[Pongs]())
    try:
        await session.write(data)
    except BrokenPipeError:
        pass  # the process reads no more; its exit code follows
    finally:
        pongs.cancel()
        for task in answering:
            task.cancel()


def _start_pongs(socket: WebSocket, tasks: set[Pongs]) -> None:
    tasks.add(asyncio.create_task(_send_pongs(socket)))


async def _send_pongs(socket: WebSocket) -> None:
    with suppress(ConnectionError):
        while True:
            await socket.pong()
            await asyncio.sleep(_PONG_SECONDS)


class SessionLimit:
    """Counts the sessions of all clients."""

    def __init__(self, most: int = _MAX_SESSIONS) -> None:
        self._most = most
        self._open = 0

    def __enter__(self) -> None:
        if self._open >= self._most:
            raise errors.too_many_requests(f"{self._most} exec, attach and port-forward sessions are open: close some")
        self._open += 1

    def __exit__(self, *_: object) -> None:
        self._open -= 1


class StreamHandlers:
    def __init__(self, streams: PodStreams) -> None:
        self._streams = streams
        self._limit = SessionLimit()

    async def connect(self, request: ApiRequest, pod: Object) -> UpgradeResponse:
        """The checks come before the upgrade: a client that fails sends the request again over SPDY."""
        if not pod["spec"].get("nodeName"):
            raise errors.bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")
        is_port_forward = request.info.subresource == "portforward"
        served: tuple[str, ...] = port_forward.PROTOCOLS if is_port_forward else EXEC_PROTOCOLS
        hand_over = request.upgrade.passes_descriptors and DESCRIPTORS in request.upgrade.subprotocols
        with ExitStack() as stack:
            stack.enter_context(self._limit)
            if is_port_forward:
                _check_upgrade(request, served)
                serve = self._port_forward(request, pod)
            elif hand_over and request.info.subresource == "exec":
                served = (DESCRIPTORS,)
                serve = await self._hand_over(request, pod, stack)
            else:
                serve = await self._open_session(request, pod, stack)
            return UpgradeResponse(served, serve, stack.pop_all().close)

    def _port_forward(self, request: ApiRequest, pod: Object) -> Callable[[WebSocket], Awaitable[None]]:
        ports = port_forward.read_ports(request.query.getall("ports", ()))
        if not ports and port_forward.TUNNEL not in request.upgrade.subprotocols:
            raise errors.bad_request("query parameter port is required")
        return lambda socket: port_forward.serve_port_forward(self._streams, pod, ports, socket)

    async def _hand_over(
        self, request: ApiRequest, pod: Object, stack: ExitStack
    ) -> Callable[[WebSocket], Awaitable[None]]:
        container = container_of(pod, request.query.get("container", ""))
        _check_upgrade(request, (DESCRIPTORS,))
        options = _read_stream_options(request.query)
        if not options.command:
            raise errors.bad_request(_NO_COMMAND)
        if options != StreamOptions(command=options.command, stdout=True, stderr=True):
            raise errors.bad_request("a session that is handed over has stdout and stderr, no stdin and no terminal")
        try:
            session = await self._streams.prepare_exec(pod, container, options.command)
        except StreamUnavailable as error:
            raise errors.internal(str(error)) from error
        stack.callback(session.close)
        return lambda socket: _send_descriptors(socket, session)

    async def _open_session(
        self, request: ApiRequest, pod: Object, stack: ExitStack
    ) -> Callable[[WebSocket], Awaitable[None]]:
        container = container_of(pod, request.query.get("container", ""))
        options = _read_stream_options(request.query)
        _check_upgrade(request, EXEC_PROTOCOLS)
        try:
            if request.info.subresource == "attach":
                session = await self._streams.attach(pod, container, options)
            elif options.command:
                session = await self._streams.exec(pod, container, options)
            else:
                raise errors.bad_request(_NO_COMMAND)
        except StreamUnavailable as error:
            if exec_protocol.V5 not in request.upgrade.subprotocols:
                raise errors.internal(str(error)) from error
            message = exec_protocol.error_message(str(error))
            return lambda socket: _send(socket, message)
        stack.callback(session.close)
        return lambda socket: serve_session(session, socket, options)


def _read_stream_options(query: MultiMapping[str]) -> StreamOptions:
    """The parameters of exec and attach. Each argument of the command is one of them."""
    tty = read_flag(query, "tty")
    options = StreamOptions(
        command=tuple(query.getall("command", ())),
        stdin=read_flag(query, "stdin"),
        stdout=read_flag(query, "stdout"),
        stderr=read_flag(query, "stderr") and not tty,
        tty=tty,
    )
    if not (options.stdin or options.stdout or options.stderr):
        raise errors.bad_request("you must specify at least 1 of stdin, stdout, stderr")
    return options


async def _send_descriptors(socket: WebSocket, session: PreparedExec) -> None:
    socket.send_descriptors(session.descriptors)
    session.close()
    await socket.close()


async def _send(socket: WebSocket, message: bytes) -> None:
    await socket.send(message)
    await socket.close()


def _check_upgrade(request: ApiRequest, served: tuple[str, ...]) -> None:
    upgrade, subresource = request.upgrade, request.info.subresource
    if upgrade.protocol.startswith("spdy"):
        command = "port-forward" if subresource == "portforward" else subresource
        raise errors.bad_request(
            f"{command} over SPDY is not served by the embedded cluster, which speaks WebSocket: use kubectl 1.30 or "
            "newer (KUBECTL_REMOTE_COMMAND_WEBSOCKETS and KUBECTL_PORT_FORWARD_WEBSOCKETS must not be false)"
        )
    if upgrade.protocol != "websocket" or request.verb != "get":
        raise errors.bad_request(f"Upgrade request required: {subresource} needs a WebSocket")
    if not set(upgrade.subprotocols) & set(served):
        offered = ", ".join(upgrade.subprotocols) or "none"
        raise errors.bad_request(f"no common subprotocol: the client offers {offered}, the server {', '.join(served)}")
