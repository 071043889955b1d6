"""Pulling images: the manifest for the platform, then its blobs, several at a time, each verified by its digest."""

import asyncio
from contextlib import suppress

import aiohttp

from trainwright.cluster.images.blobs import BlobWriter, DamagedImageError, WrongDigestError
from trainwright.cluster.images.formats import (
    CONFIGS,
    INDEXES,
    LARGEST_DOCUMENT,
    MANIFESTS,
    Descriptor,
    FormatError,
    ImageConfig,
    Index,
    Manifest,
    Platform,
    decode_manifest_or_index,
    digest_of,
)
from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.registry.client import RegistryClient, run_together, with_accepted_credential
from trainwright.cluster.images.registry.credentials import Keyring, choices
from trainwright.cluster.images.registry.errors import (
    AccessDeniedError,
    CutConnectionError,
    NotFoundError,
    RegistryError,
)
from trainwright.cluster.images.registry.settings import (
    LayerProgress,
    RegistrySettings,
    Report,
    State,
    endpoints,
    ignore,
)
from trainwright.cluster.images.store import Image, ImageStore

_MANIFESTS_AND_INDEXES = ", ".join((*MANIFESTS, *INDEXES))


async def pull_image(
    store: ImageStore,
    reference: ImageReference,
    *,
    platform: Platform | None = None,
    credentials: Keyring | None = None,
    settings: RegistrySettings | None = None,
    progress: Report = ignore,
) -> Image:
    """Stores the image under its name. Blobs that are stored already are not fetched again.

    Mirrors are asked before the registry, and every credential is tried until one is accepted. Raises RegistryError,
    FormatError for what is not an image, and StoreError. After an error, blobs that arrived whole stay for another
    attempt until `collect`.
    """
    settings = settings or RegistrySettings()

    async def pull(client: RegistryClient) -> Image:
        return await _Puller(client, store, reference, progress).pull(platform)

    *mirrors, registry = endpoints(reference.registry, settings, with_mirrors=True)
    for mirror in mirrors:
        with suppress(RegistryError, FormatError):
            # Credentials of a registry are not for its mirrors.
            return await with_accepted_credential(mirror, [None], settings, pull)
    return await with_accepted_credential(registry, choices(credentials, reference), settings, pull)


