"""Clients on the API server's Unix socket take over exec sessions, as the kubectl of launchers does. The node is a
fake."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.cluster.addresses import SERVICES
from tests.support.cluster.embedded_apiserver import TOKEN, RecordedLogs
from tests.support.objects.manifests import pod
from trainwright.cluster.apiserver.http.routes import ServedCluster
from trainwright.cluster.apiserver.http.server import ApiServer
from trainwright.cluster.apiserver.http.streams.node_interface import NoStreams
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.cluster.node.pods.images import kubectl
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.objects import Object
from trainwright.objects.kinds.pod_subresources import StreamUnavailable
from trainwright.objects.resources import PODS

OUTPUTS = "stdout=true&stderr=true"


class Prepared:
    """`supervisor`, `stdout` and `stderr` are the pod's ends."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = list(command)
        self.supervisor, self._client = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        (out, stdout), (error, stderr) = os.pipe(), os.pipe()
        self._outputs = [out, error]
        self.stdout, self.stderr = os.fdopen(stdout, "wb"), os.fdopen(stderr, "wb")

    @property
    def descriptors(self) -> list[int]:
        return [self._client.fileno(), *self._outputs]

    def close(self) -> None:
        self._client.close()
        while self._outputs:
            os.close(self._outputs.pop())

    def end(self, answer: bytes) -> None:
        self.stdout.write(b"out")
        self.stderr.write(b"bad")
        self.supervisor.send(answer)
        self.close_pod()

    def close_pod(self) -> None:
        self.supervisor.close()
        self.stdout.close()
        self.stderr.close()


class Streams(NoStreams):
    def __init__(self) -> None:
        self.prepared: list[Prepared] = []

    async def first(self) -> Prepared:
        while not self.prepared:
            await asyncio.sleep(0)
        return self.prepared[0]

    async def prepare_exec(self, *request: object) -> Prepared:
        _pod, container, command = request
        assert isinstance(command, tuple)
        if command == ("missing",):
            raise StreamUnavailable(f'unable to upgrade connection: container not found ("{container}")')
        self.prepared.append(Prepared(command))
        return self.prepared[-1]


@pytest.fixture
def streams() -> Iterator[Streams]:
    streams = Streams()
    yield streams
    for prepared in streams.prepared:
        prepared.close_pod()


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the socket, where kubectl in this process expects it."""
    path = tmp_path / "api.sock"
    monkeypatch.setattr(kubectl, "API_SOCKET", str(path))
    monkeypatch.setattr(kubectl, "SERVICE_ACCOUNT", str(tmp_path))
    monkeypatch.setattr(kubectl, "RETRY_SECONDS", 0.01)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "namespace").write_text("default")
    return path


@asynccontextmanager
async def serving(streams: Streams, path: Path) -> AsyncIterator[tuple[ApiServer, int]]:
    store = ObjectStore(None)
    served = ServedCluster(store, RecordedLogs(), SERVICES, streams)
    server = ApiServer(served, token=TOKEN, tls=None, unix_socket=path)
    port = await server.start()
    try:
        async with Client(ClusterConfig(server=f"http://127.0.0.1:{port}", token=TOKEN)) as client:
            worker: Object = {"metadata": {"name": "worker", "namespace": "default"}}
            await client.create(PODS, pod(spec={"nodeName": "local"}) | worker)
            yield server, port
    finally:
        await server.stop()
        store.close()


async def run(*command: str) -> int:
    return await asyncio.to_thread(kubectl.main, ["exec", "worker", "--", *command])


async def ask(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], query: str, token: str = TOKEN) -> bytes:
    """The answer to a request for descriptors."""
    reader, writer = connection
    fields = {
        "Host": "localhost",
        "Authorization": f"Bearer {token}",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": kubectl.KEY,
        "Sec-WebSocket-Protocol": kubectl.PROTOCOL,
    }
    lines = [f"GET /api/v1/namespaces/default/pods/worker/exec?{query} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    async with asyncio.timeout(10):
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.read(1000) if b"Content-Length" in head else b""
    writer.close()
    return head + body


async def test_command_goes_on_without_the_api_server(
    streams: Streams, launcher: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    async with serving(streams, launcher) as (server, _):
        running = asyncio.create_task(run("train", "a b"))
        prepared = await streams.first()
        assert await asyncio.to_thread(prepared.supervisor.recv, 100) == b"start"
        await server.stop()

    prepared.end(b'{"exit": 3}')

    assert await running == 3
    assert prepared.command == ["train", "a b"]
    assert capfdbinary.readouterr() == (b"out", b"badcommand terminated with exit code 3\n")


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        (b'{"exit": 0}', 0, ""),
        (b'{"exit": 300}', 300, "command terminated with exit code 300\n"),
        (b'{"error": "no such file"}', 1, "error executing command in container: no such file\n"),
        (b'{"notFound": true}', 1, "the container has ended\n"),
        (b"", 137, "command terminated with exit code 137\n"),
    ],
)
async def test_end_of_a_command(
    streams: Streams, launcher: Path, capfd: pytest.CaptureFixture[str], answer: bytes, code: int, message: str
) -> None:
    async with serving(streams, launcher):
        running = asyncio.create_task(run("train"))
        (await streams.first()).end(answer)
        assert await running == code
    assert capfd.readouterr().err.endswith(message)


async def test_api_server_keeps_no_descriptor_of_a_session(streams: Streams, launcher: Path) -> None:
    async with serving(streams, launcher):
        for _ in range(300):  # more than sessions whose data passes the server
            cluster = kubectl.Cluster({})
            path = f"{cluster.pods()}/worker/exec?command=train&{OUTPUTS}"
            for descriptor in await asyncio.to_thread(kubectl.prepare, cluster, path):
                os.close(descriptor)
            prepared = streams.prepared.pop()
            assert prepared.supervisor.recv(1) == b""
            prepared.close_pod()


async def test_container_that_is_not_running_is_an_error(
    streams: Streams, launcher: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with serving(streams, launcher):
        assert await run("missing") == 1
    assert 'container not found ("main")' in capfd.readouterr().err


async def test_descriptors_are_sent_over_the_unix_socket_alone(streams: Streams, launcher: Path) -> None:
    async with serving(streams, launcher) as (_, port):
        query = f"command=train&{OUTPUTS}"
        answer = await ask(await asyncio.open_connection("127.0.0.1", port), query)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"no common subprotocol" in answer
        answer = await ask(await asyncio.open_unix_connection(launcher), query)
        assert answer.startswith(b"HTTP/1.1 101 ")


@pytest.mark.parametrize("query", [OUTPUTS, "command=a&stdout=true", f"command=a&stdin=true&{OUTPUTS}"])
async def test_other_streams_are_refused(streams: Streams, launcher: Path, query: str) -> None:
    async with serving(streams, launcher):
        answer = await ask(await asyncio.open_unix_connection(launcher), query)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert not streams.prepared


@pytest.mark.parametrize(("token", "code"), [("", b"403"), ("wrong", b"401")])
async def test_unix_socket_needs_the_same_permissions(
    streams: Streams, launcher: Path, token: str, code: bytes
) -> None:
    async with serving(streams, launcher):
        answer = await ask(await asyncio.open_unix_connection(launcher), f"command=train&{OUTPUTS}", token)
        assert answer.split()[1] == code
        assert not streams.prepared
