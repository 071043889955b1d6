"""The sockets of one client's connections: watched over while they live, and ended with the client.

The pool of connections forgets one as soon as the request that used it is cancelled. Over TLS such a connection still
waits for the server's farewell, or, if it was cancelled early in the handshake, was not closed at all.
"""

import asyncio
import socket
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from trainwright.kube.client.keepalive import watch_over

# A socket that was shut down is noticed and closed in two or three rounds of the event loop; where a handshake had not
# begun, in some more. Whoever still waits for a connection then is not closed by us.
_ROUNDS = 50


class Connections:
    """Makes the sockets for a pool of connections, and knows those that are open."""

    def __init__(self) -> None:
        self._known: WeakSet[socket.socket] = WeakSet()

    def make_socket(self, address: tuple[Any, ...]) -> socket.socket:
        """For an address as getaddrinfo describes it."""
        family, kind, protocol, *_ = address
        made = socket.socket(family, kind, protocol)
        watch_over(made)
        self.add(made)
        return made

    def add(self, connection: socket.socket) -> None:
        """For one that was made elsewhere."""
        self._known.add(connection)

    async def end(self) -> None:
        """Hangs up wherever the pool has not. The event loop may be closed after that: none is left open in it."""
        for connection in self._open():
            # The event loop sees the end of the stream then, and closes the transport that nobody else knows.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for _ in range(_ROUNDS):
            if not self._open():
                return
            await asyncio.sleep(0)

    def _open(self) -> list[socket.socket]:
        return [known for known in self._known if known.fileno() != -1]
