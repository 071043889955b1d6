import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.cluster.disks import small_disk
from tests.support.images.builder import add_image, tar_of
from trainwright.cluster.images.archives import ArchiveError, load_archive, save_archive
from trainwright.cluster.images.blobs import StoreError
from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.store import ImageStore

Member = tuple[str, bytes | str]
"""A name and its content, or the target of a symbolic link."""


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


def archive(members: Iterable[Member]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                tar.addfile(member)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


LAYER = tar_of({"hello.txt": b"hello"})
CONFIG = json.dumps(
    {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": ["/bin/sh"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(LAYER).hexdigest()}"]},
    }
).encode()


def docker_members(
    layer: bytes = LAYER, config: bytes = CONFIG, tags: tuple[str, ...] | None = ("demo:1",)
) -> list[Member]:
    """As `docker save` wrote them before version 25."""
    name = hashlib.sha256(config).hexdigest()
    manifest = [{"Config": f"{name}.json", "RepoTags": tags, "Layers": ["aaa/layer.tar"]}]
    return [
        ("aaa/", b""),
        ("aaa/VERSION", b"1.0"),
        ("aaa/layer.tar", layer),
        (f"{name}.json", config),
        ("manifest.json", json.dumps(manifest).encode()),
        ("repositories", b"{}"),
    ]


def load(store: ImageStore, data: bytes) -> list[str]:
    return [
        image.reference.familiar if image.reference else image.id for image in load_archive(store, io.BytesIO(data))
    ]


def blobs(store: ImageStore) -> list[Path]:
    return list((store.directory / "blobs" / "sha256").glob("*"))


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["tar", "tar.gz"])
def test_archive_of_docker_is_loaded_with_its_id(store: ImageStore, compress: object) -> None:
    data = compress(archive(docker_members()))  # type: ignore[operator]

    assert load(store, data) == ["demo:1"]
    image = store.find("demo:1")
    assert image is not None
    assert image.id == f"sha256:{hashlib.sha256(CONFIG).hexdigest()}"
    assert store.blob_path(image.manifest.layers[0].digest).read_bytes() == LAYER


def test_layers_of_an_archive_may_be_links_and_compressed(store: ImageStore) -> None:
    members = docker_members(layer=gzip.compress(LAYER))
    members[2] = ("bbb/layer.tar", members[2][1])
    members.append(("aaa/layer.tar", "../bbb/layer.tar"))

    assert load(store, archive(members)) == ["demo:1"]


def test_image_without_a_name_is_loaded_by_its_id(store: ImageStore) -> None:
    assert load(store, archive(docker_members(tags=None))) == [f"sha256:{hashlib.sha256(CONFIG).hexdigest()}"]


def test_saved_images_come_back_with_all_digests_and_names(store: ImageStore, tmp_path: Path) -> None:
    first = add_image(store, "team/first:1", ({"a": b"1"},))
    second = add_image(store, "second", ({"a": b"1"}, {"b": b"2"}))
    store.tag(ImageReference.parse("first:again"), first)
    nameless = add_image(store, None, ({"c": b"3"},))
    buffer = io.BytesIO()

    save_archive(store, store.images(), buffer)
    other = ImageStore(tmp_path / "other")
    load(other, buffer.getvalue())

    assert [(image.reference, image.digests) for image in other.images()] == [
        (image.reference, image.digests) for image in store.images()
    ]
    assert other.find(second.id) is not None
    assert other.find(nameless.id) is not None


def test_image_that_is_stored_already_is_not_stored_again_with_other_layers(store: ImageStore) -> None:
    image = add_image(store, "demo", ({"hello.txt": b"hello"},))
    members = docker_members(
        layer=tar_of({"hello.txt": b"hello"}), config=store.blob_path(image.id).read_bytes(), tags=("other",)
    )
    before = blobs(store)

    assert load(store, archive(members)) == ["other:latest"]
    assert sorted(blobs(store)) == sorted(before)


def test_saving_twice_writes_the_same_bytes(store: ImageStore) -> None:
    add_image(store)
    archives = [io.BytesIO(), io.BytesIO()]

    for buffer in archives:
        save_archive(store, store.images(), buffer)

    assert archives[0].getvalue() == archives[1].getvalue()


