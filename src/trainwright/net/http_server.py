"""The HTTP edge of all our servers: listening, TLS, limits on connections, keep-alive and a graceful stop.

A server may have a Unix socket too, without TLS: the files of this machine are its access control.

Handlers are aiohttp's; `websocket` upgrades connections. A client that has not authenticated costs little: its
handshake and its first request have a deadline, and only so many of such connections are open. When there are more, new
ones wait a moment, then the oldest is closed: no crowd of idle clients keeps others out, and a burst is served.
"""

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

logger = logging.getLogger(__name__)

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_BACKLOG = 4096
_BODY_SECONDS = 60.0
_CROWDED_SECONDS = 0.05
_NO_DESCRIPTORS_SECONDS = 1.0
"""Until the next attempt to accept a connection if the process has no descriptor left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    connections: int = 4096
    unauthenticated: int = 256
    """Connections without an authenticated request; all connections of a server without authentication."""
    eviction_seconds: float = 0.25
    """How old such a connection has to be to be closed for a new one."""
    request_seconds: float = 10.0
    """For the TLS handshake, and then for the first request to arrive."""
    keepalive_seconds: float = 90.0
    line_bytes: int = 128 * 1024
    """The most bytes of the first line of a request, and of each header."""


class HttpServer:
    """Serves all paths by `handler`. `cancel_handlers`: a handler is cancelled when its client disconnects."""

    def __init__(
        self,
        handler: Handler,
        *,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
        cancel_handlers: bool = False,
    ) -> None:
        self._tls = tls
        self._limits = limits or Limits()
        self._handler = handler
        self._cancel_handlers = cancel_handlers
        self._server: _ConnectionTracker | None = None
        self._listeners: list[socket.socket] = []
        self._unix_socket: Path | None = None
        self._handshakes: dict[asyncio.Task[None], float] = {}
        """With the time of their start, the oldest first."""

    async def start(self, listeners: list[socket.socket], unix_socket: Path | None = None) -> int:
        """Serves connections to the sockets of `listen`, which it closes at the end; returns their port."""
        self._server = _ConnectionTracker(self._handler, self._limits, cancel_handlers=self._cancel_handlers)
        self._listeners = [*listeners]
        if unix_socket is not None:
            self._listeners.append(_listen_on_file(unix_socket))
            self._unix_socket = unix_socket
        self._resume()
        return int(self._listeners[0].getsockname()[1])

    def authenticated(self, request: web.BaseRequest) -> None:
        """To be called for a request whose client has proved who it is."""
        if self._server is not None:
            self._server.authenticated(request.protocol)

    def stop_listening(self) -> None:
        """Accepts what is waiting and closes the listeners."""
        for listener in self._listeners:
            while self._accept(listener):
                pass
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        self._listeners = []
        if self._unix_socket is not None:
            self._unix_socket.unlink(missing_ok=True)

    async def close(self, *, grace_seconds: float = 1.0) -> None:
        """Stops listening, finishes the responses in progress within the grace period, then closes all connections."""
        self.stop_listening()
        if self._handshakes:
            await asyncio.wait(self._handshakes, timeout=grace_seconds)
        for task in self._handshakes:
            task.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)
        if self._server is not None:
            await self._server.close(grace_seconds)

    def _resume(self) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.add_reader(listener, self._accept, listener)

    def _pause(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.remove_reader(listener)
        loop.call_later(seconds, self._resume)

    def _accept(self, listener: socket.socket) -> bool:
        """Accepts one connection; False if none is waiting or none can be accepted."""
        assert self._server is not None  # noqa: S101 - set before the first listener
        if len(self._handshakes) + self._server.count >= self._limits.connections:
            self._pause(_NO_DESCRIPTORS_SECONDS)
            return False
        if not self._make_room():
            self._pause(_CROWDED_SECONDS)
            return False
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            if error.errno not in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                raise
            logger.error("cannot accept a connection: %s", error.strerror)
            self._pause(_NO_DESCRIPTORS_SECONDS)
            return False
        connection.setblocking(False)
        task = asyncio.create_task(self._handshake(connection))
        self._handshakes[task] = asyncio.get_running_loop().time()
        task.add_done_callback(partial(self._handshake_done, connection))
        return True

    def _make_room(self) -> bool:
        """Closes the oldest connection without authentication if there are too many; False if all are young."""
        assert self._server is not None  # noqa: S101 - set before the first listener
        if len(self._handshakes) + self._server.unauthenticated_count < self._limits.unauthenticated:
            return True
        limit = asyncio.get_running_loop().time() - self._limits.eviction_seconds
        oldest, started = next(iter(self._handshakes.items()), (None, limit))
        if oldest is not None and started <= limit:
            del self._handshakes[oldest]  # now: the next connection is accepted before the task has ended
            oldest.cancel()
            return True
        return self._server.close_oldest(before=limit)

    async def _handshake(self, connection: socket.socket) -> None:
        assert self._server is not None  # noqa: S101 - set before the first listener
        tls = None if connection.family == socket.AF_UNIX else self._tls
        timeout = self._limits.request_seconds if tls else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._server, connection, ssl=tls, ssl_handshake_timeout=timeout
            )
        except OSError:  # ssl.SSLError too: the client does not trust us, speaks no TLS, or has gone
            connection.close()

    def _handshake_done(self, connection: socket.socket, task: "asyncio.Task[None]") -> None:
        self._handshakes.pop(task, None)
        if task.cancelled():
            connection.close()
        elif (error := task.exception()) is not None:
            logger.error("failed to accept a connection", exc_info=error)


class _WithoutMalformedRequests(logging.Filter):
    """aiohttp logs a traceback for each of them; the client gets a 400."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_protocol_logger = logging.getLogger(f"{__name__}.protocol")
