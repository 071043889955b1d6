"""Small images for tests: layers from files, and storing them."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping

from trainwright.cluster.images.formats import OCI_LAYER_GZIP, History, ImageConfig, Manifest, RootFs, RunConfig
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
        image_config = ImageConfig(
            created=created,
            architecture="amd64",
            os="linux",
            config=config or RunConfig(cmd=["/bin/sh"]),
            rootfs=RootFs(diff_ids=diff_ids),
            history=[History(created=created, created_by=f"COPY {' '.join(files)} /") for files in layers],
        )
        stored = store.write_blob(image_config.encode(), "application/vnd.oci.image.config.v1+json")
        manifest = Manifest.of_oci(stored, descriptors)
        return store.add_image(manifest, reference=ImageReference.parse(name) if name else None)
