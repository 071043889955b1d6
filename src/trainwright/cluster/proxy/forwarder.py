"""Forwards TCP connections from a listening socket to endpoints, in the event loop.

Each direction ends by itself (half-close), a slow receiver slows its sender down, and an abort is passed on as such.
"""

import asyncio
import contextlib
import logging
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trainwright.cluster.proxy.forwarded_ports import Endpoint

_MAX_CLIENTS = 10_000


@dataclass(slots=True)
class Balancer:
    endpoints: Sequence[Endpoint] = ()
    affinity_seconds: int | None = None
    _next: int = 0
    _clients: dict[str, tuple[Endpoint, float]] = field(default_factory=dict)
    """By the client's address: its endpoint, and when it was last used."""

    def update(self, endpoints: Sequence[Endpoint], affinity_seconds: int | None) -> None:
        self.endpoints, self.affinity_seconds = endpoints, affinity_seconds
        known = set(endpoints) if affinity_seconds is not None else set()
        self._clients = {client: used for client, used in self._clients.items() if used[0] in known}

    def candidates(self, client: str, now: float) -> list[Endpoint]:
        """The endpoints in the order in which to try them."""
        if not self.endpoints:
            return []
        start = self._next % len(self.endpoints)
        self._next = start + 1
        ordered = [*self.endpoints[start:], *self.endpoints[:start]]
        if self.affinity_seconds is not None and (used := self._clients.get(client)):
            endpoint, last = used
            if now - last < self.affinity_seconds and endpoint in ordered:
                return [endpoint, *(other for other in ordered if other != endpoint)]
        return ordered

    def connected(self, client: str, endpoint: Endpoint, now: float) -> None:
        if self.affinity_seconds is None:
            return
        self._clients.pop(client, None)
        self._clients[client] = (endpoint, now)
        if len(self._clients) > _MAX_CLIENTS:
            del self._clients[next(iter(self._clients))]


log = logging.getLogger(__name__)

_BACKLOG = 128
_ACCEPTS = 32
"""Connections that are accepted in one callback; the others follow in the next one."""
_CONNECT_SECONDS = 5.0
_BUFFER = 256 * 1024
"""Bytes that wait for a slow receiver before its sender is paused."""
_NO_LINGER = struct.pack("ii", 1, 0)


class ConnectionLimit:
    """Bounds the connections of all forwarders together: each needs two descriptors of this process."""

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.used = 0
        self._reported = 0.0

    def acquire(self) -> bool:
        if self.used >= self.maximum:
            if time.monotonic() - self._reported > 60:
                self._reported = time.monotonic()
                log.warning("more than %d connections to Services: refusing further ones", self.maximum)
            return False
        self.used += 1
        return True

    def release(self) -> None:
        self.used -= 1


class Forwarder:
    """Listens on one address and port until `close`. Raises OSError if it cannot."""

    def __init__(self, address: str, port: int, limit: ConnectionLimit) -> None:
        self.balancer = Balancer()
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[None]] = set()
        self._pipes: set[_Side] = set()
        self._socket = listening_socket(address, port)
        self._loop.add_reader(self._socket, self._accept)

    def update(self, endpoints: Sequence[Endpoint], affinity_seconds: int | None) -> None:
        """Existing connections stay."""
        self.balancer.update(endpoints, affinity_seconds)

    def stop_listening(self) -> None:
        """Existing connections stay."""
        self._loop.remove_reader(self._socket)
        self._socket.close()

    @property
    def has_connections(self) -> bool:
        return bool(self._pipes or self._connecting)

    def close(self, *, listening: bool = True) -> None:
        """Ends the connections too."""
        if listening:
            self.stop_listening()
        for task in self._connecting:
            task.cancel()
        for side in tuple(self._pipes):
            side.abort()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS):
            try:
                client, (address, _) = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptor is left
                log.warning("cannot accept a connection: %s", error.strerror)
                return
            client.setblocking(False)
            if not self._limit.acquire():
                reset(client)
                continue
            task = self._loop.create_task(self._connect(client, address))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self, client: socket.socket, address: str) -> None:
        upstream = None
        try:
            upstream = await self._dial_any(address)
            if upstream is None:
                reset(client)
                self._limit.release()
                return
            for connection in (client, upstream):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            for half_open in (client, upstream):
                if half_open is not None:
                    reset(half_open)
            self._limit.release()
            raise
        await self._join(client, upstream)

    async def _dial_any(self, client: str) -> socket.socket | None:
        now = self._loop.time()
        for endpoint in self.balancer.candidates(client, now):
            if (upstream := await self._dial(endpoint)) is not None:
                self.balancer.connected(client, endpoint, now)
                return upstream
        return None

    async def _dial(self, endpoint: Endpoint) -> socket.socket | None:
        upstream = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await self._loop.sock_connect(upstream, (endpoint.address, endpoint.port))
        except OSError:  # TimeoutError is one
            upstream.close()
            return None
        except BaseException:
            upstream.close()
            raise
        return upstream

    async def _join(self, client: socket.socket, upstream: socket.socket) -> None:
        def ended() -> None:
            if left in self._pipes:
                self._pipes.difference_update((left, right))
                self._limit.release()

        left, right = _Side(ended), _Side(ended)
        left.other, right.other = right, left
        self._pipes.update((left, right))
        try:
            await self._loop.connect_accepted_socket(lambda: right, upstream)
            await self._loop.connect_accepted_socket(lambda: left, client)
        except BaseException:
            for side, sock in ((left, client), (right, upstream)):
                side.abort()
                reset(sock)
            ended()
            raise
        left.start()
        right.start()


class _Side(asyncio.Protocol):
    """One of the two connections: what it receives is written to the other."""

    other: "_Side"

    def __init__(self, on_ended: Callable[[], None]) -> None:
        self._on_ended = on_ended
        self._transport: asyncio.Transport | None = None
        self._sent_eof = False
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport
            transport.set_write_buffer_limits(high=_BUFFER)
            transport.pause_reading()

    def start(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self.other.write(data)

    def eof_received(self) -> bool:
        self.other.send_eof()
        if self._sent_eof:
            self.close()
            self.other.close()
        return True  # the other direction goes on

    def pause_writing(self) -> None:
        self.other.set_reading(False)

    def resume_writing(self) -> None:
        self.other.set_reading(True)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        if self.other.is_lost:
            self._on_ended()
        elif error is not None:
            self.other.abort()
        else:
            self.other.close()

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def send_eof(self) -> None:
        self._sent_eof = True
        if self._transport is not None and not self._transport.is_closing():
            with contextlib.suppress(OSError):  # the peer has gone
                self._transport.write_eof()

    def set_reading(self, reading: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is None:
            return
        sock = self._transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._transport.abort()


def listening_socket(address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def reset(sock: socket.socket) -> None:
    """Closes the connection so that the peer sees an error, not an end."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    sock.close()
