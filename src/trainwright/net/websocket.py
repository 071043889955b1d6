"""WebSockets of our servers; messages are bytes."""

import asyncio
import socket
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Protocol

from aiohttp import WSCloseCode, WSMsgType, web

_MAX_MESSAGE_BYTES = 16 * 2**20
_CLOSE_SECONDS = 2.0
_ONE_BYTE = b"\x82\x01\x00"
"""The frame of a message of one byte: descriptors cannot be sent without data."""


class WebSocket(Protocol):
    """A connection that was upgraded."""

    @property
    def protocol(self) -> str:
        """The subprotocol that was agreed on."""
        ...

    async def receive(self) -> bytes | None:
        """The next message; None if the client has closed the connection."""
        ...

    async def send(self, message: bytes) -> None:
        """Waits while the client does not read."""
        ...

    def send_descriptors(self, descriptors: Sequence[int]) -> None:
        """Sends copies of them, with a message of one byte. Only over a Unix socket, and before other messages."""
        ...

    async def pong(self) -> None:
        """Shows the client that the connection works while no message is received, and so no ping is answered."""
        ...

    async def close(self) -> None: ...


def requested_protocols(header: str) -> list[str]:
    """The subprotocols in a Sec-WebSocket-Protocol header."""
    return [name.strip() for name in header.split(",") if name.strip()]


async def accept(request: web.BaseRequest, protocols: Collection[str]) -> "AcceptedWebSocket":
    """Upgrades the connection."""
    response = web.WebSocketResponse(
        protocols=protocols, compress=False, max_msg_size=_MAX_MESSAGE_BYTES, timeout=_CLOSE_SECONDS
    )
    await response.prepare(request)
    return AcceptedWebSocket(response, request.transport)


class AcceptedWebSocket:
    def __init__(self, response: web.WebSocketResponse, transport: asyncio.Transport | None) -> None:
        self.response = response
        self._transport = transport

    @property
    def protocol(self) -> str:
        return self.response.ws_protocol or ""

    async def receive(self) -> bytes | None:
        message = await self.response.receive()
        if message.type is WSMsgType.TEXT:  # the Python client sends text as such
            return str(message.data).encode()
        return bytes(message.data) if message.type is WSMsgType.BINARY else None

    async def send(self, message: bytes) -> None:
        await self.response.send_bytes(message)

    def send_descriptors(self, descriptors: Sequence[int]) -> None:
        # The transport cannot send them. What it has not sent itself must not be overtaken.
        if self._transport is None or self._transport.is_closing() or self._transport.get_write_buffer_size():
            raise ConnectionResetError("the client does not read")
        with self._transport.get_extra_info("socket").dup() as connection:
            try:
                socket.send_fds(connection, [_ONE_BYTE], descriptors)
            except BlockingIOError as error:
                raise ConnectionResetError("the client does not read") from error

    async def pong(self) -> None:
        await self.response.pong()

    async def close(self, *, going_away: bool = False) -> None:
        """Waits a moment for the client to confirm."""
        with suppress(ConnectionError, asyncio.TimeoutError):
            await self.response.close(code=WSCloseCode.GOING_AWAY if going_away else WSCloseCode.OK)
