"""The HTTP edge: limits on connections, deadlines, and a graceful stop."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from tests.support.cluster.embedded_apiserver import tls_for_loopback
from trainwright.net.http_server import BodyTooLargeError, HttpServer, Limits, is_local, listen, read_body

REQUEST = b"GET /%b HTTP/1.1\r\nHost: localhost\r\n\r\n"


@asynccontextmanager
async def serving(limits: Limits | None = None, *, tls: bool = False) -> AsyncIterator[int]:
    """Clients that ask for /known have authenticated. /slow takes until the block ends; /begun returns once it runs."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/known":
            server.authenticated(request)
        if request.path == "/begun":
            await begun.wait()
        if request.path == "/slow":
            begun.set()
            await ended.wait()
        try:
            return web.Response(body=await read_body(request, 1000))
        except BodyTooLargeError:
            return web.Response(status=413)

    server = HttpServer(handle, limits=limits, tls=tls_for_loopback()[0] if tls else None)
    port = await server.start(await listen("127.0.0.1", 0))
    try:
        yield port
    finally:
        asyncio.get_running_loop().call_later(0.05, ended.set)
        await server.close()


class Connection:
    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> "Connection":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def ask(self, path: bytes) -> bytes:
        """The status line of the response."""
        self._writer.write(REQUEST % path)
        async with asyncio.timeout(60):
            head = await self._reader.readuntil(b"\r\n\r\n")
        return head.partition(b"\r\n")[0]

    async def until_closed(self) -> None:
        async with asyncio.timeout(8):  # less than the deadlines that a server has by default
            with suppress(ConnectionError):
                while await self._reader.read(1000):
                    pass


async def test_connection_without_a_request_is_closed_after_its_deadline() -> None:
    async with serving(Limits(request_seconds=0.05)) as port, Connection(port) as silent:
        await silent.until_closed()


async def test_handshake_has_a_deadline() -> None:
    async with serving(Limits(request_seconds=0.05), tls=True) as port, Connection(port) as silent:
        await silent.until_closed()


@pytest.mark.parametrize("depth", [1, 10])
async def test_unix_socket_serves_without_tls_and_is_removed_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    path = tmp_path.joinpath(*["directory"] * depth, "api.sock")
    path.parent.mkdir(parents=True)
    path.touch()  # of a server that was killed
    server = HttpServer(_greet, tls=tls_for_loopback()[0])
    await server.start(await listen("127.0.0.1", 0), path)
    try:
        assert path.stat().st_mode & 0o777 == 0o666
        monkeypatch.chdir(path.parent)  # a path of a socket has at most 107 characters
        connector = aiohttp.UnixConnector(path.name)
        async with aiohttp.ClientSession(connector=connector) as client, client.get("http://localhost/") as response:
            assert await response.text() == "hello"
    finally:
        await server.close()
    assert not path.exists()


async def test_request_of_a_tls_client_that_has_gone_is_not_local() -> None:
    answers = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        await asyncio.sleep(0)  # asyncio has dropped the socket, aiohttp has not been told
        answers.append((request.transport.get_extra_info("socket"), is_local(request)))
        return web.Response()

    tls, authority = tls_for_loopback()
    server = HttpServer(handle, tls=tls)
    port = await server.start(await listen("127.0.0.1", 0))
    try:
        trusting = ssl.create_default_context(cadata=authority.decode())
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        writer.write(REQUEST % b"")
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
    finally:
        await server.close()
    assert answers == [(None, False)]


async def _greet(_request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="hello")


async def test_idle_connection_is_closed() -> None:
    async with serving(Limits(keepalive_seconds=0.05)) as port, Connection(port) as client:
        assert await client.ask(b"known") == b"HTTP/1.1 200 OK"
        await client.until_closed()


async def test_oldest_unauthenticated_connection_makes_room_for_a_new_one() -> None:
    async with serving(Limits(unauthenticated=2, eviction_seconds=0)) as port, Connection(port) as known:
        assert await known.ask(b"known") == b"HTTP/1.1 200 OK"
        async with Connection(port) as first, Connection(port) as second, Connection(port) as third:
            for client in (second, third):
                assert await client.ask(b"") == b"HTTP/1.1 200 OK"
            await first.until_closed()
            assert await known.ask(b"") == b"HTTP/1.1 200 OK"


async def test_silent_handshakes_do_not_keep_others_out() -> None:
    async with serving(Limits(unauthenticated=3, eviction_seconds=0.05, request_seconds=600), tls=True) as port:
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        connector = aiohttp.TCPConnector(ssl=False)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.timeout(60):
            response = await session.get(f"https://127.0.0.1:{port}/known")
            assert response.status == 200
        for connection in silent:
            connection.close()


async def test_every_old_handshake_makes_room_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwright.net.http_server._CROWDED_SECONDS", 600)
    async with serving(Limits(unauthenticated=3, eviction_seconds=0, request_seconds=600), tls=True) as port:
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session, asyncio.timeout(60):
            response = await session.get(f"https://127.0.0.1:{port}/known")
            assert response.status == 200
        for connection in silent:
            connection.close()


async def test_burst_of_clients_is_served() -> None:
    async with serving(Limits(unauthenticated=5), tls=True) as port:

        async def ask() -> int:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
                response = await session.get(f"https://127.0.0.1:{port}/known")
                return response.status

        async with asyncio.timeout(60):
            assert set(await asyncio.gather(*(ask() for _ in range(30)))) == {200}


async def test_connections_wait_while_there_are_too_many() -> None:
    async with serving(Limits(connections=1)) as port, Connection(port) as first, Connection(port) as second:
        assert await first.ask(b"known") == b"HTTP/1.1 200 OK"
        waiting = asyncio.create_task(second.ask(b"known"))
        await first.ask(b"known")
        assert not waiting.done()
        await first.__aexit__()
        assert await waiting == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize(("size", "status"), [(1000, 200), (1001, 413)])
async def test_body_is_limited(size: int, status: int) -> None:
    async with serving() as port, aiohttp.ClientSession() as session:
        response = await session.post(f"http://127.0.0.1:{port}/", data=bytes(size))
        assert response.status == status


async def test_stop_finishes_the_responses_in_progress() -> None:
    async with aiohttp.ClientSession() as session:
        async with serving() as port:
            asking = asyncio.create_task(session.get(f"http://127.0.0.1:{port}/slow"))
            async with Connection(port) as other:
                await other.ask(b"begun")
        response = await asking
        assert response.status == 200
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http://127.0.0.1:{port}/")


async def test_long_request_line_is_accepted() -> None:
    async with serving() as port, Connection(port) as client:
        assert await client.ask(b"x" * 100_000) == b"HTTP/1.1 200 OK"