_protocol_logger.addFilter(_WithoutMalformedRequests())


class _ConnectionTracker(web.Server):
    """aiohttp's server, which knows the connections that have not authenticated yet."""

    def __init__(self, handler: Handler, limits: Limits, *, cancel_handlers: bool) -> None:
        super().__init__(
            self._handle,
            handler_cancellation=cancel_handlers,
            access_log=None,
            logger=_protocol_logger,
            keepalive_timeout=limits.keepalive_seconds,
            max_line_size=limits.line_bytes,
            max_field_size=limits.line_bytes,
            auto_decompress=False,  # as Go's servers: a few kilobytes could become gigabytes
        )
        self._actual_handler = handler
        self._limits = limits
        self._transports: dict[Any, asyncio.Transport] = {}
        self._unauthenticated: dict[Any, asyncio.TimerHandle] = {}
        """Connection -> the deadline of its first request; the oldest first."""

    @property
    def count(self) -> int:
        return len(self._transports)

    @property
    def unauthenticated_count(self) -> int:
        return len(self._unauthenticated)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._transports[handler] = transport
        loop = asyncio.get_running_loop()
        self._unauthenticated[handler] = loop.call_later(self._limits.request_seconds, _abort, transport)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        self.authenticated(handler)
        self._transports.pop(handler, None)
        super().connection_lost(handler, exc)

    def authenticated(self, handler: Any) -> None:
        deadline = self._unauthenticated.pop(handler, None)
        if deadline is not None:
            deadline.cancel()

    async def close(self, grace_seconds: float) -> None:
        transports = list(self._transports.values())
        await asyncio.sleep(0)  # requests that have just arrived are started
        self.pre_shutdown()
        await self.shutdown(grace_seconds)
        for transport in transports:  # with TLS a graceful close waits for clients that never close
            _abort(transport)
        await asyncio.sleep(0)  # the event loop closes aborted transports in its next iteration

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        deadline = self._unauthenticated.get(request.protocol)
        if deadline is not None:
            deadline.cancel()
        return await self._actual_handler(request)

    def close_oldest(self, *, before: float) -> bool:
        """Closes the oldest connection without authentication; False if it was made later."""
        oldest, deadline = next(iter(self._unauthenticated.items()), (None, None))
        if deadline is None or deadline.when() - self._limits.request_seconds > before:
            return False
        transport = self._transports.get(oldest)
        self.authenticated(oldest)
        if transport is not None:
            _abort(transport)
        return True


def _abort(transport: asyncio.Transport) -> None:
    # Debian's Python 3.11.2 raises it for TLS connections that were closed twice, and aiohttp closes some twice.
    with suppress(AttributeError):
        transport.abort()


class BodyTooLargeError(Exception):
    """The body of a request is larger than the server accepts."""


async def read_body(request: web.BaseRequest, limit: int) -> bytes:
    """Raises TimeoutError if the body does not arrive in time."""
    if not request.body_exists:
        return b""
    chunks = []
    size = 0
    async with asyncio.timeout(_BODY_SECONDS):
        async for chunk in request.content.iter_any():
            size += len(chunk)
            if size > limit:
                raise BodyTooLargeError
            chunks.append(chunk)
    return b"".join(chunks)


def is_local(request: web.BaseRequest) -> bool:
    """True for a request over a Unix socket."""
    # The socket of a connection with TLS is None as soon as its client has gone.
    connection = request.transport.get_extra_info("socket") if request.transport else None
    return connection is not None and connection.family == socket.AF_UNIX


async def listen(host: str | None, port: int) -> list[socket.socket]:
    """Sockets for all addresses of the host, None for those of the machine, on the same port; 0 chooses a free one."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listeners: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                listener = socket.socket(family, kind, protocol)
            except OSError:
                continue  # the machine has no IPv6
            listeners.append(listener)
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            chosen = port or (listeners[0].getsockname()[1] if len(listeners) > 1 else 0)
            listener.bind((address[0], chosen, *address[2:]))
            listener.listen(_BACKLOG)
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    if not listeners:
        raise OSError(errno.EADDRNOTAVAIL, f"{host} has no address")
    return listeners


def _listen_on_file(path: Path) -> socket.socket:
    """A Unix socket that every user may connect to who can reach its directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # of a process that was killed
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        # By the directory's descriptor, because the path of a socket is limited to 107 characters.
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            listener.bind(f"/proc/self/fd/{directory}/{path.name}")
        finally:
            os.close(directory)
        path.parent.chmod(0o755)
        path.chmod(0o666)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
