import errno
import gzip
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest import mock

import pytest

from tests.support.cluster.disks import fill, small_disk
from tests.support.images.builder import add_image
from tests.support.thoroughness import THOROUGH
from tests.support.waiting import wait_until
from trainwright.cluster.datadir import DataDir
from trainwright.cluster.images.blobs import DamagedImageError, StoreError, WrongDigestError
from trainwright.cluster.images.formats import Descriptor, FormatError, Manifest, digest_of
from trainwright.cluster.images.layers.tar_split import read_tar
from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.store import AmbiguousImageError, ImageStore


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


def names(store: ImageStore) -> list[str]:
    return [image.reference.familiar if image.reference else "<none>" for image in store.images()]


def blobs(store: ImageStore) -> set[str]:
    return {path.name for path in (store.directory / "blobs" / "sha256").glob("*")}


def temporary_files(store: ImageStore) -> list[Path]:
    return [*(store.directory / "tmp").glob("*"), *store.directory.glob(".*")]


def temporary_files_under_lease(store: ImageStore) -> list[Path]:
    with store.lease():  # removes what earlier processes left
        return temporary_files(store)


def test_empty_store_is_not_created_by_reading(store: ImageStore) -> None:
    assert store.images() == []
    assert store.find("demo") is None
    assert store.collect().digests == ()
    assert not store.directory.exists()


def test_other_users_cannot_read_the_store(store: ImageStore) -> None:
    add_image(store)

    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700


def test_image_is_found_by_every_name_that_docker_takes(store: ImageStore) -> None:
    image = add_image(store, "team/demo:1.0")

    for name in (
        "team/demo:1.0",
        "docker.io/team/demo:1.0",
        f"team/demo@{image.descriptor.digest}",
        image.id,
        image.id.removeprefix("sha256:"),
        image.short_id,
        image.descriptor.digest,
    ):
        assert store.find(name) == image, name
    assert store.find("team/demo") is None
    assert store.find(ImageReference.parse("docker.io/library/" + image.short_id)) is None


def test_beginning_of_two_ids_is_ambiguous(store: ImageStore) -> None:
    prefixes: dict[str, int] = {}
    for number in range(300):
        prefix = add_image(store, f"demo:{number}", created=f"2024-01-01T00:00:{number}Z").short_id[:2]
        if prefix in prefixes:
            break
        prefixes[prefix] = number

    with pytest.raises(AmbiguousImageError, match=f"begins with {prefix}"):
        store.find(prefix)


def test_blob_with_another_digest_is_not_stored(store: ImageStore) -> None:
    with pytest.raises(WrongDigestError, match="not sha256:0000"):
        store.write_blob(b"content", expected_digest="sha256:" + "0" * 64)

    assert blobs(store) == set()
    assert temporary_files(store) == []


def test_layers_are_kept_once(store: ImageStore) -> None:
    base = {"base.txt": b"base"}
    add_image(store, "one", ({**base}, {"one.txt": b"1"}))
    before = blobs(store)
    add_image(store, "two", ({**base}, {"two.txt": b"2"}))

    assert len(blobs(store) - before) == 3  # layer, configuration, manifest


def test_image_whose_layer_is_missing_is_refused(store: ImageStore) -> None:
    image = add_image(store)
    layer = image.manifest.layers[0]
    store.blob_path(layer.digest).unlink()

    with pytest.raises(StoreError, match="is missing"):
        store.add_image(image.manifest)


def test_image_with_more_layers_than_its_configuration_says_is_refused(store: ImageStore) -> None:
    image = add_image(store)
    manifest = Manifest.of_oci(image.manifest.config, image.manifest.layers * 2)

    with pytest.raises(FormatError, match="2 layers and the configuration 1"):
        store.add_image(manifest)


def test_name_moves_to_a_new_image_and_the_old_one_loses_it(store: ImageStore) -> None:
    old = add_image(store, "demo", ({"a": b"1"},))
    new = add_image(store, "demo", ({"a": b"2"},))

    assert names(store) == ["demo:latest", "<none>"]
    assert store.find("demo") == new
    found = store.find(old.id)
    assert found is not None
    assert found.reference is None


def test_image_with_another_name_does_not_become_nameless(store: ImageStore) -> None:
    old = add_image(store, "demo", ({"a": b"1"},))
    store.tag(ImageReference.parse("kept"), old)
    add_image(store, "demo", ({"a": b"2"},))

    assert names(store) == ["demo:latest", "kept:latest"]