class _Puller:
    def __init__(self, client: RegistryClient, store: ImageStore, reference: ImageReference, report: Report) -> None:
        self._client, self._store, self._reference, self._report = client, store, reference, report
        self._scope = f"repository:{reference.repository}:pull"

    async def pull(self, platform: Platform | None) -> Image:
        with self._store.lease():
            data, manifest, index_digest = await self._manifest(platform or Platform.of_this_machine())
            if manifest.config.media_type and manifest.config.media_type not in CONFIGS:
                raise FormatError(
                    f"{self._reference} is not a container image: it is {manifest.config.media_type[:100]}"
                )
            if platform is not None and index_digest is None:
                await self._check_platform(manifest, platform)
            if (known := self._known_image(manifest, index_digest or digest_of(data))) is not None:
                return known
            layers = {layer.digest: layer for layer in manifest.layers}
            for layer in layers.values():
                self._tell(layer, "Pulling fs layer")
            shown = [self._fetch_blob(layer, shown=True) for layer in layers.values()]
            await run_together([self._fetch_blob(manifest.config, shown=False), *shown])
            return self._store.add_image(data, reference=self._reference, pulled_digest=index_digest or digest_of(data))

    async def _check_platform(self, manifest: Manifest, wanted: Platform) -> None:
        """Checks an image for one platform, which has no index that could be asked."""
        await self._fetch_blob(manifest.config, shown=False)
        offered = ImageConfig.decode(self._store.read_document(manifest.config)).platform
        if offered.architecture and not offered.runs_on(wanted):
            raise FormatError(f"{self._reference.familiar} is an image for {offered}, not for {wanted}")

    def _known_image(self, manifest: Manifest, digest: str) -> Image | None:
        """An image of the same ID that was built here: its layers are the same, not compressed."""
        for image in self._store.images():
            if image.id == manifest.config.digest and self._is_built(image):
                for layer in {layer.digest: layer for layer in manifest.layers}.values():
                    self._tell(layer, "Already exists")
                return self._store.set_registry_digest(self._reference, image, digest)
        return None

    def _is_built(self, image: Image) -> bool:
        layers = image.manifest.layers
        return any(self._store.is_built(layer.digest) for layer in layers) and all(map(self._store.has_layer, layers))

    async def _manifest(self, platform: Platform) -> tuple[bytes, Manifest, str | None]:
        """The manifest, and the digest of the index that names it, if there is one."""
        data, media_type = await self._fetch_manifest(self._reference.identifier)
        document = self._decode(data, media_type)
        if isinstance(document, Manifest):
            return data, document, None
        chosen = document.choose(platform)
        chosen_data, media_type = await self._fetch_manifest(chosen.digest)
        manifest = self._decode(chosen_data, media_type)
        if isinstance(manifest, Index):
            raise FormatError(f"{self._reference} is an index of indexes, which is not supported")
        return chosen_data, manifest, digest_of(data)

    async def _fetch_manifest(self, identifier: str) -> tuple[bytes, str]:
        """The document and its media type, verified if the identifier is a digest."""
        try:
            data, response = await self._client.repeated(lambda: self._read_manifest(identifier))
        except NotFoundError as error:
            raise NotFoundError(f"{self._reference.familiar} not found: {error}") from error
        except AccessDeniedError as error:
            raise AccessDeniedError(f"{self._reference.familiar}: {error}") from error
        expected = identifier if ":" in identifier else response.headers.get("Docker-Content-Digest", "")
        if expected.startswith("sha256:") and digest_of(data) != expected:
            registry = self._client.endpoint.registry
            raise RegistryError(f"{registry} sent a wrong manifest: its digest is {digest_of(data)}, not {expected}")
        return data, response.content_type

    async def _read_manifest(self, identifier: str) -> tuple[bytes, aiohttp.ClientResponse]:
        client, headers = self._client, {"Accept": _MANIFESTS_AND_INDEXES}
        path = f"/v2/{self._reference.repository}/manifests/{identifier}"
        async with client.request("GET", path, scope=self._scope, headers=headers) as response:
            data = bytearray()
            while len(data) <= LARGEST_DOCUMENT and (chunk := await client.connected(response.content.readany())):
                data += chunk
            if len(data) > LARGEST_DOCUMENT:
                raise RegistryError(f"{client.endpoint.registry} sent a document of more than {LARGEST_DOCUMENT} bytes")
            return bytes(data), response

    def _decode(self, data: bytes, media_type: str) -> Manifest | Index:
        try:
            return decode_manifest_or_index(data, media_type)
        except FormatError as error:
            what = f" with {media_type}" if media_type and "json" not in media_type else ""
            raise FormatError(
                f"{self._client.endpoint.registry} answered{what} for {self._reference}: {error}"
            ) from error

    async def _fetch_blob(self, blob: Descriptor, *, shown: bool) -> None:
        async with self._client.slots:
            if self._store.has_blob(blob.digest, blob.size) and (shown or self._is_whole(blob)):
                if shown:
                    self._tell(blob, "Already exists")
                return
            with self._store.writer() as writer:
                await self._fill(writer, blob, shown=shown)
                try:
                    await asyncio.to_thread(writer.commit, blob.digest)
                except WrongDigestError as error:
                    raise RegistryError(f"{self._client.endpoint.registry} sent a wrong blob: {error}") from error
            if shown:
                self._tell(blob, "Pull complete", blob.size)

    def _is_whole(self, document: Descriptor) -> bool:
        try:
            self._store.read_document(document)
        except DamagedImageError:
            return False
        return True

    async def _fill(self, writer: BlobWriter, blob: Descriptor, *, shown: bool) -> None:
        """Continues after interruptions until the blob is whole, as long as there is progress."""
        settings = self._client.settings
        attempts, pause = 0, settings.first_pause
        while writer.size < blob.size or blob.size == 0:
            before = writer.size
            try:
                await self._receive(writer, blob, shown=shown)
                if writer.size >= blob.size:
                    return
                name = self._client.endpoint.registry
                failure = CutConnectionError(f"{name} sent {writer.size} of {blob.size} bytes of {blob.digest}")
            except CutConnectionError as error:
                failure = error
            attempts = 1 if writer.size > before else attempts + 1
            if attempts >= settings.attempts:
                raise failure
            await asyncio.sleep(pause)
            pause = min(pause * 2, settings.longest_pause) if attempts > 1 else settings.first_pause

    async def _receive(self, writer: BlobWriter, blob: Descriptor, *, shown: bool) -> None:
        path = f"/v2/{self._reference.repository}/blobs/{blob.digest}"
        headers = {"Range": f"bytes={writer.size}-"} if writer.size else {}
        async with self._client.request("GET", path, scope=self._scope, headers=headers, accept=(200, 206)) as response:
            first = response.headers.get("Content-Range", "").removeprefix("bytes ").split("-")[0].strip()
            # A registry that ignores the range sends everything again.
            if writer.size and (response.status != 206 or first != str(writer.size)):
                writer.restart()
            while chunk := await self._client.connected(response.content.readany()):
                if writer.size + len(chunk) > blob.size:
                    raise RegistryError(
                        f"{self._client.endpoint.registry} sent a wrong blob: more than the {blob.size} bytes "
                        f"that the manifest says for {blob.digest}"
                    )
                await asyncio.to_thread(writer.write, chunk)
                if shown:
                    self._tell(blob, "Downloading", writer.size)

    def _tell(self, blob: Descriptor, state: State, done: int = 0) -> None:
        self._report(LayerProgress(blob.hex[:12], state, done, blob.size))
