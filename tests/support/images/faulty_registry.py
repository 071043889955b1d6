"""A registry in the test's event loop whose answers can be spoilt, one request at a time."""

import asyncio
import ssl
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from tests.support.images.builder import add_image
from trainwright.cluster.images.store import Image, ImageStore

Fault = Callable[[web.BaseRequest, bytes], Awaitable[web.StreamResponse]]
"""Answers in place of the registry, which would have sent these bytes."""


class FaultyRegistry:
    """Serves what `put` and `add` were given, and takes uploads."""

    def __init__(self) -> None:
        self.address = ""
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        """Method, path and headers."""
        self._documents: dict[str, tuple[bytes, str]] = {}
        self._faults: dict[str, deque[Fault]] = defaultdict(deque)
        self.over = asyncio.Event()

    def put(self, path: str, content: bytes, media_type: str = "application/octet-stream") -> None:
        self._documents[path] = (content, media_type)

    def add(self, store: ImageStore, repository: str, tag: str = "latest") -> Image:
        """An image of this store, which is created in it."""
        image = add_image(store, f"source/{repository}", ({"a": b"a" * 3000}, {"b": bytes(range(256)) * 400}))
        for digest in image.digests[1:]:
            self.put(f"/v2/{repository}/blobs/{digest}", store.blob_path(digest).read_bytes())
        manifest = store.blob_path(image.descriptor.digest).read_bytes()
        for name in (tag, image.descriptor.digest):
            self.put(f"/v2/{repository}/manifests/{name}", manifest, image.manifest.media_type)
        return image

    def spoil(self, path: str, *faults: Fault) -> None:
        """The next requests for this path get these answers."""
        self._faults[path].extend(faults)

    def count(self, path: str) -> int:
        return sum(path == asked for _, asked, _ in self.requests)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append((request.method, request.path, dict(request.headers)))
        content, media_type = self._documents.get(request.path, (b"", ""))
        if request.method in ("POST", "PUT"):
            return await self._upload(request)
        if self._faults[request.path]:
            return await self._faults[request.path].popleft()(request, content)
        if not media_type:
            error = {"code": "MANIFEST_UNKNOWN", "message": "manifest unknown to registry"}
            return web.json_response({"errors": [error]}, status=404)
        offset = int(request.headers.get("Range", "bytes=0-")[6:-1])
        headers = {"Content-Range": f"bytes {offset}-{len(content) - 1}/{len(content)}"} if offset else {}
        return web.Response(
            body=content[offset:], status=206 if offset else 200, content_type=media_type, headers=headers
        )

    async def _upload(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._faults[request.path]:
            return await self._faults[request.path].popleft()(request, b"")
        body = await request.read()
        if request.method == "POST":
            return web.Response(status=202, headers={"Location": f"{request.path}1"})
        target = request.path
        if digest := request.query.get("digest"):
            target = f"{request.path.partition('/uploads/')[0]}/{digest}"
        self.put(target, body, request.headers["Content-Type"])
        return web.Response(status=201)


@asynccontextmanager
async def faulty_registry(tls: ssl.SSLContext | None = None) -> AsyncIterator[FaultyRegistry]:
    registry = FaultyRegistry()
    runner = web.ServerRunner(web.Server(registry.handle), shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    host, port = runner.addresses[0][:2]
    registry.address = f"{host}:{port}"
    try:
        yield registry
    finally:
        registry.over.set()
        await runner.cleanup()


def refuse(status: int, code: str = "", message: str = "", headers: dict[str, str] | None = None) -> Fault:
    async def answer(request: web.BaseRequest, _: bytes) -> web.StreamResponse:
        errors = {"errors": [{"code": code, "message": message}]} if code else {}
        return web.json_response(errors, status=status, headers=headers)

    return answer


def send(content: bytes, media_type: str = "application/octet-stream") -> Fault:
    """Something else."""

    async def answer(request: web.BaseRequest, _: bytes) -> web.StreamResponse:
        return web.Response(body=content, content_type=media_type)

    return answer


def cut_after(size: int, *, ranges: bool = True) -> Fault:
    """The beginning; then the connection is cut. Without `ranges`, it begins again for those who ask for the rest."""

    async def answer(request: web.BaseRequest, content: bytes) -> web.StreamResponse:
        offset = int(request.headers.get("Range", "bytes=0-")[6:-1]) if ranges else 0
        response = web.StreamResponse(status=206 if offset else 200)
        if offset:
            response.headers["Content-Range"] = f"bytes {offset}-{len(content) - 1}/{len(content)}"
        response.content_length = len(content) - offset
        await response.prepare(request)
        await response.write(content[offset : offset + size])
        assert request.transport
        request.transport.close()
        return response

    return answer


async def cut(request: web.BaseRequest, _: bytes) -> web.StreamResponse:
    """No answer: the connection is cut."""
    assert request.transport
    request.transport.abort()
    return web.Response()


def fall_silent_after(size: int, over: asyncio.Event) -> Fault:
    async def answer(request: web.BaseRequest, content: bytes) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = len(content)
        await response.prepare(request)
        await response.write(content[:size])
        await over.wait()
        return response

    return answer