def test_image_that_comes_back_with_other_layers_is_listed_once(store: ImageStore) -> None:
    image = add_image(store, "demo")
    layer = gzip.decompress(store.blob_path(image.manifest.layers[0].digest).read_bytes())

    store.add_image(Manifest.of_oci(image.manifest.config, [store.write_blob(layer)]), reference=image.reference)

    assert names(store) == ["demo:latest"]


def test_tagging_twice_changes_nothing(store: ImageStore) -> None:
    image = add_image(store)

    store.tag(ImageReference.parse("other"), image)
    store.tag(ImageReference.parse("other"), image)

    assert names(store) == ["demo:latest", "other:latest"]


def test_nameless_image_that_gets_a_name_is_listed_once(store: ImageStore) -> None:
    image = add_image(store, None)
    assert names(store) == ["<none>"]

    store.tag(ImageReference.parse("demo"), image)

    assert names(store) == ["demo:latest"]


def test_removed_image_is_collected_and_shared_layers_stay(store: ImageStore) -> None:
    base = {"base.txt": b"base"}
    kept = add_image(store, "kept", (base,))
    removed = add_image(store, "removed", (base, {"own.txt": b"own"}))

    assert store.remove(ImageReference.parse("removed"))
    collected = store.collect()

    assert set(collected.digests) == set(removed.digests) - set(kept.digests)
    assert collected.size > 0
    assert blobs(store) == {digest.partition(":")[2] for digest in kept.digests}
    assert not store.remove(ImageReference.parse("removed"))


def test_collect_removes_unpacked_layers_of_no_image(store: ImageStore) -> None:
    kept = add_image(store, "kept", ({"a": b"1"},))
    removed = add_image(store, "removed", ({"a": b"2"},))
    for image in (kept, removed):
        directory = store.layers / image.config.rootfs.diff_ids[0].removeprefix("sha256:")
        directory.mkdir()
        (directory / "a").write_bytes(b"")

    store.remove(ImageReference.parse("removed"))
    collected = store.collect()

    assert collected.layers == tuple(removed.config.rootfs.diff_ids)
    assert [path.name for path in store.layers.iterdir()] == [kept.config.rootfs.diff_ids[0].removeprefix("sha256:")]


def test_lease_keeps_blobs_that_no_image_needs_yet(store: ImageStore) -> None:
    with store.lease():
        layer = store.write_blob(b"layer")
        assert store.collect().busy
        assert store.has_blob(layer.digest)

    assert store.collect().digests == (layer.digest,)


def test_pinned_image_outlives_its_name_until_the_holder_is_gone(store: ImageStore, tmp_path: Path) -> None:
    image = add_image(store)
    pod = tmp_path / "pod"
    pod.mkdir()
    store.pin("pod-uid/container", [image.descriptor.digest], holder=pod)

    store.remove(ImageReference.parse("demo"))
    assert store.collect().digests == ()

    pod.rmdir()
    assert set(store.collect().digests) == set(image.digests)
    assert store.pins() == {}


def test_pin_without_a_holder_stays_until_it_is_removed(store: ImageStore) -> None:
    blob = store.write_blob(b"cache")
    store.pin("build-1", [blob.digest])
    assert store.collect().digests == ()

    store.unpin("build-1")
    assert store.collect().digests == (blob.digest,)


def test_damaged_image_is_named_and_the_others_are_listed(store: ImageStore) -> None:
    add_image(store, "whole", ({"a": b"1"},))
    image = add_image(store, "broken", ({"a": b"2"},))
    store.blob_path(image.id).write_bytes(b"{}")

    found, damaged = store.images_and_damage()

    assert [str(image.reference) for image in found] == ["docker.io/library/whole:latest"]
    assert len(damaged) == 1
    assert damaged[0].startswith("broken:latest is damaged: ")
    with pytest.raises(DamagedImageError):
        store.find("broken")
    assert store.remove(ImageReference.parse("broken"))


def test_full_disk_is_named_and_leaves_nothing(store: ImageStore) -> None:
    add_image(store)
    before = blobs(store)

    with (
        mock.patch("os.fsync", side_effect=OSError(errno.ENOSPC, "No space left on device")),
        pytest.raises(StoreError, match=r"no space left in .*`trainwright image prune`"),
    ):
        store.write_blob(b"more")

    assert blobs(store) == before
    assert temporary_files(store) == []


