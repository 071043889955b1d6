"""What a pull does when the registry fails: it continues where it can, else it names the cause and stores no image."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from tests.support.images.faulty_registry import (
    Fault,
    FaultyRegistry,
    cut_after,
    fall_silent_after,
    faulty_registry,
    refuse,
    send,
)
from tests.support.kubernetes.controlplane import free_ports
from trainwright.cluster.images.blobs import StoreError
from trainwright.cluster.images.formats import DOCKER_LIST, Descriptor, FormatError, Index, Platform, digest_of
from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.registry.errors import (
    AccessDeniedError,
    CutConnectionError,
    NotFoundError,
    RegistryError,
    TooManyRequestsError,
    UnreachableRegistryError,
)
from trainwright.cluster.images.registry.pull import pull_image
from trainwright.cluster.images.registry.settings import RegistrySettings
from trainwright.cluster.images.store import Image, ImageStore

QUICK = RegistrySettings(first_pause=0.001, longest_pause=2, read_seconds=5, connect_seconds=2, attempts=3)
MANIFEST = "/v2/app/manifests/latest"


@pytest.fixture
async def registry() -> AsyncIterator[FaultyRegistry]:
    async with faulty_registry() as server:
        yield server


@pytest.fixture
def image(registry: FaultyRegistry, tmp_path: Path) -> Image:
    return registry.add(ImageStore(tmp_path / "source"), "app")


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


def name_in(registry: FaultyRegistry, repository: str = "app") -> ImageReference:
    return ImageReference.parse(f"{registry.address}/{repository}")


def layer_path(image: Image, number: int = 1) -> str:
    return f"/v2/app/blobs/{image.manifest.layers[number].digest}"


def assert_nothing_half_stored(store: ImageStore) -> None:
    assert store.images() == []
    for path in (store.directory / "blobs" / "sha256").glob("*"):
        assert digest_of(path.read_bytes()) == f"sha256:{path.name}"
    assert list((store.directory / "tmp").glob("*")) == []


async def test_pulled_image_is_the_registrys(registry: FaultyRegistry, image: Image, store: ImageStore) -> None:
    pulled = await pull_image(store, name_in(registry), settings=QUICK)

    assert pulled.id == image.id
    assert pulled.descriptor.digest == image.descriptor.digest
    assert store.find(str(name_in(registry))) == pulled


async def test_second_pull_fetches_the_manifest_alone(
    registry: FaultyRegistry, image: Image, store: ImageStore
) -> None:
    await pull_image(store, name_in(registry), settings=QUICK)
    registry.requests.clear()

    await pull_image(store, name_in(registry), settings=QUICK)

    assert {path for _, path, _ in registry.requests} <= {MANIFEST, "/v2/"}


@pytest.mark.parametrize("ranges", [True, False], ids=["registry with ranges", "registry without ranges"])
async def test_layer_that_is_cut_off_is_continued(
    registry: FaultyRegistry, image: Image, store: ImageStore, ranges: bool
) -> None:
    size = image.manifest.layers[1].size
    registry.spoil(layer_path(image), *[cut_after(size // 4, ranges=ranges)] * 2)

    pulled = await pull_image(store, name_in(registry), settings=QUICK)

    assert pulled.id == image.id
    ranges_asked = [headers.get("Range") for _, path, headers in registry.requests if path == layer_path(image)]
    assert ranges_asked[:2] == [None, f"bytes={size // 4}-"]


async def test_layer_that_makes_no_progress_is_given_up(
    registry: FaultyRegistry, image: Image, store: ImageStore
) -> None:
    registry.spoil(layer_path(image), *[cut_after(0)] * 20)

    with pytest.raises(CutConnectionError, match="cut the connection"):
        await pull_image(store, name_in(registry), settings=QUICK)

    assert_nothing_half_stored(store)


async def test_layer_that_falls_silent_is_continued(registry: FaultyRegistry, image: Image, store: ImageStore) -> None:
    registry.spoil(layer_path(image), fall_silent_after(10, registry.over))

    pulled = await pull_image(store, name_in(registry), settings=replace(QUICK, read_seconds=0.2))

    assert pulled.id == image.id


async def test_registry_that_never_answers_is_given_up(
    registry: FaultyRegistry, image: Image, store: ImageStore
) -> None:
    registry.spoil(MANIFEST, *[fall_silent_after(0, registry.over)] * 5)

    with pytest.raises(CutConnectionError, match=r"does not answer: nothing received for 0\.1 s"):
        await pull_image(store, name_in(registry), settings=replace(QUICK, read_seconds=0.1))


async def test_registry_that_is_not_there_is_named_at_once(store: ImageStore) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"

    with pytest.raises(UnreachableRegistryError, match=f"{address} is unreachable: Connection refused"):
        await pull_image(store, ImageReference.parse(f"{address}/app"), settings=RegistrySettings())


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (
            refuse(401),
            AccessDeniedError,
            "denied access: unauthorized: authentication required; log in with `trainwright image login",
        ),
        (refuse(403, "DENIED", "not for you"), AccessDeniedError, "denied access: denied: not for you"),
        (
            refuse(404, "NAME_UNKNOWN", "no such name"),
            NotFoundError,
            "app:latest not found: .*name unknown: no such name",
        ),
        (refuse(429, "TOOMANYREQUESTS", "slow down"), TooManyRequestsError, "toomanyrequests: slow down"),
        (refuse(500, "UNKNOWN", "disk on fire"), RegistryError, "answered 500: unknown: disk on fire"),
        (refuse(418), RegistryError, "answered 418: 418 I'm a Teapot"),
        (
            send(b"<html>hi</html>", "text/html"),
            FormatError,
            "answered with text/html for .*: the manifest is not JSON",
        ),
        (send(b"{}", "application/json"), FormatError, "the manifest is not valid: Object missing required field"),
        (send(b"", "application/json"), FormatError, "not JSON"),
        (send(b'{"schemaVersion": 1}', "application/json"), FormatError, "schema 1"),
    ],
)
async def test_refused_manifest_is_an_error_with_the_registrys_words(
    registry: FaultyRegistry, image: Image, store: ImageStore, fault: Fault, kind: type[Exception], words: str
) -> None:
    registry.spoil(MANIFEST, *[fault] * 5)

    with pytest.raises(kind, match=words):
        await pull_image(store, name_in(registry), settings=QUICK)

    assert_nothing_half_stored(store)


@pytest.mark.parametrize(
    "fault",
    [
        refuse(500),
        refuse(503),
        refuse(429, headers={"Retry-After": "0"}),
        refuse(429, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
        cut_after(10),
    ],
    ids=["500", "503", "429", "429 until a date", "cut off"],
)
@pytest.mark.parametrize("path", ["manifest", "layer"])
async def test_passing_failure_is_tried_again(
    registry: FaultyRegistry, image: Image, store: ImageStore, fault: Fault, path: str
) -> None:
    registry.spoil(MANIFEST if path == "manifest" else layer_path(image), fault)

    pulled = await pull_image(store, name_in(registry), settings=QUICK)

    assert pulled.id == image.id


async def test_registry_that_wants_a_long_pause_is_not_asked_again(
    registry: FaultyRegistry, image: Image, store: ImageStore
) -> None:
    registry.spoil(MANIFEST, *[refuse(429, headers={"Retry-After": "3600"})] * 5)

    with pytest.raises(TooManyRequestsError):
        await pull_image(store, name_in(registry), settings=QUICK)

    assert registry.count(MANIFEST) == 1


@pytest.mark.parametrize("what", ["layer", "config"])
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (send(b"x" * 100_000), "more than the"),
        (refuse(404, "BLOB_UNKNOWN", "gone"), "blob unknown: gone"),
    ],
)
async def test_wrong_blob_is_an_error_and_is_not_stored(
    registry: FaultyRegistry, image: Image, store: ImageStore, fault: Fault, words: str, what: str
) -> None:
    path = layer_path(image) if what == "layer" else f"/v2/app/blobs/{image.id}"
    registry.spoil(path, *[fault] * 5)

    with pytest.raises(RegistryError, match=words):
        await pull_image(store, name_in(registry), settings=QUICK)

    assert_nothing_half_stored(store)


async def test_layer_with_another_content_is_not_stored(
    registry: FaultyRegistry, image: Image, store: ImageStore
) -> None:
    layer = image.manifest.layers[1]
    registry.spoil(layer_path(image), send(b"x" * layer.size))

    with pytest.raises(RegistryError, match=f"sent a wrong blob: .*not {layer.digest}"):
        await pull_image(store, name_in(registry), settings=QUICK)

    assert_nothing_half_stored(store)


async def test_truncated_layer_is_an_error(registry: FaultyRegistry, image: Image, store: ImageStore) -> None:
    registry.spoil(layer_path(image), *[send(b"x")] * 20)

    with pytest.raises(RegistryError, match=r"sent 1 of \d+ bytes"):
        await pull_image(store, name_in(registry), settings=QUICK)

    assert_nothing_half_stored(store)


async def test_manifest_that_is_not_the_digest_that_was_asked_for_is_refused(
    registry: FaultyRegistry, image: Image, store: ImageStore
) -> None:
    wanted = name_in(registry).with_digest(image.descriptor.digest)
    path = f"/v2/app/manifests/{image.descriptor.digest}"
    registry.spoil(path, send(b'{"manifests": []}', "application/json"))

    with pytest.raises(RegistryError, match=f"wrong manifest: .*not {image.descriptor.digest}"):
        await pull_image(store, wanted, settings=QUICK)


async def test_what_is_not_a_container_image_is_named(
    registry: FaultyRegistry, image: Image, store: ImageStore
) -> None:
    config = Descriptor(media_type="application/vnd.cncf.helm.config.v1+json", digest=image.id, size=1)
    chart = b'{"schemaVersion": 2, "layers": [], "config": {"mediaType": "%s", "digest": "%s", "size": 1}}' % (
        config.media_type.encode(),
        config.digest.encode(),
    )
    registry.spoil(MANIFEST, send(chart, "application/json"))

    with pytest.raises(FormatError, match="is not a container image: it is application/vnd"):
        await pull_image(store, name_in(registry), settings=QUICK)


async def test_image_of_the_wanted_platform_is_chosen_and_known_by_the_digest_of_the_index(
    registry: FaultyRegistry, image: Image, store: ImageStore
) -> None:
    entry = replace_platform(image.descriptor, "linux/arm64/v8")
    other = Descriptor(digest="sha256:" + "1" * 64, size=1, platform=Platform.parse("linux/s390x"))
    index = Index(schema_version=2, media_type=DOCKER_LIST, manifests=[other, entry]).encode()
    registry.put("/v2/app/manifests/many", index, DOCKER_LIST)
    name = ImageReference.parse(f"{registry.address}/app:many")

    pulled = await pull_image(store, name, platform=Platform.parse("linux/arm64"), settings=QUICK)

    assert pulled.id == image.id
    assert pulled.registry_digest == digest_of(index)
    assert store.find(name.with_digest(digest_of(index))) == pulled
    with pytest.raises(FormatError, match=r"no image for platform linux/amd64 \(it has linux/s390x, linux/arm64/v8\)"):
        await pull_image(store, name, platform=Platform.parse("linux/amd64"), settings=QUICK)


async def test_image_for_another_platform_is_refused_where_one_was_asked_for(
    registry: FaultyRegistry, image: Image, store: ImageStore
) -> None:
    with pytest.raises(FormatError, match=r"app:latest is an image for linux/amd64, not for linux/s390x$"):
        await pull_image(store, name_in(registry), platform=Platform.parse("linux/s390x"), settings=QUICK)

    assert store.images() == []
    pulled = await pull_image(store, name_in(registry), platform=Platform.parse("linux/amd64"), settings=QUICK)
    assert pulled.id == image.id


def replace_platform(descriptor: Descriptor, platform: str) -> Descriptor:
    return Descriptor(digest=descriptor.digest, size=descriptor.size, platform=Platform.parse(platform))


async def test_mirror_is_asked_first_and_its_failure_is_not_the_users(
    registry: FaultyRegistry, image: Image, store: ImageStore, tmp_path: Path
) -> None:
    async with faulty_registry() as mirror:
        settings = replace(QUICK, mirrors={registry.address: [f"http://{mirror.address}"]})
        mirror.add(ImageStore(tmp_path / "mirrored"), "app")

        await pull_image(store, name_in(registry), settings=settings)
        assert registry.requests == []

        mirror.spoil(MANIFEST, refuse(403, "DENIED", "no"))
        pulled = await pull_image(ImageStore(tmp_path / "other"), name_in(registry), settings=settings)

    assert pulled.reference == name_in(registry)
    assert registry.count(MANIFEST) == 1


async def test_credentials_are_not_sent_to_another_host(
    registry: FaultyRegistry, image: Image, store: ImageStore
) -> None:
    async with faulty_registry() as storage:
        layer = image.manifest.layers[1]
        storage.put("/elsewhere", b"")

        async def redirect(_: web.BaseRequest, content: bytes) -> web.StreamResponse:
            storage.put("/elsewhere", content)
            return web.Response(
                status=307, headers={"Location": f"http://localhost:{storage.address.split(':')[1]}/elsewhere"}
            )

        registry.spoil(f"/v2/app/blobs/{layer.digest}", redirect)
        pulled = await pull_image(store, name_in(registry), settings=QUICK)

        assert pulled.id == image.id
        assert [path for _, path, _ in storage.requests] == ["/elsewhere"]
        assert "Authorization" not in storage.requests[0][2]


async def test_full_disk_leaves_no_image(
    registry: FaultyRegistry, image: Image, store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(_: object) -> None:
        raise OSError(28, "No space left on device")

    with store.lease():
        pass
    monkeypatch.setattr("os.fsync", no_space)

    with pytest.raises(StoreError, match="no space left"):
        await pull_image(store, name_in(registry), settings=QUICK)

    assert_nothing_half_stored(store)
