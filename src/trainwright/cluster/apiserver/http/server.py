"""The HTTP server: authentication and authorization, streaming and upgrades. `Routes` handles the requests."""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiohttp import web
from multidict import MultiDict, MultiMapping

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.access.access_control import AccessControl
from trainwright.cluster.apiserver.access.request_info import RequestInfo, parse_query, parse_request, split_target
from trainwright.cluster.apiserver.access.users import ANONYMOUS, UserInfo
from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.http.monitoring.request_metrics import request_labels
from trainwright.cluster.apiserver.http.request_bodies import LIMIT, convert_long_yaml
from trainwright.cluster.apiserver.http.requests import ApiRequest, ResourceInfo, Upgrade, check_verb
from trainwright.cluster.apiserver.http.responses import (
    Response,
    StreamingResponse,
    UpgradeResponse,
    encode,
    warning_headers,
)
from trainwright.cluster.apiserver.http.routes import Routes, ServedCluster
from trainwright.kube.client.requests import InProcessResponse, Request
from trainwright.kube.client.requests import Response as KubeResponse
from trainwright.net import websocket
from trainwright.net.certificate_authority import Authority, new_key_pem
from trainwright.net.http_server import BodyTooLargeError, HttpServer, is_local, listen, read_body

logger = logging.getLogger(__name__)

_READS = {"get", "list", "watch"}
_STREAM_SHUTDOWN_SECONDS = 1.0
"""How long streams may take to end when the server stops."""

_CONNECTION_SHUTDOWN_SECONDS = 1.0
"""How long responses may take to be sent after that, and then their handlers to be cancelled."""


@dataclass(frozen=True, slots=True)
class _Received:
    """A request without its body, over HTTP or from a client in this process."""

    info: RequestInfo
    query: MultiMapping[str]
    headers: Mapping[str, str]
    certificate: Mapping[str, Any] | None = None
    """That of the client, if TLS has verified one."""
    is_local: bool = False
    """True if it came over the Unix socket."""


