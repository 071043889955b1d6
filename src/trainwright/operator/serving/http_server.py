"""The HTTP servers of the operator process: metrics, health and admission webhooks."""

import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from trainwright.net.http_server import BodyTooLargeError, HttpServer, listen, read_body
from trainwright.operator.options import OperatorError

_MAX_BODY_BYTES = 8 * 2**20
"""An AdmissionReview contains an object twice, and an object has at most 1.5 MiB."""


@dataclass(frozen=True, slots=True)
class Address:
    """An address to listen on. Without a host: all addresses of the machine; port 0: any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Request:
    path: str
    query: Mapping[str, str]
    accept: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


Handler = Callable[[Request], Awaitable[Response]]


def read_address(flag: str, text: str) -> Address | None:
    """Reads `:8080`, `127.0.0.1:8080` or `[::1]:8080`, as Go writes them; None if it is `0` or empty."""
    if text in {"", "0"}:
        return None
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65535 or (":" in bare and bare == host):
        raise OperatorError(f'{flag}: {text!r} is not an address: write HOST:PORT, :PORT, or "0" for none')
    return Address(bare, int(port))


@asynccontextmanager
async def serving(
    flag: str, address: Address, handler: Handler, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serves all paths by `handler` until the block ends; yields the port. Errors name the flag."""

    async def handle(request: web.BaseRequest) -> web.Response:
        try:
            body = await read_body(request, _MAX_BODY_BYTES)
        except BodyTooLargeError:
            return web.Response(status=413, text=f"the body has more than {_MAX_BODY_BYTES} bytes\n")
        response = await handler(Request(request.path, request.query, request.headers.get("Accept", ""), body))
        return web.Response(status=response.status, body=response.body, headers={"Content-Type": response.content_type})

    server = HttpServer(handle, tls=tls)
    try:
        try:
            port = await server.start(await listen(address.host or None, address.port))
        except OSError as error:
            raise OperatorError(
                f"{flag}: cannot listen on {address}: {_reason(error)}; set another address, or 0 for none"
            ) from None
        yield port
    finally:
        await server.close()


def route(handlers: Mapping[str, Handler]) -> Handler:
    """Selects a handler by path. A path that ends in `/` matches all paths below it. The response for any other path is
    404."""

    async def handle(request: Request) -> Response:
        handler = handlers.get(request.path) or next(
            (handler for path, handler in handlers.items() if path.endswith("/") and request.path.startswith(path)),
            None,
        )
        return await handler(request) if handler else Response(404, b"404 page not found\n")

    return handle


def _reason(error: OSError) -> str:
    """The operating system's message; asyncio's repeats the address."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
