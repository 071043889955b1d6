"""The unpacked layers of stored images: each is unpacked once, and all pods and builds read the same files."""

import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from trainwright.cluster.images.blobs import StoreError, lock, lock_file
from trainwright.cluster.images.layers.namespace import ContainerRootError, remove_tree, run_as_container_root
from trainwright.cluster.images.layers.unpack import LayerError, UnpackedLayer, unpack_layer
from trainwright.cluster.images.store import Image, ImageStore
from trainwright.programs import own_module

PROGRAM = "trainwright.cluster.images.layers.unpacked"
"""The module to run in a process of its own, see `main`."""


class UnpackedLayers:
    def __init__(self, store: ImageStore) -> None:
        self._store = store
        self.skipped_devices: list[str] = []
        """Devices that an ordinary user could not make, of the layers that were unpacked here."""

    def find(self, image: Image) -> list[Path] | None:
        """The directories, the topmost first; None if one of the layers is not unpacked."""
        found = [self._store.layer_path(diff_id) for _, diff_id in _layers(image)]
        return found if all(path.is_dir() for path in found) else None

    def directories(self, image: Image) -> list[Path]:
        """The directories, the topmost first; unpacks those that are missing. Raises LayerError.

        A command that uses them afterwards holds a lease of the store, a pod a pin.
        """
        with self._store.lease():
            return [self._unpack(digest, diff_id) for digest, diff_id in _layers(image)]

    def _unpack(self, digest: str, diff_id: str) -> Path:
        path = self._store.layer_path(diff_id)
        if path.is_dir():
            return path
        with lock_file(path.with_name(f"{path.name}.lock")) as descriptor:
            lock(descriptor, fcntl.LOCK_EX)
            if path.is_dir():
                return path  # another process has done it meanwhile
            blob = self._store.blob_path(digest)
            if not blob.exists():
                raise LayerError(f"layer {digest} is missing in {self._store.directory}: build, load or pull it again")
            temporary = self._store.directory / "tmp" / f"layer-{path.name}-{os.getpid()}"
            try:
                unpacked = run_as_container_root(lambda: _unpack_file(blob, temporary, diff_id))
                temporary.rename(path)
            except OSError as error:
                raise LayerError(f"layer {digest}: {error.strerror or error}") from error
            except LayerError as error:
                if _digest(blob) != digest:
                    # Without it the next pull fetches the layer again, instead of finding that it is there.
                    blob.unlink()
                    raise LayerError(f"layer {digest} was changed: {error}; build, load or pull it again") from error
                raise LayerError(f"layer {digest}: {error}") from error
            finally:
                if temporary.exists():
                    remove_tree(temporary)
        self.skipped_devices += unpacked.skipped_devices
        return path


def _layers(image: Image) -> list[tuple[str, str]]:
    """Digest of the blob and of the content of each layer, the topmost first.

    Of a layer that an image has twice the upper one counts: it shows the same files, and overlayfs refuses the other.
    """
    pairs = zip(image.manifest.layers, image.config.rootfs.diff_ids, strict=True)
    found: dict[str, str] = {}
    for layer, diff_id in reversed(list(pairs)):
        found.setdefault(diff_id, layer.digest)
    return [(digest, diff_id) for diff_id, digest in found.items()]


def _digest(blob: Path) -> str:
    with blob.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _unpack_file(blob: Path, directory: Path, diff_id: str) -> UnpackedLayer:
    directory.mkdir(mode=0o755)
    directory.chmod(0o755)
    with blob.open("rb") as stream:
        return unpack_layer(stream, str(directory), diff_id=diff_id)


def unpack_command(store: ImageStore, image: Image) -> list[str]:
    """The command that unpacks an image in a process of its own, where it disturbs no event loop."""
    return own_module(PROGRAM, str(store.directory), image.descriptor.digest)


def main(arguments: Sequence[str]) -> None:
    """Prints an object with `skippedDevices`, or with `error`."""
    directory, digest = arguments
    store = ImageStore(Path(directory))
    layers = UnpackedLayers(store)
    try:
        layers.directories(store.image_of(digest))
        answer: dict[str, object] = {"skippedDevices": layers.skipped_devices}
    except (LayerError, ContainerRootError, StoreError) as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