def test_images_can_be_removed_when_the_disk_is_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        store = ImageStore(disk / "images")
        names = [add_image(store, f"one:{number}", ({"a": bytes(number)},)).reference for number in range(1, 4)]
        kept = add_image(store, "kept")
        fill(disk / "filler")
        with pytest.raises(StoreError, match="no space left"):
            store.write_blob(b"more")

        assert all(store.remove(name) for name in names if name)
        collected = store.collect()

        assert len(collected.digests) == 9
        assert store.images() == [kept]
        store.write_blob(b"more")


def test_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match=r"cannot write to .*file/images: File exists"):
        add_image(ImageStore(tmp_path / "file" / "images"))


@pytest.mark.parametrize("name", ["lock", "index.json"])
def test_file_that_cannot_be_opened_is_named(store: ImageStore, name: str) -> None:
    add_image(store)
    (store.directory / name).unlink()
    (store.directory / name).mkdir()

    with pytest.raises(StoreError, match="Is a directory"):
        add_image(store, "other")


def test_two_threads_add_and_remove_at_the_same_time(store: ImageStore) -> None:
    def work(prefix: str) -> None:
        for number in range(15):
            name = f"{prefix}:{number}"
            add_image(store, name, ({"shared": b"same"}, {"own": name.encode()}))
            if number % 3 == 0:
                store.remove(ImageReference.parse(name))
                store.collect()

    threads = [threading.Thread(target=work, args=(prefix,)) for prefix in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found, damaged = store.images_and_damage()
    assert damaged == []
    assert len(found) == 20
    for image in found:
        assert all(store.has_blob(digest) for digest in image.digests)


class RemovedMeanwhile(ImageStore):
    """Another command removes all images after this one has read the index."""

    def read_document(self, descriptor: Descriptor) -> bytes:
        other = ImageStore(self.directory)
        for image in other.images():
            other.remove_image(image.id)
        other.collect()
        return super().read_document(descriptor)


def test_image_that_is_removed_while_it_is_read_is_not_called_damaged(store: ImageStore) -> None:
    add_image(store)
    assert RemovedMeanwhile(store.directory).images_and_damage() == ([], [])

    add_image(store)
    assert RemovedMeanwhile(store.directory).find("demo") is None


ADD_AND_COLLECT = """
import sys
from pathlib import Path
from tests.support.images.builder import add_built_image, add_image
from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.store import ImageStore

store = ImageStore(Path(sys.argv[1]))
number = 0
print("ready", flush=True)
while True:
    number += 1
    add_image(store, f"demo:{number % 7}", ({"shared": b"same"}, {"own": str(number).encode() * 5000}))
    add_built_image(store, f"built:{number % 4}", {"own": str(number % 6).encode() * 5000, "a/b": b"same"})
    if number % 3 == 0:
        store.remove(ImageReference.parse(f"demo:{number % 5}"))
        store.collect()
"""


def test_store_is_whole_after_a_kill_at_any_moment(store: ImageStore) -> None:
    for round_ in range(100 if THOROUGH else 5):
        process = subprocess.Popen(
            [sys.executable, "-c", ADD_AND_COLLECT, str(store.directory)], stdout=subprocess.PIPE
        )
        with process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.013 * (round_ % 17))  # the moment of the kill is what this test varies
            process.send_signal(signal.SIGKILL)

        found, damaged = store.images_and_damage()
        assert damaged == []
        for image in found:
            assert all(map(store.has_layer, image.manifest.layers))
            for layer in filter(lambda layer: store.is_built(layer.digest), image.manifest.layers):
                with store.layer_record(layer.digest).open("rb") as record:
                    stream = b"".join(read_tar(record, str(store.layer_path(layer.digest))))
                assert digest_of(stream) == layer.digest
        # A child of the killed process, in which an ordinary user works as root, may live a moment longer.
        wait_until(lambda: temporary_files_under_lease(store) == [])
    store.collect()
    needed = {digest for image in store.images() for digest in image.digests if not store.is_built(digest)}
    assert blobs(store) == {digest.partition(":")[2] for digest in needed}


def test_clusters_of_a_user_share_one_store_and_another_data_directory_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    shared = ImageStore.of(DataDir.default()).directory

    assert shared == tmp_path / "trainwright" / "images"
    assert ImageStore.of(DataDir.of_cluster("dev")).directory == shared
    assert ImageStore.of(DataDir(tmp_path / "other")).directory == tmp_path / "other" / "images"
