"""A server that stops listening while clients connect."""

import asyncio
import socket
from contextlib import suppress

import pytest

from trainwright.net.accepted_connections import wait_for_accepted


class HangUp(asyncio.Protocol):
    """Whoever connects is left at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


@pytest.mark.parametrize("rounds", range(6))
async def test_accepted_connections_are_served_before_the_server_closes(rounds: int) -> None:
    """At one of these moments the connection has been accepted, and is not yet in the server's hands."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(HangUp, "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()) as client:
        client.setblocking(False)
        for _ in range(rounds):
            await asyncio.sleep(0)
        await wait_for_accepted()
        server.close()
        with suppress(ConnectionResetError):  # so ends a connection that nobody has accepted
            async with asyncio.timeout(1):
                assert await loop.sock_recv(client, 1) == b""
