"""A reverse proxy on loopback between a client and the real API server that injects faults.

It terminates TLS with a temporary certificate, forwards everything, streams included, and injects the faults that a
`FaultScript` chooses. `injected` records them.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec
import yarl
from aiohttp import web

from tests.support.kubernetes.controlplane import held_port
from tests.support.servers.accepted_connections import wait_for_accepted
from tests.support.servers.faults import LOST, STATUS_CODES, STREAM, Choice, Fault, FaultScript, status_of
from trainwright.cluster.pki import server_context
from trainwright.kube.client.connections import Connections
from trainwright.kube.client.credentials import tls_context
from trainwright.kube.client.kubeconfig import ClusterConfig, merge_into_kubeconfig
from trainwright.kube.client.responses import LineSplitter

_NOT_PASSED_ON = frozenset({"host", "connection", "keep-alive", "transfer-encoding", "content-length", "date"})
_LONGEST_DELAY = 2.0
"""Maximum delay of a stale watch and maximum length of an outage, in seconds."""
_DELAYS = frozenset({Fault.STALE, Fault.DRIP})
_LATE_EVENTS = 5
"""Number of delayed events before the watch is cut, so that the next watch gets another fault."""
_DROP = 512
"""Size of the pieces in bytes if a watch drips."""


@dataclass(frozen=True)
class Injected:
    fault: Fault
    method: str
    path: str


class FaultProxy:
    """Listens at `url` and injects at most `limit` faults. A silence ends after `hang_seconds`."""

    def __init__(self, target: ClusterConfig, script: FaultScript, *, limit: int, hang_seconds: float) -> None:
        self.injected: list[Injected] = []
        self.url = ""
        self._target = target
        self._script = script
        self._limit = limit
        self._hang_seconds = hang_seconds
        self._server = web.Server(self._handle, handler_cancellation=True)
        self._runner = web.ServerRunner(self._server, shutdown_timeout=0)
        self._connections = Connections()
        self._site: web.SockSite | None = None
        self._outages: set[asyncio.Task[None]] = set()

    @property
    def counts(self) -> Counter[Fault]:
        return Counter(one.fault for one in self.injected)

    @asynccontextmanager
    async def running(self, directory: Path) -> AsyncIterator[None]:
        directory.mkdir()
        self._tls, self.ca_data = server_context(directory / "pki")
        connector = aiohttp.TCPConnector(
            limit=0, ssl=tls_context(self._target) or True, socket_factory=self._connections.make_socket
        )
        async with AsyncExitStack() as stack:
            place = stack.enter_context(held_port())
            self.url = f"https://127.0.0.1:{place.getsockname()[1]}"
            # Connections of both sides: aiohttp's server does not list those in the TLS handshake, its pool not those
            # whose request was cancelled.
            stack.push_async_callback(self._connections.close)
            self._session = await stack.enter_async_context(
                aiohttp.ClientSession(
                    connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
                )
            )
            await self._runner.setup()
            stack.push_async_callback(self._stop)
            await self._listen()
            yield

    def write_kubeconfig(self, path: Path) -> Path:
        """For clients of the proxy, with credentials of the API server."""
        assert self._target.token
        merge_into_kubeconfig(path, name="faulty", server=self.url, ca_data=self.ca_data, token=self._target.token)
        return path

    async def outage(self, seconds: float) -> None:
        """Breaks all connections and refuses new ones for a while."""
        await wait_for_accepted()
        if self._site is None:
            return  # an outage is in progress
        site, self._site = self._site, None
        await site.stop()
        self._cut_all()
        await asyncio.sleep(seconds)
        await self._listen()

    async def _listen(self) -> None:
        listener = _Listener(yarl.URL(self.url).port or 0, self._connections)
        self._site = web.SockSite(self._runner, listener, ssl_context=self._tls)
        await self._site.start()

    async def _stop(self) -> None:
        for outage in self._outages:
            outage.cancel()
        await asyncio.gather(*self._outages, return_exceptions=True)
        if self._site is not None:
            await wait_for_accepted()
            await self._site.stop()
        self._cut_all()
        await self._runner.cleanup()

    def _cut_all(self) -> None:
        for connection in self._server.connections:
            if connection.transport is not None:
                connection.transport.abort()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        choice = self._script.choose(request.method, request.path, request.query_string)
        body = await request.read()
        if choice is None or choice.fault in STREAM:
            return await self._pass_on(request, body, choice)
        if not self._record(choice.fault, request):
            return await self._pass_on(request, body)
        fault = choice.fault
        if fault in LOST:
            return await self._drop_answer(request, body, fault)
        if fault is Fault.OUTAGE:
            # A task of its own, because an outage cancels this handler too.
            outage = asyncio.create_task(self.outage(choice.share * _LONGEST_DELAY))
            self._outages.add(outage)
            outage.add_done_callback(self._outages.discard)
            await asyncio.sleep(self._hang_seconds)
        if fault is Fault.SILENCE:
            await asyncio.sleep(self._hang_seconds)
        if fault in STATUS_CODES:
            headers = {"Retry-After": "1"} if fault is Fault.TOO_MANY_FOR_NOW else {}
            return web.json_response(status_of(fault), status=STATUS_CODES[fault], headers=headers)
        return _cut(request)

    def _record(self, fault: Fault, request: web.BaseRequest) -> bool:
        """Records the fault and returns True; False if the limit is reached."""
        if len(self.injected) >= self._limit:
            return False
        self.injected.append(Injected(fault, request.method, request.path))
        return True

    async def _drop_answer(self, request: web.BaseRequest, body: bytes, fault: Fault) -> web.StreamResponse:
        async with self._ask(request, body) as answer:
            content = await answer.read()
        if fault is Fault.LOST_SILENCE:
            await asyncio.sleep(self._hang_seconds)
        if fault in STATUS_CODES:
            return web.json_response(status_of(fault), status=STATUS_CODES[fault])
        if fault is Fault.LOST_HALF:
            half = web.StreamResponse(status=answer.status, headers={"Content-Length": str(len(content))})
            with suppress(ConnectionResetError):
                await half.prepare(request)
                await half.write(content[: len(content) // 2])
        return _cut(request)

    async def _pass_on(self, request: web.BaseRequest, body: bytes, choice: Choice | None = None) -> web.StreamResponse:
        async with self._ask(request, body) as answer:
            headers = {name: text for name, text in answer.headers.items() if name.lower() not in _NOT_PASSED_ON}
            response = web.StreamResponse(status=answer.status, headers=headers)
            if answer.content_length is not None:
                response.content_length = answer.content_length
            with suppress(ConnectionResetError):  # the client has disconnected
                await response.prepare(request)
                if choice is not None and answer.status == 200:
                    await self._break_stream(request, answer, response, choice)
                else:
                    async for chunk in answer.content.iter_any():
                        await response.write(chunk)
                await response.write_eof()
        return response

    async def _break_stream(
        self,
        request: web.BaseRequest,
        answer: aiohttp.ClientResponse,
        response: web.StreamResponse,
        choice: Choice,
    ) -> None:
        """Forwards `choice.after` events unchanged, then injects the fault."""
        splitter = LineSplitter()
        passed, unchanged = 0, False
        async for chunk in answer.content.iter_any():
            for line in splitter.feed(chunk):
                if passed == choice.after:
                    unchanged = not self._record(choice.fault, request)
                if passed < choice.after or unchanged:
                    await response.write(line)
                elif choice.fault not in _DELAYS or passed > choice.after + _LATE_EVENTS:
                    await _break_off(request, response, line, choice)
                    return
                else:
                    await _delay(response, line, choice, first=passed == choice.after)
                passed += 1

    def _ask(self, request: web.BaseRequest, body: bytes) -> "aiohttp.client._RequestContextManager":
        headers = {name: text for name, text in request.headers.items() if name.lower() not in _NOT_PASSED_ON}
        return self._session.request(
            request.method,
            yarl.URL(self._target.server + request.raw_path, encoded=True),
            headers=headers,
            data=body or None,
            allow_redirects=False,
        )


class _Listener(socket.socket):
    """Registers every connection that it accepts."""

    def __init__(self, port: int, connections: Connections) -> None:
        super().__init__()
        self._connections = connections
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.bind(("127.0.0.1", port))

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        accepted, address = super().accept()
        self._connections.add(accepted)
        return accepted, address


async def _delay(response: web.StreamResponse, line: bytes, choice: Choice, *, first: bool) -> None:
    if choice.fault is Fault.STALE and first:
        await asyncio.sleep(choice.share * _LONGEST_DELAY)  # later events wait behind it
    size = _DROP if choice.fault is Fault.DRIP else len(line)
    for start in range(0, len(line), size):
        await response.write(line[start : start + size])
        await asyncio.sleep(0)


async def _break_off(request: web.BaseRequest, response: web.StreamResponse, line: bytes, choice: Choice) -> None:
    match choice.fault:
        case Fault.EXPIRED_EVENT | Fault.INTERNAL_EVENT:
            await response.write(msgspec.json.encode({"type": "ERROR", "object": status_of(choice.fault)}) + b"\n")
        case Fault.CUT_WITHIN:
            await response.write(line[: 1 + int(choice.share * (len(line) - 2))])
            _cut(request)
        case Fault.CUT_BETWEEN | Fault.STALE | Fault.DRIP:
            _cut(request)


def _cut(request: web.BaseRequest) -> web.StreamResponse:
    """Aborts the connection as a crash does. The response is never sent, but a handler must return one."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
