"""What a push does when the registry fails, and what TLS demands."""

import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.images.builder import add_image
from tests.support.images.faulty_registry import Fault, FaultyRegistry, cut, faulty_registry, refuse
from trainwright.cluster.images.blobs import DamagedImageError
from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.registry.errors import (
    AccessDeniedError,
    CutConnectionError,
    RegistryError,
    UnreachableRegistryError,
)
from trainwright.cluster.images.registry.pull import pull_image
from trainwright.cluster.images.registry.push import push_image
from trainwright.cluster.images.registry.settings import RegistrySettings
from trainwright.cluster.images.store import ImageStore
from trainwright.net.certificate_authority import Authority, new_authority

QUICK = RegistrySettings(first_pause=0.001, longest_pause=2, read_seconds=5, connect_seconds=2, attempts=3)
BEGIN = "/v2/app/blobs/uploads/"
UPLOAD = "/v2/app/blobs/uploads/1"
MANIFEST = "/v2/app/manifests/latest"


@pytest.fixture
async def registry() -> AsyncIterator[FaultyRegistry]:
    async with faulty_registry() as server:
        yield server


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


def name_in(registry: FaultyRegistry) -> ImageReference:
    return ImageReference.parse(f"{registry.address}/app")


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        (BEGIN, refuse(503)),
        (BEGIN, cut),
        (UPLOAD, cut),
        (UPLOAD, refuse(500)),
        (MANIFEST, refuse(502)),
        (MANIFEST, cut),
    ],
    ids=["begin 503", "begin cut", "upload cut", "upload 500", "manifest 502", "manifest cut"],
)
async def test_passing_failure_is_tried_again(
    registry: FaultyRegistry, store: ImageStore, tmp_path: Path, path: str, fault: Fault
) -> None:
    image = add_image(store, "app")
    registry.spoil(path, fault)

    await push_image(store, image, name_in(registry), settings=QUICK)

    pulled = await pull_image(ImageStore(tmp_path / "other"), name_in(registry), settings=QUICK)
    assert pulled.digests == image.digests


@pytest.mark.parametrize(
    ("path", "fault", "kind", "words"),
    [
        (BEGIN, refuse(403, "DENIED", "read only"), AccessDeniedError, "denied: read only"),
        (UPLOAD, refuse(413, "SIZE_INVALID", "too large"), RegistryError, "answered 413: size invalid: too large"),
        (UPLOAD, cut, CutConnectionError, "cut the connection"),
        (MANIFEST, refuse(400, "MANIFEST_INVALID", "no"), RegistryError, "answered 400: manifest invalid: no"),
        (BEGIN, refuse(202), RegistryError, "without saying where"),
    ],
    ids=["denied", "too large", "always cut", "manifest refused", "no location"],
)
async def test_lasting_failure_is_named_with_the_registrys_words(
    registry: FaultyRegistry, store: ImageStore, path: str, fault: Fault, kind: type[Exception], words: str
) -> None:
    image = add_image(store, "app")
    registry.spoil(path, *[fault] * 9)

    with pytest.raises(kind, match=words):
        await push_image(store, image, name_in(registry), settings=QUICK)


async def test_image_with_a_missing_layer_is_not_pushed(registry: FaultyRegistry, store: ImageStore) -> None:
    image = add_image(store, "app")
    store.blob_path(image.manifest.layers[0].digest).unlink()

    with pytest.raises(DamagedImageError, match="missing or damaged"):
        await push_image(store, image, name_in(registry), settings=QUICK)

    assert registry.count(MANIFEST) == 0


def tls_of(authority: Authority, directory: Path) -> ssl.SSLContext:
    certificate, key = authority.issue(["127.0.0.1"], now=datetime.now(UTC), lifetime=timedelta(days=1))
    pair = directory / "pair.pem"
    pair.write_bytes(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    return context


async def test_registry_with_a_trusted_certificate_is_used_with_encryption(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = new_authority("test", now=datetime.now(UTC), lifetime=timedelta(days=1))
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    image = add_image(store, "app")

    async with faulty_registry(tls_of(authority, tmp_path)) as registry:
        await push_image(store, image, name_in(registry), settings=QUICK)
        pulled = await pull_image(ImageStore(tmp_path / "other"), name_in(registry), settings=QUICK)

    assert pulled.digests == image.digests


async def test_certificate_that_is_not_trusted_is_named(store: ImageStore, tmp_path: Path) -> None:
    authority = new_authority("test", now=datetime.now(UTC), lifetime=timedelta(days=1))

    async with faulty_registry(tls_of(authority, tmp_path)) as registry:
        with pytest.raises(RegistryError, match=r"has a certificate that is not trusted: .*verify failed"):
            await pull_image(store, name_in(registry), settings=QUICK)


async def test_plain_http_registry_of_another_host_is_not_used_without_the_flag(store: ImageStore) -> None:
    """The name is not that of this machine, so Docker would not try HTTP either."""
    async with faulty_registry() as registry:
        port = registry.address.partition(":")[2]
        name = ImageReference.parse(f"registry.localhost.localdomain:{port}/app")

        with pytest.raises((RegistryError, UnreachableRegistryError)):
            await pull_image(store, name, settings=QUICK)

        assert registry.requests == []
