"""The asynchronous client of the Kubernetes API: for the operator, the controllers and the node.

It sends requests over aiohttp or, if the API server is in the same process, passes them to it.
"""

import asyncio
import os
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

import aiohttp
import yarl
from aiohttp.abc import AbstractStreamWriter

from trainwright.kube.client import requests, responses
from trainwright.kube.client.connections import Connections
from trainwright.kube.client.credentials import Credentials, proxy_for
from trainwright.kube.client.errors import ApiError
from trainwright.kube.client.exec_session import ExecResult, ExecSession, connect
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.kube.client.rate_limiter import RateLimiter
from trainwright.kube.client.requests import (
    CONNECT_TIMEOUT,
    ExecOptions,
    Failure,
    InProcessServer,
    Request,
    RequestResult,
    Response,
    Selection,
)
from trainwright.kube.client.responses import ObjectList, ObjectPager
from trainwright.kube.client.retries import retry_delay
from trainwright.objects import Object
from trainwright.objects.resources import Resource

P = ParamSpec("P")
T = TypeVar("T")


def _object_method(build: Callable[P, Request]) -> Callable[Concatenate["Client", P], Coroutine[Any, Any, Object]]:
    """A method that sends the request and returns the object of the response."""

    async def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Object:
        kwargs.setdefault("default_namespace", self.config.namespace)
        return responses.read_object(await self.send(build(*args, **kwargs)))

    return method


def _stream_method(
    build: Callable[P, Request], read: Callable[[bytes], T], *, default_namespace: bool
) -> Callable[Concatenate["Client", P], AsyncGenerator[T, None]]:
    """A method that sends the request and yields the lines of the response as they arrive. Raises Expired if a watch
    starts from a version that is too old, Unreachable if the stream breaks."""

    async def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        if default_namespace:
            kwargs.setdefault("default_namespace", self.config.namespace)
        async with aclosing(self.stream_lines(build(*args, **kwargs))) as lines:
            async for line in lines:
                yield read(line)

    return method


