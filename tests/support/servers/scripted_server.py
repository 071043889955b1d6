"""A real HTTP server on loopback with prepared answers, for tests that need a socket."""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from tests.support.servers.accepted_connections import wait_for_accepted
from trainwright.kube.client.kubeconfig import ClusterConfig

Answer = Callable[[web.BaseRequest, asyncio.Event], Awaitable[web.StreamResponse]]
"""Answers a request; the event is set when the test is over."""


@dataclass(frozen=True)
class Seen:
    """A request that has arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int


class ScriptedServer:
    """Gives one prepared answer per request, in order, and records the requests."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.url = ""
        self._answers: deque[Answer] = deque()
        self._connections: dict[Any, int] = {}
        self._over = asyncio.Event()

    @property
    def config(self) -> ClusterConfig:
        return ClusterConfig(server=self.url, token="t")

    def will(self, *answers: Answer) -> None:
        self._answers.extend(answers)

    def close(self) -> None:
        self._over.set()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        number = self._connections.setdefault(request.transport, len(self._connections))
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append(Seen(request.method, request.path_qs, headers, await request.read(), number))
        if not self._answers:
            return web.json_response({"kind": "Status", "code": 500, "message": "no answer was prepared"}, status=500)
        return await self._answers.popleft()(request, self._over)


@asynccontextmanager
async def scripted_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer()
    runner = web.ServerRunner(web.Server(server.handle), shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"{'https' if tls else 'http'}://{host}:{port}"
    try:
        yield server
    finally:
        server.close()
        await wait_for_accepted()
        await runner.cleanup()


def answer(body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    """JSON, or bytes as they are."""

    async def give(_: web.BaseRequest, __: asyncio.Event) -> web.StreamResponse:
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return web.Response(body=content, status=status, headers=headers, content_type="application/json")

    return give


def stream(*chunks: bytes, then: str = "end") -> Answer:
    """Chunks one by one, and then: `end`, `break` (the connection is cut) or `hang` (silence)."""

    async def give(request: web.BaseRequest, over: asyncio.Event) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if then == "break":
            assert request.transport
            request.transport.abort()
        if then == "hang":
            await over.wait()
        return response

    return give


async def cut(request: web.BaseRequest, _: asyncio.Event) -> web.StreamResponse:
    """No answer: the connection is cut once the request has been read."""
    assert request.transport
    request.transport.abort()
    return web.Response()