def test_docker_reads_what_is_saved_by_manifest_json(store: ImageStore, tmp_path: Path) -> None:
    image = add_image(store, "team/demo:1")
    buffer = io.BytesIO()
    save_archive(store, [image], buffer)

    with tarfile.open(fileobj=io.BytesIO(buffer.getvalue())) as tar:
        without_index = [
            (member.name, file.read())
            for member in tar.getmembers()
            if member.name != "index.json" and (file := tar.extractfile(member))
        ]

    other = ImageStore(tmp_path / "other")
    assert load(other, archive(without_index)) == ["team/demo:1"]
    assert [found.id for found in other.images()] == [image.id]


def changed(name: str, content: bytes) -> list[Member]:
    return [(found, content if found == name else old) for found, old in docker_members()]


def without(name: str) -> list[Member]:
    return [member for member in docker_members() if not member[0].endswith(name)]


_IMAGE: dict[str, object] = {"Config": "x", "Layers": []}
_TAGGED = {**_IMAGE, "RepoTags": [f"a:{number}" for number in range(1001)]}
_ENTRY = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": f"sha256:{'0' * 64}", "size": 1}
_INDEX = {"schemaVersion": 2, "manifests": [_ENTRY] * 1001}


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "the archive is empty"),
        (b"hello" * 1000, "this is no tar archive: load reads what docker save, podman and skopeo write"),
        (b"hello", "this is no tar archive"),
        (archive(docker_members())[:3000], "truncated"),
        (gzip.compress(archive(docker_members()))[:-50], "truncated"),
        (b"\xfd7zXZ\0\0\0", "compressed with xz: decompress it first"),
        (archive([("etc/passwd", b"root")]), "neither manifest.json nor index.json"),
        (archive([("manifest.json", b"[]")]), "has no image"),
        (archive([("manifest.json", b"{")]), "manifest.json is not valid"),
        (archive([("manifest.json", json.dumps([_IMAGE] * 1001).encode())]), "has 1001 images, more than 1000"),
        (archive([("manifest.json", json.dumps([_TAGGED]).encode())]), "has 1001 images, more than 1000"),
        (archive([("index.json", json.dumps(_INDEX).encode())]), "has 1001 images, more than 1000"),
        (archive([("manifest.json", b'[{"Config": "../../etc/passwd", "Layers": []}]')]), "lacks '../../etc/passwd'"),
        (archive([("index.json", b"<html>")]), "the index is not JSON"),
        (archive(without("layer.tar")), "lacks 'aaa/layer.tar', a layer"),
        (archive(without(".json")[:3]), "neither manifest.json nor index.json"),
        (archive(changed("aaa/layer.tar", b"other")), "'aaa/layer.tar' is damaged: its content is sha256:"),
        (archive([("blobs/sha256/" + "0" * 64, b"x")]), "0000 is damaged: its content has digest"),
        (archive([("a", "b"), ("b", "a"), ("manifest.json", b'[{"Config": "a", "Layers": []}]')]), "a link to itself"),
        (archive([("x", b""), ("manifest.json", b'[{"Config": "x", "Layers": []}]')]), "not JSON"),
    ],
)
def test_bad_archive_is_one_sentence_and_leaves_nothing(store: ImageStore, data: bytes, complaint: str) -> None:
    kept = add_image(store, "kept")

    with pytest.raises(ArchiveError, match=complaint):
        load(store, data)

    assert [image.id for image in store.images()] == [kept.id]
    assert {path.name for path in blobs(store)} == {digest.removeprefix("sha256:") for digest in kept.digests}
    assert list((store.directory / "tmp").iterdir()) == []


