"""Connects a WebSocket with ports of a pod.

kubectl sends SPDY/3.1 through the WebSocket: for every connection an error stream and a data stream. The Python client
uses two channels per port instead, as in exec: data and errors.
"""

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from trainwright.cluster.apiserver.http.streams.node_interface import PodStreams
from trainwright.kube.client import exec_protocol
from trainwright.net.spdy import (
    DataReceived,
    GoingAway,
    Reply,
    SpdyConnection,
    SpdyError,
    StreamFinished,
    StreamOpened,
    StreamReset,
)
from trainwright.net.websocket import WebSocket
from trainwright.objects import Object
from trainwright.objects.kinds.pod_subresources import StreamUnavailable

log = logging.getLogger(__name__)

TUNNEL = "SPDY/3.1+portforward.k8s.io"
PROTOCOLS = (TUNNEL, exec_protocol.V4)

_CHUNK = 32 * 1024
_MAX_CONNECTIONS = 128
"""How many connections of one port-forward are open at the same time."""
_MAX_PORTS = 100

Connect = Callable[[int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def serve_port_forward(streams: PodStreams, pod: Object, ports: Sequence[int], socket: WebSocket) -> None:
    """Returns when the client has closed the connection. `ports` are those of channels."""
    metadata = pod["metadata"]

    async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await streams.connect(pod, port)
        except StreamUnavailable as error:
            text = f"error forwarding port {port} to pod {metadata['name']}_{metadata['namespace']}, uid : {error}"
            raise StreamUnavailable(text) from error

    if socket.protocol == TUNNEL:
        await _Tunnel(connect, socket).serve()
    else:
        await _Channels(connect, ports, socket).serve()


class _Tunnel:
    """SPDY in a WebSocket. A slow process of the pod slows down the whole tunnel: nothing is queued here."""

    def __init__(self, connect: Connect, socket: WebSocket) -> None:
        self._connect = connect
        self._socket = socket
        self._spdy = SpdyConnection()
        self._errors: dict[str, int] = {}
        """Request id -> error stream whose data stream has not been opened yet."""
        self._forwards: dict[int, _Forward] = {}
        """By data stream."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        try:
            while (message := await self._socket.receive()) is not None:
                for event in self._spdy.feed(message):
                    match event:
                        case StreamOpened(stream, headers):
                            await self._open(stream, dict(headers))
                        case DataReceived(stream, data) if stream in self._forwards:
                            await self._forwards[stream].write(data)
                        case StreamFinished(stream) if stream in self._forwards:
                            await self._forwards[stream].finish()
                        case StreamReset(stream) if stream in self._forwards:
                            self._forwards[stream].task.cancel()
                        case Reply(data):
                            await self._socket.send(data)
                        case GoingAway():
                            return
        except SpdyError as error:
            log.warning("port-forward: %s", error)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._socket.close()

    async def _open(self, stream: int, headers: dict[str, str]) -> None:
        request, kind, port = (headers.get(name, "") for name in ("requestid", "streamtype", "port"))
        if kind == "error" and len(self._errors) < _MAX_CONNECTIONS:
            self._errors[request] = stream
        elif kind == "data" and request in self._errors and _is_port(port) and len(self._forwards) < _MAX_CONNECTIONS:
            error_stream = self._errors.pop(request)
            forward = _Forward()
            forward.task = asyncio.create_task(self._forward(forward, stream, error_stream, int(port)))
            self._forwards[stream] = forward
            self._tasks.add(forward.task)
            forward.task.add_done_callback(self._tasks.discard)
        else:
            await self._socket.send(self._spdy.reset(stream))
            return
        await self._socket.send(self._spdy.reply(stream))

    async def _forward(self, forward: "_Forward", stream: int, error_stream: int, port: int) -> None:
        error = b""
        try:
            reader, writer = await self._connect(port)
            forward.opened(writer)
            while data := await reader.read(_CHUNK):
                await self._socket.send(self._spdy.data(stream, data))
                await asyncio.sleep(0)  # lets other tasks run
        except StreamUnavailable as unavailable:
            error = str(unavailable).encode()
        except ConnectionError as lost:
            error = f"error forwarding port {port}: {lost.strerror or lost}".encode()
        finally:
            del self._forwards[stream]
            forward.close()
        await self._socket.send(self._spdy.data(error_stream, error, finish=True))
        await self._socket.send(self._spdy.data(stream, b"", finish=True))


class _Forward:
    """One forwarded connection."""

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self._connected = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None

    def opened(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._connected.set()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None
        self._connected.set()

    async def write(self, data: bytes) -> None:
        """Waits for the connection and until the process of the pod has read enough."""
        await self._connected.wait()
        if self._writer is not None:
            with suppress(ConnectionError):
                self._writer.write(data)
                await self._writer.drain()

    async def finish(self) -> None:
        """The client sends no more data."""
        await self._connected.wait()
        if self._writer is not None:
            with suppress(OSError):
                self._writer.write_eof()


class _Channels:
    """Channel 2n has the data of the n-th port, channel 2n+1 its errors; each begins with the number of the port."""

    def __init__(self, connect: Connect, ports: Sequence[int], socket: WebSocket) -> None:
        self._connect = connect
        self._ports = ports
        self._socket = socket
        self._forwards = [_Forward() for _ in ports]

    async def serve(self) -> None:
        tasks = [asyncio.create_task(self._forward(index, port)) for index, port in enumerate(self._ports)]
        try:
            while (message := await self._socket.receive()) is not None:
                if message and message[0] % 2 == 0 and message[0] // 2 < len(tasks) and len(message) > 1:
                    await self._forwards[message[0] // 2].write(message[1:])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._socket.close()

    async def _forward(self, index: int, port: int) -> None:
        data_channel, error_channel = bytes([2 * index]), bytes([2 * index + 1])
        for channel in (data_channel, error_channel):
            await self._socket.send(channel + struct.pack("<H", port))
        forward = self._forwards[index]
        try:
            reader, writer = await self._connect(port)
            forward.opened(writer)
            while data := await reader.read(_CHUNK):
                await self._socket.send(data_channel + data)
                await asyncio.sleep(0)  # lets other tasks run
        except StreamUnavailable as error:
            await self._socket.send(error_channel + str(error).encode())
        finally:
            forward.close()
        if len(self._ports) == 1:
            await self._socket.close()


def read_ports(texts: Sequence[str]) -> list[int]:
    """The `ports` of a request: every one of them is a list separated by commas."""
    found = [text for several in texts for text in several.split(",") if text]
    return [int(text) for text in found if _is_port(text)][:_MAX_PORTS]


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 5 and 0 < int(text) < 65536
