"""WebSockets of our servers; messages are bytes."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Protocol

from aiohttp import WSCloseCode, WSMsgType, web

_MAX_MESSAGE_BYTES = 16 * 2**20
_CLOSE_SECONDS = 2.0


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
    return AcceptedWebSocket(response)


class AcceptedWebSocket:
    def __init__(self, response: web.WebSocketResponse) -> None:
        self.response = response

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

    async def pong(self) -> None:
        await self.response.pong()

    async def close(self, *, going_away: bool = False) -> None:
        """Waits a moment for the client to confirm."""
        with suppress(ConnectionError, asyncio.TimeoutError):
            await self.response.close(code=WSCloseCode.GOING_AWAY if going_away else WSCloseCode.OK)
