"""The API server's side of exec: backpressure, limits, and the end of sessions. The container is a fake."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from tests.support.cluster.addresses import SERVICES
from tests.support.cluster.embedded_apiserver import TOKEN, RecordedLogs
from tests.support.objects.manifests import pod
from tests.support.waiting import eventually
from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.http.routes import ServedCluster
from trainwright.cluster.apiserver.http.server import ApiServer
from trainwright.cluster.apiserver.http.streams.node_interface import PreparedExec
from trainwright.cluster.apiserver.http.streams.stream_handlers import SessionLimit
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError, Unreachable
from trainwright.kube.client.exec_protocol import Output
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.objects import Object
from trainwright.objects.kinds.pod_subresources import StreamOptions, StreamUnavailable
from trainwright.objects.resources import PODS

CHUNK = bytes(32 * 1024)


class Session:
    """A command that prints without end, or reads nothing."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._prints = command == ("prints",)
        self.produced = self.consumed = 0
        self.closed = asyncio.Event()

    @property
    def outputs(self) -> list[AsyncGenerator[Output, None]]:
        return [self._output()]

    async def _output(self) -> AsyncGenerator[Output, None]:
        while self._prints:
            self.produced += len(CHUNK)
            yield Output(CHUNK)

    async def write(self, data: bytes) -> None:
        self.consumed += len(data)
        await self.closed.wait()

    def close_stdin(self) -> None:
        pass

    def resize(self, width: int, height: int) -> None:
        pass

    async def wait(self) -> int:
        await self.closed.wait()
        return 0

    def close(self) -> None:
        self.closed.set()


class Streams:
    def __init__(self) -> None:
        self.sessions: list[Session] = []

    async def exec(self, _pod: Object, _container: str, options: StreamOptions) -> Session:
        if options.command == ("missing",):
            raise StreamUnavailable('unable to upgrade connection: container not found ("main")')
        self.sessions.append(Session(options.command))
        return self.sessions[-1]

    async def prepare_exec(self, _pod: Object, _container: str, command: Sequence[str]) -> PreparedExec:
        raise StreamUnavailable(f"{command} is not prepared here")

    async def attach(self, _pod: Object, _container: str, options: StreamOptions) -> Session:
        return await self.exec(_pod, _container, options)

    async def connect(self, _pod: Object, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise StreamUnavailable(f"port {port}")


@asynccontextmanager
async def serving(streams: Streams) -> AsyncIterator[tuple[ApiServer, Client]]:
    store = ObjectStore(None)
    server = ApiServer(ServedCluster(store, RecordedLogs(), SERVICES, streams), token=TOKEN, tls=None)
    port = await server.start()
    try:
        async with Client(ClusterConfig(server=f"http://127.0.0.1:{port}", token=TOKEN)) as client:
            await client.create(
                PODS, pod(spec={"nodeName": "local"}) | {"metadata": {"name": "p", "namespace": "default"}}
            )
            yield server, client
    finally:
        await server.stop()
        store.close()


async def turns_of_the_loop(count: int) -> None:
    """Server, client and command share the event loop: what can be sent and received is, in a few of its turns."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_container_that_is_not_running_is_an_error() -> None:
    async with serving(Streams()) as (_, client):
        with pytest.raises(ApiError, match="container not found"):
            await client.exec("p", ["missing"], namespace="default")


async def test_client_that_does_not_read_makes_the_command_wait() -> None:
    streams = Streams()
    async with serving(streams) as (_, client):
        async with client.start_exec("p", ["prints"], namespace="default"):
            (session,) = streams.sessions

            async def produced() -> tuple[int, int]:
                before = session.produced
                await turns_of_the_loop(100)
                return before, session.produced

            _, after = await eventually(produced, lambda found: 0 < found[0] == found[1])
            assert after < 50 * 2**20
        await asyncio.wait_for(session.closed.wait(), 60)


async def test_command_that_does_not_read_makes_the_client_wait() -> None:
    streams = Streams()
    async with (
        serving(streams) as (_, client),
        client.start_exec("p", ["reads-nothing"], namespace="default", stdin=True) as started,
    ):
        writing = asyncio.create_task(started.write(bytes(200 * 2**20)))
        while not streams.sessions[0].consumed:
            await turns_of_the_loop(1)
        await turns_of_the_loop(100)
        assert not writing.done()
        assert streams.sessions[0].consumed < 2**20
        writing.cancel()


async def test_stop_of_the_server_ends_sessions() -> None:
    streams = Streams()
    async with serving(streams) as (server, client):
        async with client.start_exec("p", ["waits"], namespace="default") as session:
            await server.stop()
            with pytest.raises(Unreachable, match="before the command has exited"):
                async for _ in session.output():
                    pass
        assert streams.sessions[0].closed.is_set()


def test_sessions_are_limited() -> None:
    limit = SessionLimit(1)
    with limit, pytest.raises(StatusError, match="1 exec, attach and port-forward sessions are open"), limit:
        pass
    with limit:
        pass
