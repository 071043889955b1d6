"""Both clients over a real socket: the asynchronous and the blocking one behave the same."""

import asyncio
import gc
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.servers.scripted_server import ScriptedServer, answer, cut, stream
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import (
    Expired,
    NotFound,
    ServerError,
    Silent,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from trainwright.kube.client.keepalive import DEAD_SECONDS
from trainwright.kube.client.kubeconfig import ClusterConfig, ConfigError, ExecPlugin
from trainwright.kube.client.rate_limiter import RateLimiter
from trainwright.kube.client.requests import PatchKind, RequestResult, watch_request
from trainwright.kube.client.responses import WatchEvent
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects.resources import NODES, PODS

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}}


class Caller:
    """Calls either client, so that every test here is about both."""

    def __init__(self, make: type[Client] | type[SyncClient]) -> None:
        self._make = make
        self._clients: list[Client | SyncClient] = []

    def client(self, config: ClusterConfig, **options: Any) -> Client | SyncClient:
        client = self._make(config, **options)
        self._clients.append(client)
        return client

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if self._make is Client:
            return await method(*arguments, **named)
        return await asyncio.to_thread(method, *arguments, **named)

    async def collect(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> list[Any]:
        items: list[Any] = []
        await self.collect_into(items, method, *arguments, **named)
        return items

    async def collect_into(self, items: list[Any], method: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        if self._make is Client:
            async for item in method(*arguments, **named):
                items.append(item)  # noqa: PERF401 (what came before an error counts)
        else:
            await asyncio.to_thread(lambda: items.extend(method(*arguments, **named)))

    async def close(self) -> None:
        for client in self._clients:
            await self.call(client.close)


@pytest.fixture(params=[Client, SyncClient])
async def caller(request: pytest.FixtureRequest) -> AsyncIterator[Caller]:
    caller = Caller(request.param)
    yield caller
    await caller.close()


async def test_an_object_is_fetched_with_our_name_and_token(server: ScriptedServer, caller: Caller) -> None:
    server.will(answer(POD))
    client = caller.client(server.config, user_agent="trainwright-test/1")
    assert await caller.call(client.get, PODS, "p", namespace="n") == POD
    [seen] = server.seen
    assert (seen.method, seen.target) == ("GET", "/api/v1/namespaces/n/pods/p")
    assert seen.headers["authorization"] == "Bearer t"
    assert seen.headers["user-agent"] == "trainwright-test/1"
    assert seen.headers["accept"] == "application/json"


async def test_every_write_reaches_its_path_with_its_body(server: ScriptedServer, caller: Caller) -> None:
    server.will(*[answer(POD)] * 5)
    client = caller.client(replace(server.config, namespace="mine"))
    await caller.call(client.create, PODS, POD)
    await caller.call(client.replace, PODS, POD, subresource="status")
    await caller.call(client.patch, PODS, "p", [{"op": "test"}], kind=PatchKind.JSON)
    await caller.call(client.delete, PODS, "p", uid="u")
    await caller.call(client.create, NODES, {"metadata": {"name": "local"}})
    base = "/api/v1/namespaces"
    assert [(seen.method, seen.target) for seen in server.seen] == [
        ("POST", f"{base}/n/pods"),
        ("PUT", f"{base}/n/pods/p/status"),
        ("PATCH", f"{base}/mine/pods/p"),
        ("DELETE", f"{base}/mine/pods/p"),
        ("POST", "/api/v1/nodes"),
    ]
    assert [seen.headers["content-type"] for seen in server.seen][1:3] == ["application/json", PatchKind.JSON]
    assert msgspec.json.decode(server.seen[0].body) == POD
    assert msgspec.json.decode(server.seen[3].body)["preconditions"] == {"uid": "u"}


async def test_one_connection_is_used_again(server: ScriptedServer, caller: Caller) -> None:
    server.will(*[answer(POD)] * 5)
    client = caller.client(server.config)
    for _ in range(5):
        await caller.call(client.get, PODS, "p")
    assert {seen.connection for seen in server.seen} == {0}


async def test_a_list_is_put_together_from_its_pages(server: ScriptedServer, caller: Caller) -> None:
    def page(name: str, token: str) -> Any:
        return answer(
            {"metadata": {"resourceVersion": "9", "continue": token}, "items": [{"metadata": {"name": name}}]}
        )

    server.will(page("a", "t"), page("b", ""))
    client = caller.client(server.config)
    found = await caller.call(client.list, PODS, label_selector="x=y", limit=1)
    assert [item["metadata"]["name"] for item in found.items] == ["a", "b"]
    assert found.items[0]["kind"] == "Pod"
    assert found.resource_version == "9"
    assert [seen.target for seen in server.seen] == [
        "/api/v1/pods?labelSelector=x%3Dy&limit=1",
        "/api/v1/pods?labelSelector=x%3Dy&limit=1&continue=t",
    ]


async def test_error_response_is_raised_as_its_class(server: ScriptedServer, caller: Caller) -> None:
    server.will(answer({"kind": "Status", "code": 404, "message": 'pods "p" not found'}, status=404))
    client = caller.client(server.config)
    with pytest.raises(NotFound, match='pods "p" not found'):
        await caller.call(client.get, PODS, "p")


async def test_retry_after_is_honoured(server: ScriptedServer, caller: Caller) -> None:
    busy = answer({"kind": "Status", "code": 429}, status=429, headers={"Retry-After": "0"})
    server.will(busy, busy, answer(POD, status=201))
    client = caller.client(server.config)
    assert await caller.call(client.create, PODS, POD) == POD
    assert len(server.seen) == 3


async def test_without_retries_the_first_response_is_returned(server: ScriptedServer, caller: Caller) -> None:
    server.will(answer(b"", status=429, headers={"Retry-After": "0"}))
    client = caller.client(server.config, retries=False)
    with pytest.raises(TooManyRequests):
        await caller.call(client.get, PODS, "p")


async def test_a_read_is_repeated_after_a_broken_connection(server: ScriptedServer, caller: Caller) -> None:
    server.will(cut, answer(POD))
    client = caller.client(server.config)
    assert await caller.call(client.get, PODS, "p") == POD


async def test_create_is_not_repeated_after_a_broken_connection(server: ScriptedServer, caller: Caller) -> None:
    server.will(cut, answer(POD, status=201))
    client = caller.client(server.config)
    with pytest.raises(Unreachable, match=f"lost the connection to {server.url}"):
        await caller.call(client.create, PODS, POD)
    assert len(server.seen) == 1


async def test_server_that_does_not_respond_times_out(server: ScriptedServer, caller: Caller) -> None:
    server.will(stream(then="hang"))
    client = caller.client(server.config, timeout=0.1)
    with pytest.raises(Unreachable, match=f"no response from {server.url} in time"):
        await caller.call(client.get, PODS, "p")


async def test_a_closed_port_is_named(caller: Caller) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        client = caller.client(ClusterConfig(server=url), retries=False)
        with pytest.raises(Unreachable, match=f"cannot connect to {url}: Connection refused"):
            await caller.call(client.get, PODS, "p")


async def test_a_watch_yields_events_whatever_their_size_and_cut(server: ScriptedServer, caller: Caller) -> None:
    big = {"metadata": {"name": "big"}, "data": "x" * 3_000_000}
    line = msgspec.json.encode({"type": "ADDED", "object": big}) + b"\n"
    small = b'{"type":"DELETED","object":{"metadata":{"name":"p"}}}\n'
    server.will(stream(line[:1000], line[1000:], small + small[:10], small[10:]))
    client = caller.client(server.config)
    events = await caller.collect(client.watch, PODS, resource_version="5", timeout_seconds=7)
    assert events == [
        WatchEvent("ADDED", big),
        *[WatchEvent("DELETED", {"metadata": {"name": "p"}})] * 2,
    ]
    assert server.seen[0].target == "/api/v1/pods?watch=true&resourceVersion=5&timeoutSeconds=7"


async def test_a_version_that_is_too_old_ends_a_watch(server: ScriptedServer, caller: Caller) -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired"}
    server.will(stream(msgspec.json.encode({"type": "ERROR", "object": gone}) + b"\n"), answer(gone, status=410))
    client = caller.client(server.config)
    for _ in range(2):
        with pytest.raises(Expired):
            await caller.collect(client.watch, PODS, resource_version="1")


async def test_lines_before_a_broken_stream_are_delivered(server: ScriptedServer, caller: Caller) -> None:
    server.will(stream(b"one\n", b"tw", then="break"))
    client = caller.client(server.config)
    lines: list[bytes] = []
    with pytest.raises(Unreachable, match=f"lost the connection to {server.url}: the response is incomplete$"):
        await caller.collect_into(lines, client.logs, "p", namespace="n", follow=True)
    assert lines == [b"one\n"]


async def test_silent_watch_is_closed(server: ScriptedServer, caller: Caller) -> None:
    server.will(stream(b'{"type":"BOOKMARK","object":{}}\n', then="hang"))
    client = caller.client(server.config)
    request = watch_request(PODS, namespace=None, timeout_seconds=300, read_timeout=0.5)
    lines: list[bytes] = []
    with pytest.raises(Silent, match=f"no data from {server.url} for 0.5 s"):
        await caller.collect_into(lines, client.stream_lines, request)
    assert len(lines) == 1


def _connection_to(url: str) -> socket.socket:
    """The client's end of an open connection."""
    for descriptor in Path("/proc/self/fd").iterdir():
        # Descriptors of other files are not sockets, and listeners have no peer.
        with suppress(OSError), socket.socket(fileno=os.dup(int(descriptor.name))) as found:
            if found.family == socket.AF_INET and url.endswith(f":{found.getpeername()[1]}"):
                return found.dup()
    raise AssertionError(f"no connection to {url}")


async def test_connections_use_tcp_keepalive(server: ScriptedServer, caller: Caller) -> None:
    """The kernel asks; a test cannot pull the plug, but it can see that the kernel was told to."""
    server.will(answer(POD))
    client = caller.client(server.config)
    await caller.call(client.get, PODS, "p", namespace="n")  # the connection stays open for the next request
    with closing(_connection_to(server.url)) as connection:
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle, interval, probes = (
            connection.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + interval * probes <= DEAD_SECONDS
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == DEAD_SECONDS * 1000


async def test_logs_come_line_by_line(server: ScriptedServer, caller: Caller) -> None:
    server.will(stream(b"a\nb", b"c\n\nlast"))
    client = caller.client(server.config)
    assert await caller.collect(client.logs, "p", namespace="n", container="c", tail_lines=5, previous=True) == [
        b"a\n",
        b"bc\n",
        b"\n",
        b"last",
    ]
    assert server.seen[0].target == "/api/v1/namespaces/n/pods/p/log?container=c&previous=true&tailLines=5"


async def test_a_stream_is_opened_again_while_the_server_is_busy(server: ScriptedServer, caller: Caller) -> None:
    server.will(answer(b"", status=503, headers={"Retry-After": "0"}), stream(b"a\n"))
    client = caller.client(server.config)
    assert await caller.collect(client.logs, "p") == [b"a\n"]


async def test_raw_requests_give_bytes(server: ScriptedServer, caller: Caller) -> None:
    server.will(answer(b"ok"), answer({"a": 1}))
    client = caller.client(server.config)
    assert await caller.call(client.raw, "GET", "/readyz", params={"verbose": "1"}) == b"ok"
    assert await caller.call(client.raw, "POST", "/x", body={"b": 2}) == b'{"a":1}'
    assert [seen.target for seen in server.seen] == ["/readyz?verbose=1", "/x"]
    assert server.seen[1].body == b'{"b":2}'


async def test_html_page_is_an_error(server: ScriptedServer, caller: Caller) -> None:
    server.will(answer(b"<html>log in</html>"))
    client = caller.client(server.config)
    with pytest.raises(ServerError, match="is this a Kubernetes API server"):
        await caller.call(client.get, PODS, "p")


async def test_redirects_do_not_send_the_token_to_another_server(server: ScriptedServer, caller: Caller) -> None:
    server.will(answer(b"", status=302, headers={"Location": "/elsewhere"}), answer(POD))
    client = caller.client(server.config)
    with pytest.raises(Exception, match="HTTP 302"):
        await caller.call(client.get, PODS, "p")
    assert len(server.seen) == 1


async def test_the_servers_own_path_comes_first(server: ScriptedServer, caller: Caller) -> None:
    server.will(answer(POD))
    client = caller.client(replace(server.config, server=f"{server.url}/k8s/clusters/c-1"))
    await caller.call(client.get, PODS, "p")
    assert server.seen[0].target == "/k8s/clusters/c-1/api/v1/namespaces/default/pods/p"


async def test_error_of_a_proxy_is_quoted_without_its_password(server: ScriptedServer, caller: Caller) -> None:
    server.will(answer(b"", status=407))
    proxy = server.url.replace("http://", "http://ada:hunter2@")
    client = caller.client(ClusterConfig(server="https://cluster.example", proxy_url=proxy), retries=False)
    with pytest.raises(Unreachable, match="407") as refused:
        await caller.call(client.get, PODS, "p")
    assert "hunter2" not in str(refused.value)
    # Some versions of Python keep the connection as long as somebody keeps the error.
    sockets = [one for one in gc.get_objects() if type(one) is socket.socket]
    assert not [one for one in sockets if "[closed]" in repr(one) and one.fileno() != -1]


async def test_http_requests_are_sent_to_the_proxy(server: ScriptedServer, caller: Caller) -> None:
    server.will(answer(POD))
    proxy = server.url.replace("http://", "http://ada:pw@")
    client = caller.client(ClusterConfig(server="http://cluster.example:8080", proxy_url=proxy))
    assert await caller.call(client.get, PODS, "p") == POD
    assert server.seen[0].headers["host"] == "cluster.example:8080"
    assert server.seen[0].headers["proxy-authorization"] == "Basic YWRhOnB3"


async def test_a_rotated_token_is_used_from_the_next_request_on(
    server: ScriptedServer, caller: Caller, tmp_path: Path
) -> None:
    server.will(answer(POD), answer(POD))
    token = tmp_path / "token"
    token.write_text("one")
    client = caller.client(ClusterConfig(server=server.url, token_file=token))
    await caller.call(client.get, PODS, "p")
    token.write_text("second")
    await caller.call(client.get, PODS, "p")
    assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer one", "Bearer second"]


async def test_plugin_runs_once_more_after_a_401(server: ScriptedServer, caller: Caller, tmp_path: Path) -> None:
    refused = answer({"kind": "Status", "code": 401, "message": "Unauthorized"}, status=401)
    server.will(answer(POD), refused, answer(POD), refused, refused)
    client = caller.client(ClusterConfig(server=server.url, exec_plugin=counting_plugin(tmp_path)))
    await caller.call(client.get, PODS, "p")
    await caller.call(client.get, PODS, "p")
    with pytest.raises(Unauthorized):
        await caller.call(client.create, PODS, POD)
    assert [seen.headers["authorization"] for seen in server.seen] == [
        "Bearer token-1",
        "Bearer token-1",
        "Bearer token-2",
        "Bearer token-2",
        "Bearer token-3",
    ]


async def test_concurrent_requests_run_a_plugin_once(server: ScriptedServer, tmp_path: Path) -> None:
    server.will(*[answer(POD)] * 10)
    async with Client(ClusterConfig(server=server.url, exec_plugin=counting_plugin(tmp_path))) as client:
        await asyncio.gather(*(client.get(PODS, "p") for _ in range(10)))
    assert {seen.headers["authorization"] for seen in server.seen} == {"Bearer token-1"}


async def test_a_plugin_that_does_not_work_is_named(server: ScriptedServer, caller: Caller) -> None:
    plugin = ExecPlugin(where="exec of user 'u'", command="/nowhere/login", api_version="v", interactive_mode="Never")
    client = caller.client(ClusterConfig(server=server.url, exec_plugin=plugin))
    with pytest.raises(ConfigError, match="exec of user 'u': cannot run /nowhere/login: No such file or directory"):
        await caller.call(client.get, PODS, "p")
    assert server.seen == []


def counting_plugin(directory: Path) -> ExecPlugin:
    """Answers with `token-1`, `token-2` and so on."""
    program = directory / "login"
    version = "client.authentication.k8s.io/v1"
    said = f'{{"apiVersion":"{version}","kind":"ExecCredential","status":{{"token":"token-%s"}}}}'
    program.write_text(f"#!/bin/sh\necho >> $0.runs\nprintf '{said}' $(wc -l < $0.runs)\n")
    program.chmod(0o755)
    return ExecPlugin(where="exec of user 'u'", command=str(program), api_version=version, interactive_mode="Never")


async def test_a_limit_holds_back_requests(server: ScriptedServer) -> None:
    server.will(answer(POD), answer(POD), answer(POD))
    started = time.monotonic()
    async with Client(server.config, limit=RateLimiter(qps=10, burst=1)) as client:
        for _ in range(3):
            await client.get(PODS, "p")
    assert time.monotonic() - started >= 0.2


async def test_streams_are_not_rate_limited(server: ScriptedServer) -> None:
    server.will(answer(POD), stream(b"a\n"), stream(b'{"type":"BOOKMARK","object":{}}\n'))
    async with Client(server.config, limit=RateLimiter(qps=0.001, burst=1)) as client:
        await client.get(PODS, "p")
        assert [line async for line in client.logs("p")] == [b"a\n"]
        assert len([event async for event in client.watch(PODS)]) == 1


async def test_every_attempt_is_observed(server: ScriptedServer) -> None:
    busy = answer(b"", status=429, headers={"Retry-After": "0"})
    server.will(busy, answer(POD, status=201), cut, stream(b"a\n"))
    seen: list[RequestResult] = []
    async with Client(server.config, observe=seen.append) as client:
        await client.create(PODS, POD)
        with pytest.raises(Unreachable):
            await client.create(PODS, POD)
        assert [line async for line in client.logs("p")] == [b"a\n"]
    assert [(one.method, one.request.path.rpartition("/")[2], one.code) for one in seen] == [
        ("POST", "pods", "429"),
        ("POST", "pods", "201"),
        ("POST", "pods", "<error>"),
        ("GET", "log", "200"),
    ]
    assert all(0 < one.seconds < 20 for one in seen)


async def test_a_stream_that_is_left_early_is_closed(server: ScriptedServer) -> None:
    server.will(stream(b"a\n", b"b\n", then="hang"), answer(POD))
    async with Client(server.config) as client:
        lines = client.logs("p", follow=True)
        assert await anext(lines) == b"a\n"
        await lines.aclose()
        assert await client.get(PODS, "p") == POD


async def test_a_connection_that_the_server_has_closed_is_not_used_again(server: ScriptedServer) -> None:
    """A create on it would fail for no reason that the user could see."""
    server.will(answer(POD, headers={"Connection": "keep-alive"}), answer(POD, status=201))
    with SyncClient(server.config) as client:
        await asyncio.to_thread(client.get, PODS, "p")
        [idle] = client._idle
        assert idle.sock is not None
        idle.sock.shutdown(socket.SHUT_RDWR)
        assert await asyncio.to_thread(client.create, PODS, POD) == POD


def test_the_blocking_client_does_not_import_the_asynchronous_one() -> None:
    modules = "{'aiohttp', 'asyncio', 'cryptography'} & set(sys.modules)"
    program = f"import sys, trainwright.kube.client.sync_client; print(sorted({modules}))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
