"""The sockets of a client: with keepalive, small TLS buffers, and closed together with the client.

aiohttp's pool drops a connection when its request is cancelled. With TLS such a connection still waits for the server
to close it, or is not closed at all if the request was cancelled early in the handshake.
"""

import asyncio
import socket
from asyncio.sslproto import SSLProtocol
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from trainwright.kube.client.keepalive import enable_keepalive

_ROUNDS = 50
"""Maximum rounds of the event loop to wait for. It closes a socket that was shut down within two or three rounds, or a
few more if the TLS handshake had not begun."""

# asyncio reserves a buffer of this size for every TLS connection: 256 KiB by default, although a TLS record has at most
# 16 KiB. The watches and idle connections of an operator would hold several megabytes.
SSLProtocol.max_size = 64 * 1024


class Connections:
    """Creates the sockets of a connection pool and keeps track of the open ones."""

    def __init__(self) -> None:
        self._known: WeakSet[socket.socket] = WeakSet()

    def make_socket(self, address: tuple[Any, ...]) -> socket.socket:
        """`address` is an entry of getaddrinfo."""
        family, kind, protocol, *_ = address
        made = socket.socket(family, kind, protocol)
        enable_keepalive(made)
        self.add(made)
        return made

    def add(self, connection: socket.socket) -> None:
        """Adds a socket that was created elsewhere."""
        self._known.add(connection)

    async def close(self) -> None:
        """Closes what the pool has left open, so that the event loop can be closed afterwards."""
        for connection in self._open():
            # The event loop then sees the end of the stream and closes the transport.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for _ in range(_ROUNDS):
            if not self._open():
                return
            await asyncio.sleep(0)

    def _open(self) -> list[socket.socket]:
        return [known for known in self._known if known.fileno() != -1]
