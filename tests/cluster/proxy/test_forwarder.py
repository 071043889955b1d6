"""Connections through a forwarder: half-close, backpressure, aborts, retries, limits."""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cluster.addresses import OWN_ADDRESS
from tests.support.waiting import eventually
from trainwright.cluster.proxy.forwarded_ports import Endpoint
from trainwright.cluster.proxy.forwarder import Balancer, ConnectionLimit, Forwarder

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[Endpoint]:
    handling: set[asyncio.Task[None] | None] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handling.add(asyncio.current_task())
        try:
            await handler(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
        await asyncio.gather(*filter(None, handling))


@asynccontextmanager
async def forwarding(*endpoints: Endpoint, limit: int = 100) -> AsyncIterator[tuple[int, ConnectionLimit]]:
    """The port that forwards to these endpoints."""
    with socket.socket() as probe:
        probe.bind((OWN_ADDRESS, 0))
        port = probe.getsockname()[1]
    connections = ConnectionLimit(limit)
    forwarder = Forwarder(OWN_ADDRESS, port, connections)
    forwarder.update(endpoints, None)
    yield port, connections
    forwarder.close()


async def wait_for_connections(limit: ConnectionLimit, number: int) -> None:
    async def used() -> int:
        return limit.used

    await eventually(used, lambda found: found == number)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write((await reader.read()).upper())
    await writer.drain()
    writer.close()


async def read_once(port: int) -> bytes:
    reader, writer = await asyncio.open_connection(OWN_ADDRESS, port)
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_a_client_that_has_finished_sending_gets_its_answer() -> None:
    async with serving(echo) as endpoint, forwarding(endpoint) as (port, connections):
        reader, writer = await asyncio.open_connection(OWN_ADDRESS, port)
        writer.write(b"hello")
        writer.write_eof()
        assert await reader.read() == b"HELLO"
        writer.close()
        await wait_for_connections(connections, 0)


async def test_a_server_that_has_finished_sending_still_receives() -> None:
    received = asyncio.get_running_loop().create_future()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"banner")
        writer.write_eof()
        received.set_result(await reader.read())
        writer.close()

    async with serving(handler) as endpoint, forwarding(endpoint) as (port, _):
        reader, writer = await asyncio.open_connection(OWN_ADDRESS, port)
        assert await reader.read() == b"banner"
        writer.write(b"late")
        writer.write_eof()
        assert await received == b"late"
        writer.close()


async def test_large_transfers_arrive_whole_in_both_directions() -> None:
    size = 8 * 1024 * 1024

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async with serving(handler) as endpoint, forwarding(endpoint) as (port, _):
        reader, writer = await asyncio.open_connection(OWN_ADDRESS, port)
        sent = bytes(range(256)) * (size // 256)

        async def send() -> None:
            writer.write(sent)
            await writer.drain()
            writer.write_eof()

        received, _ = await asyncio.gather(reader.read(), send())
        assert received == sent
        writer.close()


async def test_a_slow_receiver_slows_its_sender_down() -> None:
    """The forwarder holds a bounded part of what the client sends."""
    go_on = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        while await reader.read(65536):
            pass
        writer.close()

    async with serving(handler) as endpoint, forwarding(endpoint) as (port, connections):
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setblocking(False)
            await loop.sock_connect(client, (OWN_ADDRESS, port))
            sent, stalled = 0, 0
            while stalled < 20:
                try:
                    sent += client.send(b"x" * 65536)
                    stalled = 0
                except BlockingIOError:
                    stalled += 1
                await asyncio.sleep(0.01)
                assert sent < 64 * 1024 * 1024, "nothing stops the sender"
            go_on.set()
            await eventually(lambda: asyncio.to_thread(_can_send, client), bool)
        await wait_for_connections(connections, 0)


def _can_send(client: socket.socket) -> bool:
    try:
        return client.send(b"x") == 1
    except BlockingIOError:
        return False


async def test_an_aborted_connection_is_aborted_on_the_other_side() -> None:
    async def handler(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        writer.transport.abort()

    async with serving(handler) as endpoint, forwarding(endpoint) as (port, connections):
        reader, writer = await asyncio.open_connection(OWN_ADDRESS, port)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        await wait_for_connections(connections, 0)


async def test_an_endpoint_that_refuses_is_skipped() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, but nobody listens
        refusing = Endpoint("127.0.0.1", closed.getsockname()[1])
        async with serving(echo) as endpoint, forwarding(refusing, endpoint) as (port, connections):
            for _ in range(4):
                reader, writer = await asyncio.open_connection(OWN_ADDRESS, port)
                writer.write(b"x")
                writer.write_eof()
                assert await reader.read() == b"X"
                writer.close()
            await wait_for_connections(connections, 0)


async def test_without_an_endpoint_that_accepts_the_connection_is_reset() -> None:
    async with forwarding() as (port, connections):
        with pytest.raises(ConnectionResetError):
            await read_once(port)
        assert connections.used == 0


async def test_connections_beyond_the_limit_are_reset() -> None:
    async with serving(echo) as endpoint, forwarding(endpoint, limit=1) as (port, connections):
        first_reader, first = await asyncio.open_connection(OWN_ADDRESS, port)
        await wait_for_connections(connections, 1)
        with pytest.raises(ConnectionResetError):
            await read_once(port)
        first.write_eof()
        assert await first_reader.read() == b""
        first.close()
        await wait_for_connections(connections, 0)


ENDPOINTS = [Endpoint(f"127.64.0.{number}", 80) for number in range(1, 6)]


@given(st.integers(1, 5), st.integers(1, 40))
def test_endpoints_take_turns(count: int, connections: int) -> None:
    balancer = Balancer(ENDPOINTS[:count])
    first = Counter(balancer.candidates("c", 0)[0] for _ in range(connections))
    assert max(first.values()) - min(first.get(one, 0) for one in ENDPOINTS[:count]) <= 1


@given(st.integers(1, 5))
def test_every_endpoint_is_tried(count: int) -> None:
    balancer = Balancer(ENDPOINTS[:count])
    balancer.candidates("c", 0)
    assert sorted(balancer.candidates("c", 0), key=str) == ENDPOINTS[:count]


def test_a_client_with_affinity_keeps_its_endpoint_until_the_timeout() -> None:
    balancer = Balancer(ENDPOINTS, affinity_seconds=10)
    balancer.connected("c", ENDPOINTS[3], 0)
    assert {balancer.candidates("c", 9.9)[0] for _ in range(5)} == {ENDPOINTS[3]}
    assert len({balancer.candidates("c", 10)[0] for _ in range(5)}) == 5
    assert len({balancer.candidates("other", 1)[0] for _ in range(5)}) == 5


def test_affinity_ends_with_the_endpoint() -> None:
    balancer = Balancer(ENDPOINTS, affinity_seconds=10)
    balancer.connected("c", ENDPOINTS[0], 0)
    balancer.update(ENDPOINTS[1:], 10)
    assert ENDPOINTS[0] not in balancer.candidates("c", 1)


def test_without_endpoints_there_is_none_to_try() -> None:
    assert Balancer().candidates("c", 0) == []
