"""Closing a client closes its connections, whenever a request over TLS was cancelled."""

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing

import pytest
import yarl

from tests.support.cluster.embedded_apiserver import tls_for_loopback
from tests.support.servers.scripted_server import ScriptedServer, scripted_server, stream
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.objects.resources import PODS

# From before the first packet to the middle of the answer, which on loopback is reached after about twenty.
ROUNDS = range(40)


async def get(client: Client) -> None:
    await client.get(PODS, "p", namespace="n")


async def watch(client: Client) -> None:
    async with aclosing(client.watch(PODS)) as events:
        async for _ in events:
            pass


async def run(client: Client) -> None:
    await client.exec("p", ["true"], namespace="n")


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    tls, _ = tls_for_loopback()
    async with scripted_server(tls) as running:
        yield running


@pytest.fixture
def from_here_on() -> Iterator[None]:
    """Hides what is older from the list of all objects, which is long."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("from_here_on")
@pytest.mark.parametrize("request_something", [get, watch, run])
async def test_no_connection_outlives_its_client(
    server: ScriptedServer, request_something: Callable[[Client], Awaitable[None]]
) -> None:
    for rounds in ROUNDS:
        server.will(stream(b"{", then="hang"))
        async with Client(config_for(server.url)) as client:
            await cancel_after(rounds, request_something(client))
        assert open_connections(server.url) == []
    assert server.seen, "no request has come as far as the server"


@pytest.mark.usefixtures("from_here_on")
async def test_connection_to_a_silent_server_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        for rounds in ROUNDS:
            async with Client(config_for(url)) as client:
                await cancel_after(rounds, get(client))
            assert open_connections(url) == []


@pytest.mark.usefixtures("from_here_on")
async def test_a_client_that_is_closed_under_a_request_leaves_nothing_open_either(server: ScriptedServer) -> None:
    for rounds in ROUNDS:
        server.will(stream(b"{", then="hang"))
        async with Client(config_for(server.url), retries=False) as client:
            request = asyncio.create_task(get(client))
            await pass_rounds(rounds)
        assert open_connections(server.url) == []
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        assert open_connections(server.url) == []


def config_for(url: str) -> ClusterConfig:
    _, authority = tls_for_loopback()
    return ClusterConfig(server=url, token="t", ca_data=authority)


async def cancel_after(rounds: int, request: Awaitable[None]) -> None:
    task = asyncio.ensure_future(request)
    await pass_rounds(rounds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def pass_rounds(rounds: int) -> None:
    for _ in range(rounds):
        await asyncio.sleep(0)


def open_connections(url: str) -> list[socket.socket]:
    """The client's sockets, whether anybody knows of them or not; the server's are at the server's port."""
    sockets = [known for known in gc.get_objects() if type(known) is socket.socket and known.fileno() != -1]
    return [
        known for known in sockets if known.family == socket.AF_INET and known.getsockname()[1] != yarl.URL(url).port
    ]
