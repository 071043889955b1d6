"""Layers that were built here: the store has their files, and makes the tar stream again when one is needed."""

import gzip
import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.images.builder import add_built_image, add_image
from trainwright.cluster.images.archives import load_archive, save_archive
from trainwright.cluster.images.blobs import DamagedImageError, StoreError
from trainwright.cluster.images.layers.built import BuiltLayers, GzipStream
from trainwright.cluster.images.layers.tar_split import TarSplitError, TarSplitWriter, read_tar
from trainwright.cluster.images.layers.unpacked import UnpackedLayers
from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.store import Image, ImageStore

BUILT = ImageReference.parse("built")


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


def files_of(store: ImageStore, image: Image) -> Path:
    [directory] = UnpackedLayers(store).directories(image)
    return directory


def archive_of(store: ImageStore, image: Image) -> bytes:
    buffer = io.BytesIO()
    save_archive(store, [image], buffer)
    return buffer.getvalue()


def test_store_keeps_the_files_and_no_blob(store: ImageStore) -> None:
    image = add_built_image(store, files={"a/b": b"content" * 1000, "empty": b""})

    [layer] = image.manifest.layers
    assert not store.has_blob(layer.digest)
    assert store.has_layer(layer)
    assert (files_of(store, image) / "a" / "b").read_bytes() == b"content" * 1000
    with BuiltLayers(store).open(layer) as stream:
        data = stream.read()
    assert (f"sha256:{hashlib.sha256(data).hexdigest()}", len(data)) == (layer.digest, layer.size)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert archive.getnames() == ["a", "empty", "a/b"]


def test_saved_image_is_the_same_elsewhere(store: ImageStore, tmp_path: Path) -> None:
    image = add_built_image(store)
    other = ImageStore(tmp_path / "other")

    [loaded] = load_archive(other, io.BytesIO(archive_of(store, image)))

    assert (loaded.id, loaded.descriptor.digest) == (image.id, image.descriptor.digest)
    assert (files_of(other, loaded) / "etc" / "greeting").read_bytes() == b"hello"
    assert archive_of(other, loaded) == archive_of(store, image)


def test_loading_an_image_that_was_built_here_stores_nothing_twice(store: ImageStore) -> None:
    image = add_built_image(store)

    [loaded] = load_archive(store, io.BytesIO(archive_of(store, image)))

    assert loaded.id == image.id
    assert not store.has_blob(image.manifest.layers[0].digest)
    assert store.find(BUILT) is not None


def test_owner_mode_and_time_on_the_disk_do_not_matter(store: ImageStore) -> None:
    image = add_built_image(store)
    before = archive_of(store, image)
    file = files_of(store, image) / "etc" / "greeting"

    file.chmod(0o600)
    os.utime(file, (1, 1))

    assert archive_of(store, image) == before


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda file: file.write_bytes(b"HELLO"), "its files in .* were changed"),
        (lambda file: file.write_bytes(b"longer than it was"), "/etc/greeting was changed"),
        (lambda file: file.unlink(), "/etc/greeting: No such file or directory"),
        (lambda file: (file.unlink(), file.symlink_to("/etc/passwd")), "/etc/greeting: Too many levels"),
        (
            lambda file: file.parents[1].with_suffix(".tar-split").write_bytes(b"{}"),
            "the record of the layer is damaged",
        ),
    ],
    ids=["content", "size", "missing", "link", "record"],
)
def test_changed_files_are_not_saved(store: ImageStore, change, cause: str) -> None:  # type: ignore[no-untyped-def]
    image = add_built_image(store)
    change(files_of(store, image) / "etc" / "greeting")

    with pytest.raises(DamagedImageError, match=f"^layer sha256:[0-9a-f]+ cannot be read: {cause}.* build them again$"):
        archive_of(store, image)


def test_all_images_with_changed_files_are_named(store: ImageStore) -> None:
    image = add_built_image(store, "one")
    store.tag(ImageReference.parse("two:2"), image)
    add_built_image(store, "other", {"a": b"1"})
    (files_of(store, image) / "etc" / "greeting").write_bytes(b"HELLO")

    with pytest.raises(DamagedImageError, match=r"Remove the images that have it \(one:latest, two:2\), and build"):
        archive_of(store, image)


def test_digest_of_registries_is_not_known_before_the_push(store: ImageStore) -> None:
    image = add_built_image(store)
    assert image.repo_digest is None

    digest = f"sha256:{'1' * 64}"
    store.set_registry_digest(BUILT, image, digest)

    known = store.find(f"built@{digest}")
    assert known is not None
    assert (known.repo_digest, known.id) == (digest, image.id)


def test_removed_image_leaves_nothing(store: ImageStore) -> None:
    image = add_built_image(store)
    BuiltLayers(store).remember_compressed(image.manifest.layers[0], image.descriptor)

    store.remove(BUILT)
    collected = store.collect()

    assert image.manifest.layers[0].digest in collected.digests
    assert collected.layers == (image.manifest.layers[0].digest,)
    assert list(store.layers.iterdir()) == []


def test_layer_of_which_files_are_missing_is_no_layer(store: ImageStore) -> None:
    image = add_built_image(store)
    files_of(store, image).rename(store.directory / "elsewhere")

    assert not store.has_layer(image.manifest.layers[0])
    with pytest.raises(StoreError, match="of image built:latest is missing: build, pull or load it again"):
        archive_of(store, image)
    with pytest.raises(StoreError, match="is missing"):
        store.add_image(image.manifest, image.config)


def test_the_same_layer_can_be_built_and_pulled(store: ImageStore) -> None:
    pulled = add_image(store, "pulled", ({"etc/greeting": b"hello"},))
    UnpackedLayers(store).directories(pulled)

    built = add_built_image(store)
    store.remove(ImageReference.parse("pulled"))
    store.collect()

    assert archive_of(store, built)


def test_long_runs_of_headers_are_kept(tmp_path: Path) -> None:
    record = io.BytesIO()
    writer = TarSplitWriter(record)
    (tmp_path / "file").write_bytes(b"content")
    for _ in range(3):
        writer.add_bytes(b"x" * 1_500_000)
    writer.add_file("file", 7)
    writer.close()

    record.seek(0)
    assert b"".join(read_tar(record, str(tmp_path))) == b"x" * 4_500_000 + b"content"


def test_record_that_ends_too_early_is_an_error(tmp_path: Path) -> None:
    record = io.BytesIO()
    writer = TarSplitWriter(record)
    writer.add_bytes(os.urandom(5000))
    writer.close()

    with pytest.raises(TarSplitError, match="the record of the layer is damaged"):
        list(read_tar(io.BytesIO(record.getvalue()[:-100]), str(tmp_path)))


@given(st.lists(st.binary(max_size=400), max_size=6), st.integers(0, 3))
def test_what_was_compressed_can_be_read_by_any_gzip(parts: list[bytes], repeats: int) -> None:
    parts = parts + [b"0123456789abcdef" * 40_000] * repeats
    output = io.BytesIO()

    with GzipStream(output) as stream:
        for part in parts:
            stream.write(part)

    assert gzip.decompress(output.getvalue()) == b"".join(parts)
