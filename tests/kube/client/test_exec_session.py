"""Exec over a real WebSocket: with a scripted server, and the error of the real one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace

import pytest
from aiohttp import WSMsgType, web

from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.servers.scripted_server import Answer, ScriptedServer, answer, cut
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError, BadRequest, NotFound, ServerError, Unreachable
from trainwright.kube.client.exec_protocol import Output
from trainwright.kube.client.exec_session import ExecResult
from trainwright.kube.client.requests import RequestResult
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.resources import NODES, PODS

SUCCESS = b'\x03{"metadata":{},"status":"Success"}'
EXIT_7 = (
    b'\x03{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}'
)
V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"

Play = Callable[[web.WebSocketResponse], Awaitable[None]]


def websocket(play: Play, *, protocols: Sequence[str] = (V5, V4)) -> Answer:
    async def give(request: web.BaseRequest, _: asyncio.Event) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=protocols)
        await socket.prepare(request)
        await play(socket)
        await socket.close()
        return socket

    return give


def saying(*messages: bytes) -> Play:
    async def play(socket: web.WebSocketResponse) -> None:
        for message in messages:
            await socket.send_bytes(message)

    return play


async def echo(socket: web.WebSocketResponse) -> None:
    """`cat`: writes what it reads until the end of its input."""
    await socket.send_bytes(b"\x01")
    while (message := await socket.receive()).data != b"\xff\x00":
        assert message.type is WSMsgType.BINARY
        await socket.send_bytes(b"\x01" + message.data[1:])
    await socket.send_bytes(SUCCESS)


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[Client]:
    async with Client(replace(server.config, namespace="train"), user_agent="me/1") as client:
        yield client


async def test_exec_returns_output_and_exit_code(server: ScriptedServer, client: Client) -> None:
    server.will(websocket(saying(b"\x01", b"\x01a", b"\x02oh", b"\x01b", EXIT_7)))
    assert await client.exec("p", ["sh", "-c", "exit 7; x&y"], container="c") == ExecResult(7, b"ab", b"oh")
    [seen] = server.seen
    assert seen.target == (
        "/api/v1/namespaces/train/pods/p/exec?command=sh&command=-c&command=exit+7%3B+x%26y"
        "&container=c&stdout=true&stderr=true"
    )
    assert seen.headers["authorization"] == "Bearer t"
    assert seen.headers["user-agent"] == "me/1"
    assert seen.headers["sec-websocket-protocol"] == f"{V5},{V4}"


async def test_exec_writes_stdin_and_closes_it(server: ScriptedServer, client: Client) -> None:
    big = bytes(range(256)) * 4000
    server.will(websocket(echo), websocket(echo))
    assert await client.exec("p", ["cat"], stdin=big) == ExecResult(0, big, b"")
    assert await client.exec("p", ["cat"], stdin=b"") == ExecResult(0, b"", b"")
    assert "stdin=true" in server.seen[0].target


async def test_a_command_that_does_not_read_its_input_may_end_first(server: ScriptedServer, client: Client) -> None:
    server.will(websocket(saying(b"\x01enough", SUCCESS)))
    assert (await client.exec("p", ["head", "-c1"], stdin=b"x" * 3_000_000)).stdout == b"enough"


async def test_terminal_is_interactive(server: ScriptedServer, client: Client) -> None:
    got: list[bytes] = []

    async def shell(socket: web.WebSocketResponse) -> None:
        got.append((await socket.receive()).data)
        got.append((await socket.receive()).data)
        await socket.send_bytes(b"\x01done\r\n")
        await socket.send_bytes(SUCCESS)

    server.will(websocket(shell))
    async with client.start_exec("p", ["sh"], namespace="other", stdin=True, tty=True) as running:
        await running.resize(80, 25)
        await running.write(b"exit\n")
        with pytest.raises(RuntimeError, match="the command has not exited yet"):
            running.exit_code  # noqa: B018 (asking is the test)
        assert [said async for said in running.output()] == [Output(b"done\r\n")]
        assert running.exit_code == 0
    assert got == [b'\x04{"Width":80,"Height":25}', b"\x00exit\n"]
    assert server.seen[0].target.endswith("/other/pods/p/exec?command=sh&stdin=true&stdout=true&tty=true")


async def test_older_server_uses_protocol_v4(server: ScriptedServer, client: Client) -> None:
    server.will(*[websocket(saying(b"\x01hi", SUCCESS), protocols=[V4])] * 2)
    assert await client.exec("p", ["echo", "hi"]) == ExecResult(0, b"hi", b"")
    with pytest.raises(
        Unreachable, match=rf"does not support the end of stdin \(it speaks {V4}\): .* Kubernetes 1\.30"
    ):
        await client.exec("p", ["cat"], stdin=b"x")


async def test_server_without_a_common_protocol_is_an_error(server: ScriptedServer, client: Client) -> None:
    server.will(websocket(saying(SUCCESS), protocols=[]))
    with pytest.raises(Unreachable, match=f"speaks neither {V5} nor {V4}"):
        await client.exec("p", ["true"])


async def test_command_that_cannot_start_raises_the_error_of_the_server(server: ScriptedServer, client: Client) -> None:
    missing = {"kind": "Status", "code": 404, "reason": "NotFound", "message": 'pods "p" not found'}
    broken = b'\x03{"status":"Failure","message":"container not found","reason":"InternalError","code":500}'
    server.will(answer(missing, status=404), websocket(saying(broken)), answer(b"plain text", status=502))
    with pytest.raises(NotFound, match='pods "p" not found'):
        await client.exec("p", ["true"])
    with pytest.raises(ServerError, match="container not found"):
        await client.exec("p", ["true"])
    with pytest.raises(ServerError, match="plain text"):
        await client.exec("p", ["true"])


async def test_lost_connection_is_not_an_exit(server: ScriptedServer, client: Client) -> None:
    server.will(websocket(saying(b"\x01a")), cut)
    with pytest.raises(Unreachable, match=f"lost the connection to {server.url} before the command has exited"):
        await client.exec("p", ["true"])
    with pytest.raises(Unreachable, match=f"lost the connection to {server.url}"):
        await client.exec("p", ["true"])
    assert len(server.seen) == 2, "a command is never run twice"


async def test_an_exec_is_observed(server: ScriptedServer) -> None:
    server.will(websocket(saying(SUCCESS)), answer({"kind": "Status", "code": 403}, status=403), cut)
    seen: list[RequestResult] = []
    async with Client(server.config, observe=seen.append) as client:
        await client.exec("p", ["true"])
        for _ in range(2):
            with pytest.raises((ApiError, Unreachable)):
                await client.exec("p", ["true"])
    assert [(one.method, one.request.path.rpartition("/")[2], one.code) for one in seen] == [
        ("GET", "exec", "101"),
        ("GET", "exec", "403"),
        ("GET", "exec", "<error>"),
    ]


async def test_blocking_client_runs_exec(server: ScriptedServer) -> None:
    server.will(websocket(echo))
    with SyncClient(server.config) as client:
        assert await asyncio.to_thread(client.exec, "p", ["cat"], stdin=b"hi") == ExecResult(0, b"hi", b"")


@pytest.mark.apiserver
async def test_real_server_reports_why_exec_fails(control_plane: ControlPlane, real_namespace: str) -> None:
    """There is no kubelet: everything up to its door is real."""
    async with Client(replace(control_plane.config, namespace=real_namespace)) as client:
        with pytest.raises(NotFound, match='pods "p" not found'):
            await client.exec("p", ["true"])
        await client.create(PODS, pod("p"))
        with pytest.raises(BadRequest, match="pod p does not have a host assigned"):
            await client.exec("p", ["true"])
        with pytest.raises(BadRequest, match="container nobody is not valid for pod p"):
            await client.exec("p", ["true"], container="nobody")
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "nowhere"}}
        await client.create(NODES, node)
        try:
            await client.create(PODS, {**pod("q"), "spec": {**pod("q")["spec"], "nodeName": "nowhere"}})
            with pytest.raises(ServerError, match="no preferred addresses found"):
                await client.exec("q", ["true"])
        finally:
            await client.delete(NODES, "nowhere")


def pod(name: str) -> Object:
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
