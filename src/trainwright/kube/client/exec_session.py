"""A session of `exec`: a command in a container, over a WebSocket."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import yarl

from trainwright.kube.client import exec_protocol
from trainwright.kube.client.errors import Unreachable, error_from_response
from trainwright.kube.client.exec_protocol import Ended, Output
from trainwright.kube.client.requests import CONNECT_TIMEOUT

_START_SECONDS = 60.0
_HEARTBEAT_SECONDS = 30.0
_CLOSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ExecResult:
    """Exit code and output of a command."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class ExecSession:
    """A running command. `exit_code` is available when `output` has been read to its end."""

    def __init__(self, socket: "aiohttp.ClientWebSocketResponse[Any]", server: str) -> None:
        self._socket = socket
        self._server = server
        self._exit_code: int | None = None

    @property
    def exit_code(self) -> int:
        if self._exit_code is None:
            raise RuntimeError("the command has not exited yet: read its output to the end")
        return self._exit_code

    async def output(self) -> AsyncGenerator[Output, None]:
        """The output of the command until it exits. Raises ApiError if the command cannot be started."""
        while True:
            message = await self._socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                raise Unreachable(f"lost the connection to {self._server} before the command has exited")
            match exec_protocol.read_message(message.data):
                case Output() as output:
                    yield output
                case Ended(code):
                    self._exit_code = code
                    return

    async def write(self, data: bytes) -> None:
        for message in exec_protocol.input_messages(data):
            await self._socket.send_bytes(message)

    async def close_stdin(self) -> None:
        self._check_protocol()
        await self._socket.send_bytes(exec_protocol.END_OF_INPUT)

    async def close(self) -> None:
        """Closes the streams of the command, which may go on running."""
        await self._socket.close()

    async def resize(self, width: int, height: int) -> None:
        await self._socket.send_bytes(exec_protocol.resize_message(width, height))

    async def result(self, stdin: bytes | None = None) -> ExecResult:
        """Writes `stdin` and reads all output."""
        if stdin is not None:
            self._check_protocol()
        writing = asyncio.create_task(self._write_stdin(stdin))
        streams: dict[bool, list[bytes]] = {False: [], True: []}
        try:
            async for output in self.output():
                streams[output.is_error].append(output.data)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
        return ExecResult(self.exit_code, b"".join(streams[False]), b"".join(streams[True]))

    async def _write_stdin(self, stdin: bytes | None) -> None:
        if stdin is not None:
            await self.write(stdin)
            await self.close_stdin()

    def _check_protocol(self) -> None:
        if self._socket.protocol != exec_protocol.V5:
            raise Unreachable(
                f"{self._server} does not support the end of stdin (it speaks {self._socket.protocol}): "
                "that needs Kubernetes 1.30 or newer"
            )


async def connect(
    connector: aiohttp.BaseConnector,
    url: yarl.URL,
    *,
    server: str,
    headers: Mapping[str, str],
    proxy: str | None,
    tls: ssl.SSLContext | None,
    server_name: str | None,
) -> ExecSession:
    """Starts the command that `url` describes; the caller closes the session. Raises ApiError for an error response."""
    error_body = b""

    async def once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """Keeps aiohttp from sending the request twice and from dropping the body of an error response."""
        nonlocal error_body
        try:
            response = await send(request)
        except (aiohttp.ClientError, OSError) as error:
            raise _FailedError from error
        if response.status != 101:
            error_body = await response.read()
        return response

    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=_START_SECONDS)
    async with aiohttp.ClientSession(
        connector=connector, connector_owner=False, middlewares=[once], auto_decompress=False, timeout=timeout
    ) as session:
        try:
            socket = await session.ws_connect(
                url,
                protocols=(exec_protocol.V5, exec_protocol.V4),
                headers=headers,
                proxy=proxy,
                ssl=tls or True,
                server_hostname=server_name,
                heartbeat=_HEARTBEAT_SECONDS,
                timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_SECONDS),
            )
        except _FailedError as failed:
            raise failed.__cause__ or failed from None
        except aiohttp.WSServerHandshakeError as error:
            if error.status == 101:
                raise Unreachable(f"{server} violates the WebSocket protocol: {error.message}") from None
            raise error_from_response(error.status, error_body) from None
    if socket.protocol is None:
        await socket.close()
        raise Unreachable(f"{server} speaks neither {exec_protocol.V5} nor {exec_protocol.V4}")
    return ExecSession(socket, server)


class _FailedError(Exception):
    """There was no response; `__cause__` says why."""
