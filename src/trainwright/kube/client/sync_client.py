"""The blocking client, for the command line: the same methods as `Client`, over the standard library alone.

It leaves aiohttp unimported, so that a command answers at once. May be used from several threads.
"""

import http.client
import os
import random
import select
import socket
import ssl
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from traceback import clear_frames
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit

from trainwright.kube.client import requests, responses
from trainwright.kube.client.credentials import Credentials, basic_authorization, proxy_of
from trainwright.kube.client.keepalive import watch_over
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.kube.client.requests import CONNECT_TIMEOUT, Failure, Patch, PatchKind, Request, Response
from trainwright.kube.client.responses import ObjectList, WatchEvent
from trainwright.kube.client.retries import retry_delay
from trainwright.objects import Object
from trainwright.objects.resources import Resource

if TYPE_CHECKING:
    from trainwright.kube.client.exec_session import ExecResult


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

    def get(
        self, resource: Resource, name: str, *, namespace: str | None = None, subresource: str | None = None
    ) -> Object:
        namespace = requests.namespace_for(resource, namespace, self.config.namespace)
        return responses.read_object(
            self.send(requests.get_request(resource, name, namespace=namespace, subresource=subresource))
        )

    def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
    ) -> ObjectList:
        pager = responses.object_pager(
            resource, namespace=namespace, label_selector=label_selector, field_selector=field_selector, limit=limit
        )
        while pager.request is not None:
            pager.take(self.send(pager.request))
        return responses.object_list(resource, pager)

    def create(
        self, resource: Resource, obj: Object, *, namespace: str | None = None, subresource: str | None = None
    ) -> Object:
        namespace = requests.namespace_of(resource, obj, namespace, self.config.namespace)
        return responses.read_object(
            self.send(requests.create_request(resource, obj, namespace=namespace, subresource=subresource))
        )

    def replace(self, resource: Resource, obj: Object, *, subresource: str | None = None) -> Object:
        namespace = requests.namespace_of(resource, obj, None, self.config.namespace)
        return responses.read_object(
            self.send(requests.replace_request(resource, obj, namespace=namespace, subresource=subresource))
        )

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Patch,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        kind: PatchKind = PatchKind.MERGE,
        field_manager: str | None = None,
        force: bool = False,
    ) -> Object:
        request = requests.patch_request(
            resource,
            name,
            patch,
            namespace=requests.namespace_for(resource, namespace, self.config.namespace),
            subresource=subresource,
            kind=kind,
            field_manager=field_manager,
            force=force,
        )
        return responses.read_object(self.send(request))

    def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        grace_period_seconds: int | None = None,
        propagation: str | None = "Background",
    ) -> Object:
        request = requests.delete_request(
            resource,
            name,
            namespace=requests.namespace_for(resource, namespace, self.config.namespace),
            uid=uid,
            grace_period_seconds=grace_period_seconds,
            propagation=propagation,
        )
        return responses.read_object(self.send(request))

    def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        timeout_seconds: int | None = 300,
        bookmarks: bool = False,
    ) -> Generator[WatchEvent, None, None]:
        request = requests.watch_request(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            resource_version=resource_version,
            timeout_seconds=timeout_seconds,
            bookmarks=bookmarks,
        )
        with closing(self.stream_lines(request)) as lines:
            for line in lines:
                yield responses.read_watch_event(line)

    def logs(
        self,
        pod: str,
        *,
        namespace: str | None = None,
        container: str | None = None,
        follow: bool = False,
        since_time: datetime | None = None,
        tail_lines: int | None = None,
        timestamps: bool = False,
        previous: bool = False,
        limit_bytes: int | None = None,
    ) -> Generator[bytes, None, None]:
        request = requests.logs_request(
            pod,
            namespace=namespace or self.config.namespace,
            container=container,
            follow=follow,
            since_time=since_time,
            tail_lines=tail_lines,
            timestamps=timestamps,
            previous=previous,
            limit_bytes=limit_bytes,
        )
        with closing(self.stream_lines(request)) as lines:
            yield from lines

    def exec(
        self,
        pod: str,
        command: Sequence[str],
        *,
        namespace: str | None = None,
        container: str | None = None,
        stdin: bytes | None = None,
        tty: bool = False,
    ) -> "ExecResult":
        """Runs a command in a container of the pod to its end. That it fails is a result; what cannot start raises."""
        # A WebSocket is worth the import of the other client: a command in a pod takes longer than that.
        import asyncio

        from trainwright.kube.client.async_client import Client

        async def run() -> "ExecResult":
            async with Client(self.config) as client:
                return await client.exec(pod, command, namespace=namespace, container=container, stdin=stdin, tty=tty)

        return asyncio.run(run())

    def raw(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: bytes | Object | None = None
    ) -> bytes:
        return responses.read_bytes(self.send(requests.raw_request(method, path, params=params, body=body)))

    def send(self, request: Request) -> Response:
        """The server's answer, good or bad, after the retries that the request allows."""
        connection, _, response = self._perform(request)
        self._idle.append(connection)
        return response

    def stream_lines(self, request: Request) -> Generator[bytes, None, None]:
        """The answer's lines as they come. Opening the stream is retried, reading it is not."""
        connection, opened, response = self._perform(request)
        splitter = responses.LineSplitter()
        with closing(connection), closing(opened):
            responses.read_bytes(response)
            try:
                while chunk := opened.read1(65536):
                    yield from splitter.feed(chunk)
            except _TROUBLE as error:
                raise responses.lost_stream(self.config.server, request, _failure(error), _reason(error)) from error
        yield from splitter.end()

    def _perform(self, request: Request) -> tuple["_Connection", http.client.HTTPResponse, Response]:
        attempt = 0
        refused = False
        while True:
            if self._credentials.awaits_plugin:
                self._credentials.ask_plugin()
            generation = self._credentials.generation
            try:
                connection, opened, body = self._attempt(request)
            except _TROUBLE as error:
                outcome = _failure(error)
                delay = self._retry_delay(request, outcome, attempt)
                if delay is None:
                    raise responses.unreachable(self.config.server, outcome, _reason(error)) from error
            else:
                if opened.status == 401 and not refused and self._credentials.after_refusal(generation):
                    connection.close()
                    refused = True
                    continue
                response = Response(opened.status, {k.lower(): v for k, v in opened.getheaders()}, body)
                delay = self._retry_delay(request, response, attempt)
                if delay is None:
                    return connection, opened, response
                connection.close()
            time.sleep(delay)
            attempt += 1

    def _attempt(self, request: Request) -> tuple["_Connection", http.client.HTTPResponse, bytes]:
        """Sends it once. The body of a good streaming answer is left to be read by the caller."""
        connection = self._connection()
        try:
            connection.sock.settimeout(request.silence_limit if request.streaming else self._timeout)
            headers = {**self._fixed_headers, **self._dialer.headers, **self._credentials.headers()}
            if request.body is not None:
                headers["Content-Type"] = request.content_type
            connection.request(request.method, self._dialer.prefix + request.target, request.body, headers)
            opened = connection.getresponse()
            body = b"" if request.streaming and responses.is_good(opened.status) else opened.read()
        except BaseException:
            connection.close()
            raise
        return connection, opened, body

    def _connection(self) -> "_Connection":
        tls = self._credentials.tls
        while self._idle:
            connection = self._idle.pop()
            if connection.tls is tls and connection.usable():
                return connection
            connection.close()
        return self._dialer.dial(tls)

    def _retry_delay(self, request: Request, outcome: Response | Failure, attempt: int) -> float | None:
        if not self._retries:
            return None
        return retry_delay(request, outcome, attempt=attempt, jitter=random.random())  # noqa: S311


