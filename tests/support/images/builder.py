"""Small images for tests: layers from files, and storing them."""

import gzip
import hashlib
import io
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from trainwright.cluster.images.formats import (
    OCI_LAYER_GZIP,
    Descriptor,
    History,
    ImageConfig,
    Manifest,
    RootFs,
    RunConfig,
)
from trainwright.cluster.images.layers.built import BuiltLayers
from trainwright.cluster.images.layers.namespace import run_as_container_root
from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.store import Image, ImageStore


def tar_of(files: Mapping[str, bytes]) -> bytes:
    """A tar archive of these files, the same bytes each time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def add_image(
    store: ImageStore,
    name: str | None = "demo",
    layers: tuple[Mapping[str, bytes], ...] = ({"hello.txt": b"hello"},),
    config: RunConfig | None = None,
    created: str = "2024-05-06T07:08:09Z",
) -> Image:
    """Stores an image with one gzip layer for each mapping of files."""
    descriptors, diff_ids = [], []
    with store.lease():
        for files in layers:
            tar = tar_of(files)
            diff_ids.append(f"sha256:{hashlib.sha256(tar).hexdigest()}")
            descriptors.append(store.write_blob(gzip.compress(tar, 6, mtime=0), OCI_LAYER_GZIP))
        history = [f"COPY {' '.join(files)} /" for files in layers]
        return _add_layers(store, name, descriptors, diff_ids, config or RunConfig(cmd=["/bin/sh"]), history, created)


def add_built_image(store: ImageStore, name: str = "built", files: Mapping[str, bytes] | None = None) -> Image:
    """Stores an image as a build does: with the files of its only layer instead of a blob."""
    files = files or {"etc/greeting": b"hello"}
    with store.lease():
        directory = Path(tempfile.mkdtemp(dir=store.directory / "tmp"))
        for path, content in files.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(content)
        layer = run_as_container_root(lambda: BuiltLayers(store).add(str(directory)))
        return _add_layers(store, name, [layer], [layer.digest], RunConfig(), ["COPY . /"], "2024-05-06T07:08:09Z")


def _add_layers(
    store: ImageStore,
    name: str | None,
    layers: list[Descriptor],
    diff_ids: list[str],
    config: RunConfig,
    history: list[str],
    created: str,
) -> Image:
    image_config = ImageConfig(
        created=created,
        architecture="amd64",
        os="linux",
        config=config,
        rootfs=RootFs(diff_ids=diff_ids),
        history=[History(created=created, created_by=text) for text in history],
    )
    stored = store.write_blob(image_config.encode(), "application/vnd.oci.image.config.v1+json")
    manifest = Manifest.of_oci(stored, layers)
    return store.add_image(manifest, reference=ImageReference.parse(name) if name else None)