class Client:
    """Use as `async with Client(config) as client`, or call `close()`. Needs a running event loop from the start.

    `gate` is called before each attempt to send a request, and again before its body is written; it raises if the
    request must not be sent. `limit` applies to everything but streams. `observe` is called after every attempt; it
    must return at once and not raise. `server` is given if it is in this process: then only exec sessions need a
    connection.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        user_agent: str = "trainwright",
        retries: bool = True,
        timeout: float = 60.0,
        connections: int = 100,
        gate: Callable[[Request], None] | None = None,
        limit: RateLimiter | None = None,
        observe: Callable[[RequestResult], None] | None = None,
        server: InProcessServer | None = None,
    ) -> None:
        self.config = config
        self._server = server
        self._gate, self._limit, self._observe = gate, limit, observe
        self._credentials = Credentials(config)
        self._retries = retries
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_TIMEOUT)
        self._proxy = proxy_for(config, os.environ)
        self._plugin_lock = asyncio.Lock()
        self._connections = Connections()
        self._connector = aiohttp.TCPConnector(
            limit=connections, keepalive_timeout=30.0, socket_factory=self._connections.make_socket
        )
        # No compression: the network is fast, and CPU is scarce on both sides.
        self._headers = {"User-Agent": user_agent, "Accept": "application/json", "Accept-Encoding": "identity"}
        self._session = aiohttp.ClientSession(connector=self._connector, headers=self._headers, auto_decompress=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._session.close()
        await self._connections.close()

    get = _object_method(requests.get_request)
    create = _object_method(requests.create_request)
    replace = _object_method(requests.replace_request)
    patch = _object_method(requests.patch_request)
    delete = _object_method(requests.delete_request)
    watch = _stream_method(requests.watch_request, responses.read_watch_event, default_namespace=False)
    logs = _stream_method(requests.logs_request, bytes, default_namespace=True)

    async def list(self, resource: Resource, *, limit: int = 500, **selection: Unpack[Selection]) -> ObjectList:
        """All objects, in pages of `limit`; of all namespaces if `namespace` is None."""
        pager = ObjectPager(resource, limit=limit, **selection)
        while pager.request is not None:
            pager.take(await self.send(pager.request))
        return pager.objects()

    async def exec(
        self, pod: str, command: Sequence[str], *, stdin: bytes | None = None, **options: Unpack[ExecOptions]
    ) -> ExecResult:
        """Runs a command in a container and waits for it. Raises if it cannot be started; its exit code is a result."""
        async with self.start_exec(pod, command, stdin=stdin is not None, **options) as session:
            return await session.result(stdin)

    @asynccontextmanager
    async def start_exec(
        self, pod: str, command: Sequence[str], *, stdin: bool = False, **options: Unpack[ExecOptions]
    ) -> AsyncIterator[ExecSession]:
        """The session of a running command, with access to its streams."""
        options["namespace"] = options.get("namespace") or self.config.namespace
        session = await self._connect(requests.exec_request(pod, command, stdin=stdin, **options))
        try:
            yield session
        finally:
            await session.close()

    async def raw(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: bytes | Object | None = None
    ) -> bytes:
        return responses.read_bytes(await self.send(requests.raw_request(method, path, params=params, body=body)))

    async def send(self, request: Request) -> Response:
        """The server's response with any status, after the retries that the request allows."""
        response, _ = await self._perform(request)
        return response

    async def stream_lines(self, request: Request) -> AsyncGenerator[bytes, None]:
        """The lines of the response as they arrive. Opening the stream is retried, reading it is not."""
        response, stream = await self._perform(request)
        responses.read_bytes(response)
        splitter = responses.LineSplitter()
        if stream is not None:
            try:
                async with aclosing(stream) as chunks:
                    async for chunk in chunks:
                        for line in splitter.feed(chunk):
                            yield line
            except _TRANSPORT_ERRORS as error:
                raise responses.stream_error(self.config.server, request, _failure(error), _reason(error)) from error
        for line in splitter.end():
            yield line

    async def _connect(self, request: Request) -> ExecSession:
        """Opens a WebSocket. There are no retries: a command that may have run must not run again."""
        if self._credentials.needs_plugin:
            await self._run_plugin()
        self._check_gate(request)
        started = time.perf_counter()
        try:
            session = await connect(
                self._connector,
                self._url(request),
                server=self.config.server,
                headers={**self._headers, **self._credentials.headers()},
                proxy=self._proxy,
                tls=self._credentials.tls,
                server_name=self.config.tls_server_name,
            )
        except ApiError as error:
            self._report(request, error.code, started)
            raise
        except _TRANSPORT_ERRORS as error:
            self._report(request, None, started)
            raise responses.unreachable(self.config.server, _failure(error), _reason(error)) from error
        self._report(request, 101, started)
        return session

    async def _perform(self, request: Request) -> "tuple[Response, _Stream | None]":
        """The stream is that of a successful streaming request."""
        attempt = 0
        refreshed = False
        while True:
            if self._limit is not None and not request.streaming:
                await _wait_for(self._limit)
            if self._credentials.needs_plugin:
                await self._run_plugin()
            generation, started = self._credentials.generation, time.perf_counter()
            try:
                response, stream = await self._attempt(request)
            except _TRANSPORT_ERRORS as error:
                self._report(request, None, started)
                outcome = _failure(error)
                delay = self._retry_delay(request, outcome, attempt)
                if delay is None:
                    raise responses.unreachable(self.config.server, outcome, _reason(error)) from error
            else:
                self._report(request, response.status, started)
                if response.status == 401 and not refreshed and await self._refresh_credentials(generation):
                    refreshed = True
                    continue
                delay = self._retry_delay(request, response, attempt)
                if delay is None:
                    return response, stream
            await asyncio.sleep(delay)
            attempt += 1

    async def _run_plugin(self) -> None:
        async with self._plugin_lock:
            await asyncio.to_thread(self._credentials.run_plugin)

    async def _refresh_credentials(self, generation: int) -> bool:
        """True if there are newer credentials after a 401."""
        async with self._plugin_lock:
            return await asyncio.to_thread(self._credentials.refresh_after_unauthorized, generation)

    def _report(self, request: Request, status: int | None, started: float) -> None:
        if self._observe is not None:
            self._observe(RequestResult(request, status, time.perf_counter() - started))

    async def _attempt(self, request: Request) -> "tuple[Response, _Stream | None]":
        """Sends the request once."""
        self._check_gate(request)
        headers = dict(self._credentials.headers())
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if self._server is not None:
            answer = await self._server.respond(request, self._headers | headers)
            return answer.response, answer.stream
        body = self._body_of(request)
        try:
            opened = await self._session.request(
                request.method,
                self._url(request),
                data=body,
                headers=headers,
                timeout=self._timeout_of(request),
                proxy=self._proxy,
                ssl=self._credentials.tls or True,
                server_hostname=self.config.tls_server_name,
                allow_redirects=False,
            )
        except aiohttp.ClientConnectionError as error:
            if isinstance(body, _GatedBody) and body.refused is not None:
                raise body.refused from error
            raise
        names = {name.lower(): value for name, value in opened.headers.items()}
        if request.streaming and responses.is_success(opened.status):
            return Response(opened.status, names, b""), _chunks(opened)
        async with opened:
            return Response(opened.status, names, await opened.read()), None

    def _url(self, request: Request) -> yarl.URL:
        return yarl.URL(self.config.server + request.target, encoded=True)

    def _check_gate(self, request: Request) -> None:
        if self._gate is not None:
            self._gate(request)

    def _body_of(self, request: Request) -> "bytes | _GatedBody | None":
        if self._gate is None or request.body is None:
            return request.body
        return _GatedBody(request.body, partial(self._gate, request))

    def _timeout_of(self, request: Request) -> aiohttp.ClientTimeout:
        if not request.streaming:
            return self._timeout
        return aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=request.read_timeout)

    def _retry_delay(self, request: Request, outcome: Response | Failure, attempt: int) -> float | None:
        if not self._retries:
            return None
        return retry_delay(request, outcome, attempt=attempt, jitter=random.random())  # noqa: S311