class _NotConnectedError(Exception):
    """Nothing has been sent; the cause says why."""


_TROUBLE = (_NotConnectedError, http.client.HTTPException, OSError)


class _Connection(http.client.HTTPConnection):
    """One connection, with TLS and through a proxy where the cluster's configuration says so."""

    def __init__(self, host: str, port: int, *, tls: ssl.SSLContext | None, server_name: str) -> None:
        super().__init__(host, port, timeout=CONNECT_TIMEOUT)
        self.tls, self._server_name = tls, server_name

    def connect(self) -> None:
        super().connect()
        if self.tls is not None:
            self.sock = self.tls.wrap_socket(self.sock, server_hostname=self._server_name)

    def usable(self) -> bool:
        """An idle connection with something to read has been closed by the server (or is about to say so)."""
        if self.sock is None:
            return False
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return not poll.poll(0)


class _Dialer:
    """Opens connections; knows what a proxy changes about them and about requests."""

    def __init__(self, config: ClusterConfig) -> None:
        server = urlsplit(config.server)
        secure = server.scheme == "https"
        self._host = server.hostname or ""
        self._port = server.port or (443 if secure else 80)
        self._server_name = config.tls_server_name or self._host
        proxy = proxy_of(config, os.environ)
        self._proxy = urlsplit(proxy) if proxy else None
        proxy_headers: dict[str, str] = {}
        if self._proxy and self._proxy.username:
            password = unquote(self._proxy.password or "")
            proxy_headers = {"Proxy-Authorization": basic_authorization(unquote(self._proxy.username), password)}
        # A proxy is asked for a tunnel to a server with TLS, and for the page itself of a server without.
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
            # Python before 3.11.4 leaves the answer of a proxy that refuses open, and with it the socket, in its frame.
            clear_frames(error.__traceback__)
            raise _NotConnectedError(str(error)) from error
        # Requests are small and written in two pieces; the second must not wait for the first to be acknowledged.
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        watch_over(connection.sock)
        return connection


def _failure(error: Exception) -> Failure:
    if isinstance(error, _NotConnectedError):
        untrusted = isinstance(error.__cause__, ssl.SSLCertVerificationError)
        return Failure.UNTRUSTED if untrusted else Failure.NOT_CONNECTED
    return Failure.TIMED_OUT if isinstance(error, TimeoutError) else Failure.BROKEN


def _reason(error: Exception) -> str:
    origin = error.__cause__ if isinstance(error, _NotConnectedError) else error
    if isinstance(origin, http.client.IncompleteRead):
        return responses.HALF_AN_ANSWER
    return responses.reason_of(origin) if isinstance(origin, Exception) else str(error)
