"""The blocking client, for the command line: the methods of `Client`, with the standard library alone.

It does not import aiohttp, so that commands start fast. Several threads may share one.
"""

import http.client
import os
import random
import select
import socket
import ssl
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from traceback import clear_frames
from types import TracebackType
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar, Unpack
from urllib.parse import unquote, urlsplit

from trainwright.kube.client import requests, responses
from trainwright.kube.client.credentials import Credentials, basic_authorization, proxy_for
from trainwright.kube.client.keepalive import enable_keepalive
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.kube.client.requests import CONNECT_TIMEOUT, ExecOptions, Failure, Request, Response, Selection
from trainwright.kube.client.responses import ObjectList, ObjectPager
from trainwright.kube.client.retries import retry_delay
from trainwright.objects import Object
from trainwright.objects.resources import Resource

if TYPE_CHECKING:
    from trainwright.kube.client.exec_session import ExecResult


P = ParamSpec("P")
T = TypeVar("T")


def _object_method(build: Callable[P, Request]) -> Callable[Concatenate["SyncClient", P], Object]:
    """A method that sends the request and returns the object of the response."""

    def method(self: "SyncClient", /, *args: P.args, **kwargs: P.kwargs) -> Object:
        kwargs.setdefault("default_namespace", self.config.namespace)
        return responses.read_object(self.send(build(*args, **kwargs)))

    return method


