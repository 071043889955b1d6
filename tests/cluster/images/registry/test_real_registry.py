"""Pull and push with the registry that everybody has: open, with passwords, and with tokens."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.support.images.builder import add_built_image, add_image
from tests.support.images.registry import PASSWORD, USER, TokenServer, running_registry
from trainwright.cluster.images.blobs import DamagedImageError
from trainwright.cluster.images.formats import OCI_LAYER_GZIP
from trainwright.cluster.images.layers.unpacked import UnpackedLayers
from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.registry.credentials import Credential
from trainwright.cluster.images.registry.errors import AccessDeniedError, NotFoundError
from trainwright.cluster.images.registry.pull import pull_image
from trainwright.cluster.images.registry.push import push_image
from trainwright.cluster.images.registry.settings import LayerProgress
from trainwright.cluster.images.store import ImageStore

pytestmark = pytest.mark.registry

BASE, OWN = {"base.txt": b"base" * 1000}, {"own.txt": b"own" * 500}


class Fixed:
    def __init__(self, *credentials: Credential) -> None:
        self._credentials = credentials

    def lookup(self, reference: ImageReference) -> list[Credential]:
        return list(self._credentials)


ALICE = Fixed(Credential(USER, PASSWORD))
MALLORY = Fixed(Credential("mallory", "guess"))


@pytest.fixture(scope="module")
def open_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_registry(tmp_path_factory.mktemp("open")) as address:
        yield address


@pytest.fixture(scope="module")
def closed_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_registry(tmp_path_factory.mktemp("closed"), passwords=True) as address:
        yield address


@asynccontextmanager
async def token_registry(directory: Path) -> AsyncIterator[tuple[str, TokenServer]]:
    tokens = TokenServer()
    runner = web.ServerRunner(web.Server(tokens.answer), shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    tokens.realm = f"http://127.0.0.1:{runner.addresses[0][1]}/token"
    try:
        context = running_registry(directory, tokens=tokens)
        address = await asyncio.to_thread(context.__enter__)
        try:
            yield address, tokens
        finally:
            await asyncio.to_thread(context.__exit__, None, None, None)
    finally:
        await runner.cleanup()


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


async def test_pushed_image_comes_back_with_the_same_digests(
    open_registry: str, store: ImageStore, tmp_path: Path
) -> None:
    name = ImageReference.parse(f"{open_registry}/round/trip:1.0")
    image = add_image(store, str(name), (BASE, OWN))

    pushed = await push_image(store, image, name)
    pulled = await pull_image(ImageStore(tmp_path / "other"), name)

    assert pushed.digest == image.descriptor.digest == pulled.descriptor.digest
    assert pushed.size == image.descriptor.size
    assert pulled.digests == image.digests
    by_digest = await pull_image(ImageStore(tmp_path / "third"), name.with_digest(pushed.digest))
    assert by_digest.id == image.id


async def test_layers_that_were_built_here_are_pushed_compressed(
    open_registry: str, store: ImageStore, tmp_path: Path
) -> None:
    name = ImageReference.parse(f"{open_registry}/built/app:1.0")
    image = add_built_image(store, str(name), {"weights": b"0123456789" * 10_000})
    reports: list[LayerProgress] = []

    pushed = await push_image(store, image, name)
    other = ImageStore(tmp_path / "other")
    pulled = await pull_image(other, name)
    again = await push_image(store, image, name, progress=reports.append)
    other_name = ImageReference.parse(f"{open_registry}/built/moved:1.0")
    moved = await push_image(store, store.tag(other_name, image), other_name, progress=reports.append)

    assert pulled.id == image.id
    assert pulled.descriptor.digest == pushed.digest == again.digest == moved.digest != image.descriptor.digest
    assert [layer.media_type for layer in pulled.manifest.layers] == [OCI_LAYER_GZIP]
    assert pulled.manifest.layers[0].size < 2000
    [directory] = UnpackedLayers(other).directories(pulled)
    assert (directory / "weights").stat().st_size == 100_000
    assert [one.state for one in reports] == ["Preparing", "Layer already exists", "Preparing", "Mounted from"]
    # The store knows it by the registry's digest, and has nothing twice.
    assert store.find(name.with_digest(pushed.digest)) == store.find(name)
    back = await pull_image(store, name)
    assert (back.id, back.registry_digest, back.descriptor.digest) == (image.id, pushed.digest, image.descriptor.digest)
    assert not any(store.has_blob(layer.digest) for layer in (*image.manifest.layers, *pulled.manifest.layers))
    assert list((store.directory / "tmp").iterdir()) == []


async def test_changed_files_are_not_pushed(open_registry: str, store: ImageStore, tmp_path: Path) -> None:
    name = ImageReference.parse(f"{open_registry}/built/changed")
    image = add_built_image(store, str(name), {"program.py": b"print(1)"})
    [directory] = UnpackedLayers(store).directories(image)
    (directory / "program.py").write_bytes(b"print(2)")

    with pytest.raises(DamagedImageError, match=r"its files in .* were changed. Remove the images that have it"):
        await push_image(store, image, name)
    with pytest.raises(NotFoundError):
        await pull_image(ImageStore(tmp_path / "other"), name)


async def test_push_reports_each_layer_as_docker_does(open_registry: str, store: ImageStore) -> None:
    reports: list[LayerProgress] = []

    async def states(name: str, layers: tuple[dict[str, bytes], ...]) -> list[str]:
        reports.clear()
        image = add_image(store, f"{open_registry}/{name}", layers)
        assert image.reference
        await push_image(store, image, image.reference, progress=reports.append)
        last = {report.id: f"{report.state} {report.source}".strip() for report in reports}
        short = [diff_id[7:19] for diff_id in image.config.rootfs.diff_ids]
        assert list(last) == short[::-1]
        return [last[layer] for layer in short]

    assert await states("reports/base", (BASE,)) == ["Pushed"]
    assert await states("reports/derived", (BASE, OWN)) == ["Mounted from reports/base", "Pushed"]
    assert await states("reports/derived", (BASE, OWN)) == ["Layer already exists", "Layer already exists"]


async def test_missing_image_is_named_with_the_registrys_words(open_registry: str, store: ImageStore) -> None:
    with pytest.raises(NotFoundError, match=r"nothing:1 not found: .*: manifest unknown: manifest unknown"):
        await pull_image(store, ImageReference.parse(f"{open_registry}/nothing:1"))


async def test_registry_with_passwords(closed_registry: str, store: ImageStore, tmp_path: Path) -> None:
    name = ImageReference.parse(f"{closed_registry}/private")
    image = add_image(store, str(name))

    with pytest.raises(AccessDeniedError, match=r"unauthorized: authentication required.*trainwright image login"):
        await push_image(store, image, name)
    with pytest.raises(AccessDeniedError, match=r"unauthorized: authentication required$"):
        await push_image(store, image, name, credentials=MALLORY)
    await push_image(store, image, name, credentials=ALICE)
    both = Fixed(Credential("mallory", "guess"), Credential(USER, PASSWORD))
    pulled = await pull_image(ImageStore(tmp_path / "other"), name, credentials=both)

    assert pulled.id == image.id


async def test_registry_with_tokens(store: ImageStore, tmp_path: Path) -> None:
    async with token_registry(tmp_path / "registry") as (address, tokens):
        name = ImageReference.parse(f"{address}/public/app")
        image = add_image(store, str(name), (BASE,))

        with pytest.raises(AccessDeniedError, match=r"denied access: unauthorized: .*trainwright image login"):
            await push_image(store, image, name)
        with pytest.raises(AccessDeniedError, match="rejected the credentials: incorrect username or password"):
            await push_image(store, image, name, credentials=MALLORY)
        await push_image(store, image, name, credentials=ALICE)
        derived = ImageReference.parse(f"{address}/team/derived")
        reports: list[LayerProgress] = []
        derived_image = add_image(store, str(derived), (BASE, OWN))
        await push_image(store, derived_image, derived, credentials=ALICE, progress=reports.append)

        assert "Mounted from" in {report.state for report in reports}
        pulled = await pull_image(ImageStore(tmp_path / "anonymous"), name)
        assert pulled.id == image.id
        with pytest.raises(AccessDeniedError):
            await pull_image(ImageStore(tmp_path / "anonymous"), derived)
        tokens.scopes.clear()
        await pull_image(ImageStore(tmp_path / "second"), derived, credentials=ALICE)
        assert tokens.scopes == [["repository:team/derived:pull"]]
