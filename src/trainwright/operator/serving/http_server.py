"""The small HTTP servers of the operator's process: where they listen, and which page answers which path."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from trainwright.net.accepted_connections import all_accepted
from trainwright.operator.options import OperatorError

_LARGEST_BODY = 8 * 2**20
"""An AdmissionReview carries an object twice, and an object has at most 1.5 MiB."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. Without a host: on all of the machine's addresses; port 0: on any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Call:
    """A request as the pages see it."""

    path: str
    query: Mapping[str, str]
    accept: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


Page = Callable[[Call], Awaitable[Reply]]


def read_address(flag: str, text: str) -> Address | None:
    """`:8080`, `127.0.0.1:8080` or `[::1]:8080`, as Go writes them; None for `0` and the empty text: switched off."""
    if text in {"", "0"}:
        return None
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65535 or (":" in bare and bare == host):
        raise OperatorError(f'{flag}: {text!r} is not an address: write HOST:PORT, :PORT, or "0" for none')
    return Address(bare, int(port))


@asynccontextmanager
async def serving(what: str, address: Address, page: Page, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serves `page` under all paths until the block ends; yields the port. `what` names the flag if it cannot."""

    async def handle(request: web.BaseRequest) -> web.Response:
        call = Call(request.path, request.query, request.headers.get("Accept", ""), await request.read())
        reply = await page(call)
        return web.Response(status=reply.status, body=reply.body, headers={"Content-Type": reply.content_type})

    async with AsyncExitStack() as stack:
        server = web.Server(handle, request_factory=_request, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await runner.setup()
        stack.push_async_callback(_close, runner, server)
        site = web.TCPSite(runner, address.host or None, address.port, ssl_context=tls)
        try:
            await site.start()
        except OSError as error:
            raise OperatorError(
                f"{what}: cannot listen on {address}: {_reason(error)}; name another, or 0 for none"
            ) from None
        yield int(runner.addresses[0][1])


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    """As the library makes it, but for how much may be in it: that cannot be said in another way."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_LARGEST_BODY)


async def _close(runner: web.ServerRunner, server: web.Server) -> None:
    """Lets answers under way go out, then hangs up: over TLS a client that never says goodbye would be waited for."""
    transports = [connection.transport for connection in server.connections]
    await all_accepted()
    await runner.cleanup()
    for transport in transports:
        if transport is not None:
            transport.abort()
    await asyncio.sleep(0)  # it takes the event loop's next round


def first_of(pages: Mapping[str, Page]) -> Page:
    """One page for each path; a path ending in `/` stands for all below it. Every other path is not found."""

    async def choose(call: Call) -> Reply:
        page = pages.get(call.path) or next(
            (page for path, page in pages.items() if path.endswith("/") and call.path.startswith(path)), None
        )
        return await page(call) if page else Reply(404, b"404 page not found\n")

    return choose


def _reason(error: OSError) -> str:
    """The system's own words: those of asyncio repeat the address."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
