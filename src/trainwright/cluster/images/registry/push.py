"""Pushing images: blobs that the registry lacks are mounted from another repository or uploaded, then the manifest."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

import msgspec

from trainwright.cluster.images.blobs import BlobWriter, DamagedImageError
from trainwright.cluster.images.formats import OCI_LAYER_GZIP, OCI_MANIFEST, Descriptor, digest_of
from trainwright.cluster.images.layers.built import BuiltLayers, damaged_layer, stream_command
from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.registry.client import Body, RegistryClient, run_together, with_accepted_credential
from trainwright.cluster.images.registry.credentials import Keyring, choices
from trainwright.cluster.images.registry.errors import AccessDeniedError, NotFoundError, RegistryError
from trainwright.cluster.images.registry.settings import (
    LayerProgress,
    RegistrySettings,
    Report,
    State,
    endpoints,
    ignore,
)
from trainwright.cluster.images.store import Image, ImageStore

_PIECE = 1 << 20
_MOST_SOURCES = 3


@dataclass(frozen=True, slots=True)
class Pushed:
    digest: str
    size: int
    """Bytes of the manifest."""


async def push_image(
    store: ImageStore,
    image: Image,
    reference: ImageReference,
    *,
    credentials: Keyring | None = None,
    settings: RegistrySettings | None = None,
    progress: Report = ignore,
) -> Pushed:
    """Uploads the image under this name, layers that were built here compressed. Its ID stays the same.

    The store remembers the digest by which the registry has it.
    """
    settings = settings or RegistrySettings()
    [endpoint] = endpoints(reference.registry, settings, with_mirrors=False)

    async def push(client: RegistryClient) -> Pushed:
        return await _Pusher(client, store, image, reference, progress).push()

    with store.lease():
        try:
            pushed = await with_accepted_credential(endpoint, choices(credentials, reference), settings, push)
        except AccessDeniedError as error:
            raise AccessDeniedError(f"{reference.familiar}: {error}") from error
        present = store.find(reference)
        if present and present.id == image.id and present.repo_digest != pushed.digest:
            store.set_registry_digest(reference, image, pushed.digest)
    return pushed


class _Pusher:
    def __init__(
        self, client: RegistryClient, store: ImageStore, image: Image, reference: ImageReference, report: Report
    ) -> None:
        self._client, self._store, self._image, self._reference = client, store, image, reference
        self._report = report
        self._scope = f"repository:{reference.repository}:pull,push"
        self._built = BuiltLayers(store)
        self._names = {
            layer.digest: diff_id.partition(":")[2][:12]
            for layer, diff_id in zip(image.manifest.layers, image.config.rootfs.diff_ids, strict=True)
        }

    async def push(self) -> Pushed:
        manifest = self._image.manifest
        # Docker lists the topmost layer first.
        layers = list({layer.digest: layer for layer in reversed(manifest.layers)}.values())
        for layer in layers:
            self._tell(layer, "Preparing")
        data = self._store.read_document(self._image.descriptor)
        sources = self._sources(layers)
        uploaded = await run_together(self._push_layer(layer, sources[layer.digest]) for layer in layers)
        there = dict(zip((layer.digest for layer in layers), uploaded, strict=True))
        await self._push_blob(manifest.config, [])
        if any(digest != upload.digest for digest, upload in there.items()):
            # The manifest names the layers as they were compressed. Docker and podman do the same.
            compressed = [there[layer.digest] for layer in manifest.layers]
            data = msgspec.structs.replace(manifest, layers=compressed).encode()
        media_type = manifest.media_type or self._image.descriptor.media_type or OCI_MANIFEST
        path = f"/v2/{self._reference.repository}/manifests/{self._reference.identifier}"
        body = Body(lambda: data, len(data), media_type, is_idempotent=True)
        async with self._client.request("PUT", path, scope=self._scope, body=body, accept=(200, 201, 202)):
            return Pushed(digest_of(data), len(data))

    def _sources(self, layers: Iterable[Descriptor]) -> dict[str, list[str]]:
        """Other repositories of this registry that have a layer, as far as the store knows."""
        wanted = self._reference
        sources: dict[str, list[str]] = {layer.digest: [] for layer in layers}
        for image in self._store.images():
            name = image.reference
            if name is None or name.registry != wanted.registry or name.repository == wanted.repository:
                continue
            for layer in image.manifest.layers:
                known = sources.get(layer.digest)
                if known is not None and name.repository not in known and len(known) < _MOST_SOURCES:
                    known.append(name.repository)
        return sources

    async def _push_layer(self, layer: Descriptor, sources: list[str]) -> Descriptor:
        """The layer as the registry has it."""
        async with self._client.slots:
            if self._store.has_blob(layer.digest) or not self._store.is_built(layer.digest):
                await self._push_blob(layer, sources)
                return layer
            known = self._built.compressed(layer)
            if known is not None:
                self._names[known.digest] = self._names[layer.digest]
                if await self._is_there(known, sources):
                    return known
            with self._store.writer() as writer:
                await self._compress(layer, writer)
                compressed = Descriptor(media_type=OCI_LAYER_GZIP, digest=writer.digest, size=writer.size)
                self._names[compressed.digest] = self._names[layer.digest]
                self._built.remember_compressed(layer, compressed)
                await self._push_blob(compressed, sources, file=writer.flush())
            return compressed

    async def _compress(self, layer: Descriptor, writer: BlobWriter) -> None:
        process = await asyncio.create_subprocess_exec(
            *stream_command(self._store, layer, "gzip"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018 (for the type checker)
        try:
            while piece := await process.stdout.read(_PIECE):
                await asyncio.to_thread(writer.write, piece)
            message = await process.stderr.read()
            if await process.wait():
                raise damaged_layer(self._store, layer, message)
        except BaseException:
            with suppress(ProcessLookupError):
                process.kill()
            # Not reaped here, it would be reported as unknown when the loop ends.
            await process.wait()
            raise

    async def _push_blob(self, blob: Descriptor, sources: list[str], file: Path | None = None) -> None:
        if not await self._is_there(blob, sources):
            # An upload that is interrupted begins again.
            await self._client.repeated(lambda: self._upload(blob, file or self._stored(blob)))
            self._tell(blob, "Pushed", blob.size)

    def _stored(self, blob: Descriptor) -> Path:
        if not self._store.has_blob(blob.digest, blob.size):
            raise DamagedImageError(
                f"{blob.digest} is missing or damaged in {self._store.directory}: build, pull or load it again"
            )
        return self._store.blob_path(blob.digest)

    async def _is_there(self, blob: Descriptor, sources: list[str]) -> bool:
        """True if the registry has it, or takes it from another repository."""
        path = f"/v2/{self._reference.repository}/blobs/{blob.digest}"
        async with self._client.request("HEAD", path, scope=self._scope, accept=(200, 404)) as response:
            if response.status == 200:
                self._tell(blob, "Layer already exists")
                return True
        for source in sources:
            if await self._mount(blob, source):
                self._tell(blob, "Mounted from", source=source)
                return True
        return False

    async def _mount(self, blob: Descriptor, source: str) -> bool:
        query = urlencode({"mount": blob.digest, "from": source})
        path = f"/v2/{self._reference.repository}/blobs/uploads/?{query}"
        scope = f"{self._scope} repository:{source}:pull"
        try:
            async with self._client.request("POST", path, scope=scope, accept=(201, 202)) as response:
                if response.status == 201:
                    return True
                # The registry has begun an upload instead.
                location = await self._location(response.headers.get("Location", ""))
            async with self._client.request("DELETE", location, scope=self._scope, accept=(200, 202, 204, 404, 405)):
                return False
        except (AccessDeniedError, NotFoundError):
            return False

    async def _upload(self, blob: Descriptor, file: Path) -> None:
        path = f"/v2/{self._reference.repository}/blobs/uploads/"
        async with self._client.request("POST", path, scope=self._scope, accept=(202,)) as response:
            location = await self._location(response.headers.get("Location", ""))
        separator = "&" if urlsplit(location).query else "?"
        target = f"{location}{separator}digest={quote(blob.digest, safe='')}"
        body = Body(lambda: self._pieces(file, blob), blob.size)
        async with self._client.request("PUT", target, scope=self._scope, body=body, accept=(201,)):
            return

    async def _pieces(self, path: Path, blob: Descriptor) -> Any:
        """The blob in pieces, reporting how much was sent."""
        sent = 0
        with await asyncio.to_thread(path.open, "rb") as file:
            while piece := await asyncio.to_thread(file.read, _PIECE):
                yield piece
                sent += len(piece)
                self._tell(blob, "Pushing", sent)

    async def _location(self, location: str) -> str:
        if not location:
            raise RegistryError(f"{self._client.endpoint.registry} began an upload without saying where (no Location)")
        return urljoin(await self._client.url("/"), location)

    def _tell(self, blob: Descriptor, state: State, done: int = 0, source: str = "") -> None:
        if blob.digest in self._names:
            self._report(LayerProgress(self._names[blob.digest], state, done, blob.size, source))
