"""A command that runs in a pod, over a WebSocket: what `kubectl exec` does."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import yarl

from trainwright.kube.client import exec_protocol
from trainwright.kube.client.errors import Unreachable, error_from_answer
from trainwright.kube.client.exec_protocol import Ended, Output
from trainwright.kube.client.requests import CONNECT_TIMEOUT

_START_SECONDS = 60.0
_HEARTBEAT_SECONDS = 30.0
_FAREWELL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a command has ended and what it has written."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class Running:
    """The command while it runs. Read `output` to its end; then `exit_code` is there."""

    def __init__(self, socket: "aiohttp.ClientWebSocketResponse[Any]", server: str) -> None:
        self._socket = socket
        self._server = server
        self._exit_code: int | None = None

    @property
    def exit_code(self) -> int:
        if self._exit_code is None:
            raise RuntimeError("the command has not ended yet: read its output to the end")
        return self._exit_code

    async def output(self) -> AsyncGenerator[Output, None]:
        """What the command writes, until it ends. What could not be started is raised as ApiError."""
        while True:
            message = await self._socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                raise Unreachable(f"lost the connection to {self._server} before the command has ended")
            match exec_protocol.read_message(message.data):
                case Output() as said:
                    yield said
                case Ended(code):
                    self._exit_code = code
                    return

    async def write(self, data: bytes) -> None:
        for message in exec_protocol.input_messages(data):
            await self._socket.send_bytes(message)

    async def end_input(self) -> None:
        """The command sees the end of its standard input."""
        self._check_that_input_can_end()
        await self._socket.send_bytes(exec_protocol.END_OF_INPUT)

    async def close(self) -> None:
        """Leaves the command; one that still runs learns of it by its closed streams."""
        await self._socket.close()

    async def resize(self, width: int, height: int) -> None:
        """The terminal has another size now."""
        await self._socket.send_bytes(exec_protocol.resize_message(width, height))

    async def result(self, stdin: bytes | None = None) -> ExecResult:
        """Feeds the whole input and gathers the whole output."""
        if stdin is not None:
            self._check_that_input_can_end()
        feeding = asyncio.create_task(self._feed(stdin))
        gathered: dict[bool, list[bytes]] = {False: [], True: []}
        try:
            async for said in self.output():
                gathered[said.is_error].append(said.data)
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
        return ExecResult(self.exit_code, b"".join(gathered[False]), b"".join(gathered[True]))

    async def _feed(self, stdin: bytes | None) -> None:
        if stdin is not None:
            await self.write(stdin)
            await self.end_input()

    def _check_that_input_can_end(self) -> None:
        if self._socket.protocol != exec_protocol.V5:
            raise Unreachable(
                f"{self._server} cannot be told where the input ends (it speaks {self._socket.protocol}): "
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
) -> Running:
    """Starts the command that `url` describes. A refusal is raised as ApiError; `close` must follow."""
    refusal = b""

    async def once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """Keeps the library from sending the request twice, and from throwing away the body that says why not."""
        nonlocal refusal
        try:
            answer = await send(request)
        except (aiohttp.ClientError, OSError) as error:
            raise _FailedError from error
        if answer.status != 101:
            refusal = await answer.read()
        return answer

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
                timeout=aiohttp.ClientWSTimeout(ws_close=_FAREWELL_SECONDS),
            )
        except _FailedError as failed:
            raise failed.__cause__ or failed from None
        except aiohttp.WSServerHandshakeError as error:
            if error.status == 101:
                raise Unreachable(f"{server} does not speak WebSocket as it should: {error.message}") from None
            raise error_from_answer(error.status, refusal) from None
    if socket.protocol is None:
        await socket.close()
        raise Unreachable(f"{server} speaks neither {exec_protocol.V5} nor {exec_protocol.V4}")
    return Running(socket, server)


class _FailedError(Exception):
    """There was no answer; the cause says why."""