class _GatedBody(aiohttp.BytesPayload):
    """Calls `gate` again before the first byte is written. The request may have waited for a connection, or the whole
    process may have been stopped for a minute. The headers are sent with the body, so a request that the gate rejects
    here has not been sent at all. aiohttp wraps the gate's error; `refused` keeps it."""

    def __init__(self, body: bytes, gate: Callable[[], None]) -> None:
        super().__init__(body)
        self.refused: Exception | None = None
        self._gate = gate

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        try:
            self._gate()
        except Exception as error:
            self.refused = error
            raise
        await super().write_with_length(writer, content_length)


_TRANSPORT_ERRORS = (aiohttp.ClientError, OSError, TimeoutError)
_Stream = AsyncGenerator[bytes, None]


async def _wait_for(limit: RateLimiter) -> None:
    wait = limit.reserve(asyncio.get_running_loop().time())
    if wait > 0:
        await asyncio.sleep(wait)


async def _chunks(opened: aiohttp.ClientResponse) -> _Stream:
    try:
        async for chunk in opened.content.iter_any():
            yield chunk
    finally:
        _abort(opened)


def _abort(opened: aiohttp.ClientResponse) -> None:
    """A graceful close of TLS would wait for the server, perhaps longer than the event loop runs."""
    if opened.connection is not None and opened.connection.transport is not None:
        opened.connection.transport.abort()
    opened.close()


def _failure(error: Exception) -> Failure:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return Failure.UNTRUSTED
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.ClientHttpProxyError):
        return Failure.NOT_CONNECTED
    return Failure.TIMED_OUT if isinstance(error, TimeoutError) else Failure.BROKEN


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return responses.reason_for(error.certificate_error)
    if isinstance(error, aiohttp.ClientPayloadError):
        return responses.INCOMPLETE_RESPONSE
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy responded with {error.status} {error.message}"  # str(error) shows the proxy's password
    return responses.reason_for(error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error)
