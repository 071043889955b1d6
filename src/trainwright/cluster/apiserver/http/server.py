"""The HTTP edge of the embedded API server: TLS, the token, sizes, streams. What is answered is decided below it."""

import asyncio
import hmac
import logging
import ssl
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from aiohttp import web

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.errors import ApiFailure
from trainwright.cluster.apiserver.http.bodies import LIMIT
from trainwright.cluster.apiserver.http.calls import Answer, Call
from trainwright.cluster.apiserver.http.logs import LogReader
from trainwright.cluster.apiserver.http.routes import Routes, Stream
from trainwright.cluster.apiserver.http.tables import encode
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.net.accepted_connections import all_accepted

logger = logging.getLogger(__name__)

_OPEN_PATHS = {"/healthz", "/livez", "/readyz", "/version"}
"""Answered without a token, as by the real server: they tell nothing but that it is there."""


_GOODBYE_SECONDS = 1.0
"""How long a stream may take to end by itself when the server stops."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class ApiServer:
    """Serves the Kubernetes API from a store, on loopback. `/readyz` fails while `broken_parts` names any."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        token: str,
        tls: ssl.SSLContext | None,
        logs: LogReader,
        clock: Callable[[], datetime] = _utc_now,
        broken_parts: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._token = token.encode()
        self._tls = tls
        self._clock = clock
        self._routes = Routes(store, logs, clock, broken_parts)
        self._runner: web.ServerRunner | None = None
        self._writing: set[asyncio.Task[Answer]] = set()
        self._streaming: set[asyncio.Task[None]] = set()
        self._housekeeping: asyncio.Task[None] | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listens, and answers with the port; what every cluster has from its birth is there when it returns."""
        await self._routes.prepare()
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=self._tls, backlog=512)
        await site.start()
        self._housekeeping = asyncio.create_task(self._routes.expire_events_for_ever())
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Ends streams cleanly, finishes writes, and stops listening. The store is its owner's to close."""
        self._routes.stop_watches()
        if self._streaming:
            await asyncio.wait(self._streaming, timeout=_GOODBYE_SECONDS)
        tasks = [*self._streaming, *([self._housekeeping] if self._housekeeping else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._writing, return_exceptions=True)
        if self._runner:
            await all_accepted()
            await self._runner.cleanup()

    async def forget_old_events(self) -> None:
        """What happens every minute by itself."""
        await self._routes.expire_events()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            self._authenticate(request)
            body = await _read(request)
            answer = await self._answer(request, body)
            if isinstance(answer, Stream):
                return await self._stream(request, answer)
            return _response(answer)
        except ApiFailure as failure:
            return _refusal(failure)
        except RecursionError:
            return _refusal(errors.bad_request("the body is nested too deeply"))
        except ConnectionError:
            raise
        except Exception as error:
            logger.exception("%s %s failed", request.method, request.path)
            return _refusal(errors.internal(f"{type(error).__name__}: {error}"))

    def _authenticate(self, request: web.BaseRequest) -> None:
        if request.path in _OPEN_PATHS:
            return
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        given = token.strip().encode(errors="surrogateescape")  # a header may hold any byte
        if scheme.lower() != "bearer" or not hmac.compare_digest(given, self._token):
            raise errors.unauthorized()

    async def _answer(self, request: web.BaseRequest, body: bytes) -> Answer | Stream:
        path = request.path
        target = self._routes.target(path)
        if target is None:
            return self._routes.page(
                request.method, path, request.query, request.headers.get("Accept", ""), body, request.content_type
            )
        call = Call(
            target,
            request.method,
            request.query,
            self._clock(),
            accept=request.headers.get("Accept", ""),
            content_type=request.headers.get("Content-Type", ""),
            user_agent=request.headers.get("User-Agent", ""),
            body=body,
        )
        if request.method == "GET":
            return self._routes.read(call)
        # A client that hangs up must not leave a write half done.
        task = asyncio.create_task(self._routes.write(call))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return await asyncio.shield(task)

    async def _stream(self, request: web.BaseRequest, stream: Stream) -> web.StreamResponse:
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


async def _read(request: web.BaseRequest) -> bytes:
    if not request.body_exists:
        return b""
    parts = []
    size = 0
    async for chunk in request.content.iter_any():
        size += len(chunk)
        if size > LIMIT:
            raise errors.too_large(LIMIT)
        parts.append(chunk)
    return b"".join(parts)


def _refusal(failure: ApiFailure) -> web.Response:
    return _response(Answer(failure.code, encode(failure.status())))


def _response(answer: Answer) -> web.Response:
    response = web.Response(status=answer.code, body=answer.body, headers={"Content-Type": answer.content_type})
    response.headers["Cache-Control"] = "no-cache, private"
    for warning in dict.fromkeys(answer.warnings):
        text = warning.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        response.headers.add("Warning", f'299 - "{text}"')
    return response