class ApiServer:
    """Serves the Kubernetes API of a cluster, on loopback.

    `token` is that of the cluster's administrator. `load_service_account_key` returns the key (PEM) of service account
    tokens; `authority` is the CA certificate (PEM) that clients trust. With `load_authority`, the CA, certificates of
    clients are signed. `unix_socket` is another way to the same API, with the same tokens.
    """

    def __init__(
        self,
        cluster: ServedCluster,
        *,
        token: str,
        tls: ssl.SSLContext | None,
        load_service_account_key: Callable[[], bytes] = new_key_pem,
        authority: bytes = b"",
        load_authority: Callable[[], Authority] | None = None,
        unix_socket: Path | None = None,
    ) -> None:
        self._clock = cluster.clock
        self._unix_socket = unix_socket
        self._admits_accounts = cluster.admits_accounts
        self._access = AccessControl(
            cluster.store, token, load_key=load_service_account_key, authority=authority, load_authority=load_authority
        )
        self._routes = Routes(cluster, self._access)
        self._http = HttpServer(self._handle, tls=tls, cancel_handlers=True)
        self._stopping = False
        self._writing: set[asyncio.Task[Response]] = set()
        self._streaming: set[asyncio.Task[None]] = set()
        self._upgraded: set[asyncio.Task[None]] = set()
        self._event_expiry: asyncio.Task[None] | None = None

    async def start(self, listeners: list[socket.socket] | None = None) -> int:
        """Creates the system namespaces and default roles, then serves connections to `listeners`, by default to a free
        port of loopback; returns the port."""
        await self._routes.prepare()
        bound = await self._http.start(listeners or await listen("127.0.0.1", 0), self._unix_socket)
        self._event_expiry = asyncio.create_task(self._routes.expire_objects_for_ever())
        if self._admits_accounts:  # the first pod needs a token, and loading the key takes a tenth of a second
            asyncio.get_running_loop().run_in_executor(None, self._access.signer.key)
        return bound

    async def stop(self) -> None:
        """Stops listening, refuses new requests, ends streams cleanly and finishes writes. The caller closes the store.

        Clients that follow a stream open the next one at once, on the same connection.
        """
        self._stopping = True
        self._http.stop_listening()
        self._routes.stop_watches()
        for session in self._upgraded:
            session.cancel()
        await asyncio.gather(*self._upgraded, return_exceptions=True)
        if self._streaming:
            await asyncio.wait(self._streaming, timeout=_STREAM_SHUTDOWN_SECONDS)
        tasks = [*self._streaming, *([self._event_expiry] if self._event_expiry else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._writing, return_exceptions=True)
        await self._http.close(grace_seconds=_CONNECTION_SHUTDOWN_SECONDS)
        await self._routes.close()

    async def expire_events(self) -> None:
        """Runs every minute by itself; public for tests."""
        await self._routes.expire_objects()

    async def respond(self, request: Request, headers: Mapping[str, str]) -> InProcessResponse:
        """To a client in this process."""
        info: RequestInfo | None = None
        await asyncio.sleep(0)  # otherwise many reads in a row would keep all other tasks waiting
        try:
            query = MultiDict(request.params)
            info = parse_request(request.method, request.path, query)
            received = _Received(info, query, headers)
            user = self._authorize(received)
            if len(request.body or b"") > LIMIT:
                raise errors.too_large(LIMIT)
            if self._stopping:
                raise errors.shutting_down()
            response = await self._measured(received, request.body or b"", user)
        except Exception as error:
            response = _error_response(error, info)
        if isinstance(response, StreamingResponse):
            return InProcessResponse(KubeResponse(200, {}, b""), _chunks(response))
        if isinstance(response, UpgradeResponse):
            response.release()
            response = _error_response(errors.bad_request("Upgrade request required"), info)
        return InProcessResponse(KubeResponse(response.code, {}, response.body))

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        info: RequestInfo | None = None
        try:
            path, query_text = split_target(request.raw_path)
            query = parse_query(query_text)
            info = parse_request(request.method, path, query)
            received = _Received(
                info,
                query,
                request.headers,
                certificate=transport.get_extra_info("peercert") if transport else None,
                is_local=is_local(request),
            )
            user = self._authorize(received)
            if user.name != ANONYMOUS:
                self._http.authenticated(request)
            body = await _read(request)
            if self._stopping:
                return _shutting_down()
            response = await self._measured(received, body, user)
            if isinstance(response, StreamingResponse):
                return await self._stream(request, response)
            if isinstance(response, UpgradeResponse):
                return await self._upgrade(request, response)
            return _to_aiohttp(response)
        except ConnectionError:
            raise
        except Exception as error:
            return _to_aiohttp(_error_response(error, info))

    def _authorize(self, request: "_Received") -> UserInfo:
        """The user of the request, who is allowed to send it; raises 401 or 403."""
        user = self._access.authenticator.user_of(list(request.headers.items()), request.certificate, self._clock())
        wanted = request.info
        if wanted.opens_pod_session and wanted.verb == "get":  # a WebSocket begins with a GET
            wanted = replace(wanted, verb="create")
        self._access.authorizer.check(user, wanted)
        return user

    async def _measured(
        self, request: "_Received", body: bytes, user: UserInfo
    ) -> Response | StreamingResponse | UpgradeResponse:
        """The response, also to a request that fails; counted in the metrics."""
        resource = self._routes.find(request.info)
        labels, metrics = request_labels(request.info, resource, request.query), self._routes.metrics
        code, started = 0, time.perf_counter()
        metrics.begin(labels)
        try:
            response = await self._route(request, resource, body, user)
            code = response.code if isinstance(response, Response) else 200
            return response
        except ConnectionError:
            raise
        except Exception as error:
            failed = _error_response(error, request.info)
            code = failed.code
            return failed
        finally:
            metrics.end(labels, code, time.perf_counter() - started)

    async def _route(
        self, request: "_Received", resource: ResourceInfo | None, body: bytes, user: UserInfo
    ) -> Response | StreamingResponse | UpgradeResponse:
        info, accept = request.info, request.headers.get("Accept", "")
        content_type = request.headers.get("Content-Type", "")
        kind = resource.kind.resource.kind if resource else ""
        body, content_type = await convert_long_yaml(body, content_type, kind=kind)
        if resource is None:
            return await self._routes.handle_unstored(info, request.query, accept, body, content_type, user)
        check_verb(info, resource)
        api_request = ApiRequest(
            resource,
            info.verb,
            self._clock(),
            request.query,
            accept=accept,
            content_type=content_type,
            user_agent=request.headers.get("User-Agent", ""),
            body=body,
            user=user,
            upgrade=_upgrade_of(request),
        )
        if info.opens_pod_session:
            return await self._routes.handle_connect(api_request)
        if info.verb in _READS:
            return self._routes.handle_get(api_request)
        # A write is completed even if the client disconnects.
        task = asyncio.create_task(self._write(api_request, info))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return await asyncio.shield(task)

    async def _write(self, write: ApiRequest, info: RequestInfo) -> Response:
        """Answers a refusal too: after the client has disconnected, its exception would not be retrieved."""
        try:
            return await self._routes.handle_write(write)
        except StatusError as refusal:
            return _error_response(refusal, info)

    async def _stream(self, request: web.BaseRequest, stream: StreamingResponse) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": stream.content_type, "Cache-Control": "no-cache, private"}
        )
        response.enable_chunked_encoding()
        task = asyncio.current_task()
        if task is not None:
            self._streaming.add(task)
        try:
            await response.prepare(request)
            async for chunk in stream.chunks:
                await response.write(chunk)
            await response.write_eof()
        finally:
            await stream.close()
            if task is not None:
                self._streaming.discard(task)
        return response

    async def _upgrade(self, request: web.BaseRequest, upgrade: UpgradeResponse) -> web.StreamResponse:
        try:
            accepted = await websocket.accept(request, upgrade.protocols)
            session = asyncio.create_task(_serve(accepted, upgrade))
            self._upgraded.add(session)
            session.add_done_callback(self._upgraded.discard)
            try:
                await session
            except asyncio.CancelledError:
                session.cancel()
                await asyncio.gather(session, return_exceptions=True)
                if not self._stopping:
                    raise  # the client has gone
            return accepted.response
        finally:
            upgrade.release()