def _stream_method(
    build: Callable[P, Request], read: Callable[[bytes], T], *, default_namespace: bool
) -> Callable[Concatenate["SyncClient", P], Generator[T, None, None]]:
    """A method that sends the request and yields the lines of the response as they arrive."""

    def method(self: "SyncClient", /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        if default_namespace:
            kwargs.setdefault("default_namespace", self.config.namespace)
        with closing(self.stream_lines(build(*args, **kwargs))) as lines:
            yield from map(read, lines)

    return method


class SyncClient:
    """Use as `with SyncClient(config) as client`, or call `close()`. Connects when first used."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        user_agent: str = "trainwright",
        retries: bool = True,
        timeout: float = 60.0,
    ) -> None:
        self.config = config
        self._dialer = _Dialer(config)
        self._credentials = Credentials(config)
        self._fixed_headers = {"User-Agent": user_agent, "Accept": "application/json", "Accept-Encoding": "identity"}
        self._retries = retries
        self._timeout = timeout
        self._idle: list[_Connection] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    get = _object_method(requests.get_request)
    create = _object_method(requests.create_request)
    replace = _object_method(requests.replace_request)
    patch = _object_method(requests.patch_request)
    delete = _object_method(requests.delete_request)
    watch = _stream_method(requests.watch_request, responses.read_watch_event, default_namespace=False)
    logs = _stream_method(requests.logs_request, bytes, default_namespace=True)

    def list(self, resource: Resource, *, limit: int = 500, **selection: Unpack[Selection]) -> ObjectList:
        pager = ObjectPager(resource, limit=limit, **selection)
        while pager.request is not None:
            pager.take(self.send(pager.request))
        return pager.objects()

    def exec(
        self, pod: str, command: Sequence[str], *, stdin: bytes | None = None, **options: Unpack[ExecOptions]
    ) -> "ExecResult":
        """Runs a command in a container and waits for it. Raises if it cannot be started; its exit code is a result."""
        # WebSockets need the asynchronous client. A command in a pod takes longer than its import.
        import asyncio

        from trainwright.kube.client.async_client import Client

        async def run() -> "ExecResult":
            async with Client(self.config) as client:
                return await client.exec(pod, command, stdin=stdin, **options)

        return asyncio.run(run())

    def raw(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: bytes | Object | None = None
    ) -> bytes:
        return responses.read_bytes(self.send(requests.raw_request(method, path, params=params, body=body)))

    def send(self, request: Request) -> Response:
        """The server's response with any status, after the retries that the request allows."""
        connection, _, response = self._perform(request)
        self._idle.append(connection)
        return response

    def stream_lines(self, request: Request) -> Generator[bytes, None, None]:
        """The lines of the response as they arrive. Opening the stream is retried, reading it is not."""
        connection, opened, response = self._perform(request)
        splitter = responses.LineSplitter()
        with closing(connection), closing(opened):
            responses.read_bytes(response)
            try:
                while chunk := opened.read1(65536):
                    yield from splitter.feed(chunk)
            except _TRANSPORT_ERRORS as error:
                raise responses.stream_error(self.config.server, request, _failure(error), _reason(error)) from error
        yield from splitter.end()

    def _perform(self, request: Request) -> tuple["_Connection", http.client.HTTPResponse, Response]:
        attempt = 0
        refreshed = False
        while True:
            if self._credentials.needs_plugin:
                self._credentials.run_plugin()
            generation = self._credentials.generation
            try:
                connection, opened, body = self._attempt(request)
            except _TRANSPORT_ERRORS as error:
                outcome = _failure(error)
                delay = self._retry_delay(request, outcome, attempt)
                if delay is None:
                    raise responses.unreachable(self.config.server, outcome, _reason(error)) from error
            else:
                if opened.status == 401 and not refreshed and self._credentials.refresh_after_unauthorized(generation):
                    connection.close()
                    refreshed = True
                    continue
                response = Response(opened.status, {k.lower(): v for k, v in opened.getheaders()}, body)
                delay = self._retry_delay(request, response, attempt)
                if delay is None:
                    return connection, opened, response
                connection.close()
            time.sleep(delay)
            attempt += 1

    def _attempt(self, request: Request) -> tuple["_Connection", http.client.HTTPResponse, bytes]:
        """Sends the request once. The caller reads the body of a successful streaming response."""
        connection = self._connection()
        try:
            connection.sock.settimeout(request.read_timeout if request.streaming else self._timeout)
            headers = {**self._fixed_headers, **self._dialer.headers, **self._credentials.headers()}
            if request.body is not None:
                headers["Content-Type"] = request.content_type
            connection.request(request.method, self._dialer.prefix + request.target, request.body, headers)
            opened = connection.getresponse()
            body = b"" if request.streaming and responses.is_success(opened.status) else opened.read()
        except BaseException:
            connection.close()
            raise
        return connection, opened, body

    def _connection(self) -> "_Connection":
        tls = self._credentials.tls
        while self._idle:
            connection = self._idle.pop()
            if connection.tls is tls and connection.is_usable():
                return connection
            connection.close()
        return self._dialer.dial(tls)

    def _retry_delay(self, request: Request, outcome: Response | Failure, attempt: int) -> float | None:
        if not self._retries:
            return None
        return retry_delay(request, outcome, attempt=attempt, jitter=random.random())  # noqa: S311


class _NotConnectedError(Exception):
    """Nothing has been sent; `__cause__` says why."""


_TRANSPORT_ERRORS = (_NotConnectedError, http.client.HTTPException, OSError)


class _Connection(http.client.HTTPConnection):
    """One connection, with TLS if the server uses it."""

    def __init__(self, host: str, port: int, *, tls: ssl.SSLContext | None, server_name: str) -> None:
        super().__init__(host, port, timeout=CONNECT_TIMEOUT)
        self.tls, self._server_name = tls, server_name

    def connect(self) -> None:
        super().connect()
        if self.tls is not None:
            self.sock = self.tls.wrap_socket(self.sock, server_hostname=self._server_name)

    def is_usable(self) -> bool:
        """False if the server has closed the idle connection: then there is something to read."""
        if self.sock is None:
            return False
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return not poll.poll(0)


class _Dialer:
    """Opens connections, through a proxy if there is one."""

    def __init__(self, config: ClusterConfig) -> None:
        server = urlsplit(config.server)
        secure = server.scheme == "https"
        self._host = server.hostname or ""
        self._port = server.port or (443 if secure else 80)
        self._server_name = config.tls_server_name or self._host
        proxy = proxy_for(config, os.environ)
        self._proxy = urlsplit(proxy) if proxy else None
        proxy_headers: dict[str, str] = {}
        if self._proxy and self._proxy.username:
            password = unquote(self._proxy.password or "")
            proxy_headers = {"Proxy-Authorization": basic_authorization(unquote(self._proxy.username), password)}
        # Through a proxy, https uses a tunnel and http the absolute URL.
        self._tunnel_headers = proxy_headers
        self.headers = {} if secure else proxy_headers
        self.prefix = config.server if self._proxy and not secure else server.path

    def dial(self, tls: ssl.SSLContext | None) -> _Connection:
        host, port = self._host, self._port
        if self._proxy:
            host, port = self._proxy.hostname or "", self._proxy.port or 80
        connection = _Connection(host, port, tls=tls, server_name=self._server_name)
        if self._proxy and tls:
            connection.set_tunnel(self._host, self._port, self._tunnel_headers)
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            # Python before 3.11.4 keeps the error response of a proxy, and with it the socket, in its frame.
            clear_frames(error.__traceback__)
            raise _NotConnectedError(str(error)) from error
        # Requests are written in two pieces; the second must not wait for the acknowledgement of the first.
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        enable_keepalive(connection.sock)
        return connection


def _failure(error: Exception) -> Failure:
    if isinstance(error, _NotConnectedError):
        untrusted = isinstance(error.__cause__, ssl.SSLCertVerificationError)
        return Failure.UNTRUSTED if untrusted else Failure.NOT_CONNECTED
    return Failure.TIMED_OUT if isinstance(error, TimeoutError) else Failure.BROKEN


def _reason(error: Exception) -> str:
    origin = error.__cause__ if isinstance(error, _NotConnectedError) else error
    if isinstance(origin, http.client.IncompleteRead):
        return responses.INCOMPLETE_RESPONSE
    return responses.reason_for(origin) if isinstance(origin, Exception) else str(error)