def test_full_disk_during_a_load_leaves_nothing(store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []

    def fail_later(descriptor: int) -> None:
        written.append(descriptor)
        if len(written) > 4:
            raise OSError(28, "No space left on device")

    with store.lease():
        pass
    monkeypatch.setattr("os.fsync", fail_later)

    with pytest.raises(StoreError, match="no space left"):
        load(store, archive(docker_members()))

    assert blobs(store) == []
    assert store.images() == []


def test_load_onto_a_small_disk_names_the_cause_and_leaves_it_as_it_was(tmp_path: Path) -> None:
    layer = tar_of({"noise": bytes(range(256)) * 20_000})
    config = json.dumps({"rootfs": {"diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}}).encode()

    with small_disk(tmp_path / "disk") as disk:
        store = ImageStore(disk / "images")
        kept = add_image(store, "kept")
        with pytest.raises(StoreError, match=r"no space left in .*`trainwright image prune`"):
            load(store, archive(docker_members(layer=layer, config=config)))

        assert [image.id for image in store.images()] == [kept.id]
        assert len(blobs(store)) == len(kept.digests)
        assert list((store.directory / "tmp").iterdir()) == []


def test_saving_a_damaged_image_writes_nothing(store: ImageStore) -> None:
    image = add_image(store)
    store.blob_path(image.manifest.layers[0].digest).unlink()
    buffer = io.BytesIO()

    with pytest.raises(StoreError, match="is missing: build, pull or load it again"):
        save_archive(store, [image], buffer)

    assert buffer.getvalue() == b""


# Fuzzing

NAMES = st.sampled_from(
    [
        "manifest.json",
        "index.json",
        "oci-layout",
        "./manifest.json",
        "../manifest.json",
        "/etc/passwd",
        "../../../../tmp/outside",
        "blobs/sha256/" + "0" * 64,
        f"blobs/sha256/{hashlib.sha256(CONFIG).hexdigest()}",
        "blobs/sha256/../../../../outside",
        "aaa/layer.tar",
        "config.json",
        "",
        "a" * 300,
        "\udcff",
    ]
)
DOCUMENTS = st.sampled_from(
    [
        CONFIG,
        b"{}",
        b"[]",
        b"null",
        b'[{"Config": "config.json", "RepoTags": ["demo", "../x", ""], "Layers": ["aaa/layer.tar"]}]',
        b'[{"Config": "config.json", "RepoTags": ["Bad Name"], "Layers": []}]',
        b'[{"Config": "../../etc/passwd", "Layers": ["/etc/shadow"]}]',
        b'{"schemaVersion": 2, "manifests": [{"digest": "sha256:%s", "size": 1}]}' % (b"0" * 64),
        b'{"manifests": [{"digest": "../../../etc/passwd", "size": 1}]}',
        b'{"manifests": [{"digest": "sha256:%s", "size": -1}]}' % hashlib.sha256(CONFIG).hexdigest().encode(),
        LAYER,
        gzip.compress(LAYER),
    ]
)
TYPES = st.sampled_from([tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE, b"Z"])


@st.composite
def archives(draw: st.DrawFn) -> bytes:
    """Archives of images that are nearly right, and not at all."""
    members: list[tuple[str, bytes, bytes]] = [
        (name, content if isinstance(content, bytes) else b"", tarfile.REGTYPE) for name, content in docker_members()
    ]
    if draw(st.booleans()):
        members = members[: draw(st.integers(0, len(members)))]
    extra = st.tuples(NAMES, DOCUMENTS | st.binary(max_size=700), TYPES)
    members += draw(st.lists(extra, max_size=5))
    members = draw(st.permutations(members))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=draw(st.sampled_from([0, 1, 2]))) as tar:
        for name, content, kind in members:
            member = tarfile.TarInfo(name[:99] if draw(st.booleans()) else name or "x")
            member.type = kind
            member.linkname = draw(NAMES)[:99]
            member.size = len(content) if kind == tarfile.REGTYPE else 0
            try:
                tar.addfile(member, io.BytesIO(content))
            except ValueError:
                continue  # a name that this format cannot have
    data = bytearray(buffer.getvalue())
    for _ in range(draw(st.integers(0, 3))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    if draw(st.booleans()):
        data = data[: draw(st.integers(0, len(data)))]
    return gzip.compress(bytes(data)) if draw(st.booleans()) else bytes(data)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=archives())
def test_no_archive_writes_outside_the_store_or_leaves_something_half_stored(tmp_path: Path, data: bytes) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(exist_ok=True)
    store = ImageStore(outside / "deep" / "images")

    try:
        load(store, data)
    except (ArchiveError, StoreError):
        assert store.images() == []
        assert blobs(store) == []

    assert {path.name for path in tmp_path.iterdir()} == {"outside"}
    assert {path.name for path in outside.iterdir()} <= {"deep"}
    found, damaged = store.images_and_damage()
    assert damaged == []
    for image in found:
        store.remove_image(image.id)
    store.collect()
    assert blobs(store) == []
