"""The images of this machine as the status of its Node lists them."""

from pathlib import Path

from trainwright.cluster.images.blobs import StoreError
from trainwright.cluster.images.store import Image, ImageStore
from trainwright.objects import Object

_MOST_IMAGES = 50
"""As the kubelet, which leaves out the smallest."""


def read_images(directory: Path) -> list[Object]:
    """The images of the store in this directory, the largest first; none if it cannot be read."""
    try:
        images = ImageStore(directory).images()
    except (StoreError, OSError):
        return []
    by_manifest: dict[str, list[Image]] = {}
    for image in images:
        by_manifest.setdefault(image.descriptor.digest, []).append(image)
    listed: list[Object] = [{"names": _names(group), "sizeBytes": _size(group[0])} for group in by_manifest.values()]
    named = [image for image in listed if image["names"]]
    return sorted(named, key=lambda image: -int(image["sizeBytes"]))[:_MOST_IMAGES]


def index_version(directory: Path) -> int:
    """Changes when images are added or removed."""
    try:
        return (directory / "index.json").stat().st_mtime_ns
    except OSError:
        return 0


def _names(images: list[Image]) -> list[str]:
    references = [(image, image.reference) for image in images if image.reference is not None]
    digests = [f"{reference.name}@{image.registry_digest}" for image, reference in references]
    return list(dict.fromkeys([*digests, *(str(reference) for _, reference in references)]))


def _size(image: Image) -> int:
    return sum(layer.size for layer in image.manifest.layers) + image.manifest.config.size