async def _serve(accepted: websocket.AcceptedWebSocket, upgrade: UpgradeResponse) -> None:
    try:
        await upgrade.serve(accepted)
    except ConnectionError:
        pass  # the client has gone
    except asyncio.CancelledError:
        await accepted.close(going_away=True)
        raise


async def _chunks(stream: StreamingResponse) -> AsyncGenerator[bytes, None]:
    try:
        async for chunk in stream.chunks:
            yield chunk
    finally:
        await stream.close()


def _upgrade_of(request: _Received) -> Upgrade:
    protocol = request.headers.get("Upgrade", "").lower()
    subprotocols = websocket.requested_protocols(request.headers.get("Sec-WebSocket-Protocol", ""))
    return Upgrade(protocol, tuple(subprotocols), passes_descriptors=request.is_local)


async def _read(request: web.BaseRequest) -> bytes:
    try:
        return await read_body(request, LIMIT)
    except BodyTooLargeError as error:
        raise errors.too_large(LIMIT) from error
    except TimeoutError as error:
        raise errors.bad_request("the body did not arrive in time") from error


def _error_response(error: Exception, info: RequestInfo | None) -> Response:
    """`info` is missing if the error is that of its parser."""
    if isinstance(error, RecursionError):
        error = errors.bad_request("the body is nested too deeply")
    if not isinstance(error, StatusError):
        what = f"{info.method} {info.url_path}" if info else "a request"
        logger.error("%s failed", what, exc_info=error)
        error = errors.internal(f"{type(error).__name__}: {error}")
    return Response(error.code, encode(error.status()))


def _shutting_down() -> web.Response:
    """The client may send the request again: it was not executed."""
    response = _to_aiohttp(_error_response(errors.shutting_down(), None))
    response.headers["Retry-After"] = "1"
    response.force_close()
    return response


def _to_aiohttp(result: Response) -> web.Response:
    body = result.body + b"\n" if result.content_type == "application/json" else result.body  # as the real server
    response = web.Response(status=result.code, body=body, headers={"Content-Type": result.content_type})
    response.headers["Cache-Control"] = "no-cache, private"
    for value in warning_headers(result.warnings):
        response.headers.add("Warning", value)
    return response
