"""The images of this machine, in OCI layout: blobs by digest, and an index of the images by name.

Several commands and nodes use one store at the same time. A blob appears whole or not at all, the index changes under a
lock, and what an image needs is stored before the image. A process that is killed leaves temporary files, which the
next one removes. `collect` deletes what no image needs; a lease keeps it from blobs that a command is about to use.
"""

import fcntl
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from trainwright.cluster.datadir import DataDir
from trainwright.cluster.images.blobs import BlobStore, DamagedImageError, FullDiskError, StoreError, lock, lock_file
from trainwright.cluster.images.formats import (
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    FormatError,
    ImageConfig,
    Index,
    Manifest,
)
from trainwright.cluster.images.layers.namespace import remove_tree
from trainwright.cluster.images.reference import ImageReference, InvalidReferenceError, is_digest

NAME_ANNOTATION = "io.containerd.image.name"
"""The full name of an image in an OCI layout."""
REF_NAME_ANNOTATION = "org.opencontainers.image.ref.name"
"""The name by which skopeo and other tools find an image in an OCI layout."""
PULLED_DIGEST_ANNOTATION = "dev.trainwright.pulled-digest"
"""The digest by which a registry knows the image if it is not that of the manifest here: that of the index from which
it was chosen, or of the manifest with compressed layers that was pushed."""


class AmbiguousImageError(StoreError):
    """Several images have an ID that begins so."""


@dataclass(frozen=True, slots=True)
class Image:
    """One image under one name. An image with several names is one `Image` for each."""

    reference: ImageReference | None
    """None for an image that has lost its name to another one."""
    descriptor: Descriptor
    """The descriptor of the manifest."""
    manifest: Manifest
    config: ImageConfig

    @property
    def id(self) -> str:
        """The digest of the configuration."""
        return self.manifest.config.digest

    @property
    def short_id(self) -> str:
        """The ID as tables show it."""
        return self.manifest.config.hex[:12]

    @property
    def registry_digest(self) -> str:
        """The digest by which a registry knows it, or by which it is known here if none does."""
        return self.repo_digest or self.descriptor.digest

    @property
    def repo_digest(self) -> str | None:
        """The digest by which the repository of its name has it; None if it was neither pulled nor pushed by this name.

        Layers that are not compressed get other digests when they are pushed.
        """
        return (self.descriptor.annotations or {}).get(PULLED_DIGEST_ANNOTATION)

    @property
    def blobs(self) -> list[Descriptor]:
        """All that it consists of."""
        return [self.descriptor, self.manifest.config, *self.manifest.layers]

    @property
    def digests(self) -> list[str]:
        return [blob.digest for blob in self.blobs]


@dataclass(frozen=True, slots=True)
class Collected:
    """What `collect` has deleted."""

    digests: tuple[str, ...] = ()
    """Blobs, and layers that were built here."""
    layers: tuple[str, ...] = ()
    """Unpacked layers, by the digest of their uncompressed content."""
    size: int = 0
    """Bytes of the blobs."""
    busy: bool = False
    """True if nothing was deleted because another command is using the store."""


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """Keeps blobs that no named image needs, such as the image of a running pod or the cache of builds."""

    digests: list[str]
    """Manifests, with all that they name, or other blobs."""
    holder: str = ""
    """The pin ends when this path no longer exists; empty if it stays until `unpin`."""
    pod: str = ""
    """NAMESPACE/NAME of the pod that needs them."""


class ImageStore(BlobStore):
    """The store in a directory, which is created when something is written."""

    @classmethod
    def of(cls, data: DataDir) -> Self:
        """That of the data directory; clusters without --data-dir share one."""
        shares = data.cluster_name or data.is_ephemeral or data.path == DataDir.default().path
        return cls((DataDir.default().path if shares else data.path) / "images")

    @property
    def exists(self) -> bool:
        return (self.directory / "lock").exists()

    @property
    def layers(self) -> Path:
        """Unpacked layers, in directories named after the hexadecimal digest of the uncompressed layer."""
        return self.directory / "layers"

    def layer_path(self, diff_id: str) -> Path:
        """The directory of the unpacked layer."""
        return self.layers / self.blob_path(diff_id).name

    def layer_record(self, diff_id: str) -> Path:
        """What gives the tar stream of a layer that was built here together with the unpacked files."""
        return self.layer_path(diff_id).with_suffix(".tar-split")

    def is_built(self, digest: str) -> bool:
        """True for a layer that was built here, of which the store has the files instead of a blob."""
        return self.layer_record(digest).exists() and self.layer_path(digest).is_dir()

    def has_layer(self, layer: Descriptor) -> bool:
        return self.has_blob(layer.digest, layer.size) or self.is_built(layer.digest)

    # Images

    def images(self) -> list[Image]:
        """All that are whole, by name; images without a name last."""
        return self.images_and_damage()[0]

    def entries(self) -> list[Descriptor]:
        """The manifests of all images, also of damaged ones, one for each name."""
        return self._index().manifests

    def images_and_damage(self) -> tuple[list[Image], list[str]]:
        """All images that are whole, and a sentence for every other one."""
        found, damaged = [], []
        for entry in self._index().manifests:
            try:
                if image := self._listed_image(entry):
                    found.append(image)
            except DamagedImageError as error:
                damaged.append(f"{_entry_name(entry)} is damaged: {error}")
        found.sort(key=lambda image: (image.reference is None, str(image.reference), image.id))
        return found, damaged

    def image_of(self, digest: str) -> Image:
        """The image of a manifest, also of one without a name that a pin keeps. Raises DamagedImageError."""
        return self._image(Descriptor(digest=digest, size=0))

    def find(self, name: str | ImageReference) -> Image | None:
        """The image of this name. A text may also be an ID, its digest or the beginning of an ID."""
        if isinstance(name, ImageReference):
            return self._find_reference(name)
        if name.startswith("sha256:") and (found := self._find_id(name.partition(":")[2])):
            return found
        try:
            found = self._find_reference(ImageReference.parse(name))
        except InvalidReferenceError:
            found = None
        return found or self._find_id(name)

    def add_image(
        self,
        manifest: Manifest | bytes,
        config: ImageConfig | bytes | None = None,
        *,
        reference: ImageReference | None = None,
        pulled_digest: str | None = None,
    ) -> Image:
        """Stores an image whose layers are stored; bytes are kept as they are.

        Without `config`, the configuration is stored already. A name that another image has moves to this one.
        """
        data = manifest if isinstance(manifest, bytes) else manifest.encode()
        decoded = Manifest.decode(data)
        with self.lease():
            if config is not None:
                encoded = config if isinstance(config, bytes) else config.encode()
                self.write_blob(encoded, expected_digest=decoded.config.digest)
            self._check_layers(decoded, ImageConfig.decode(self.read_document(decoded.config)))
            stored = self.write_blob(data, media_type=decoded.media_type or OCI_MANIFEST)
            annotations = {PULLED_DIGEST_ANNOTATION: pulled_digest} if pulled_digest else None
            entry = msgspec.structs.replace(stored, annotations=annotations)
            return self._add_entry(entry, reference)

    def tag(self, reference: ImageReference, image: Image) -> Image:
        """Gives the image one more name. Another repository may not have it, or by another digest."""
        present = self._find_reference(reference)
        if present is not None and present.descriptor.digest == image.descriptor.digest:
            return present
        is_same_repository = image.reference is not None and image.reference.name == reference.name
        annotations = image.descriptor.annotations if is_same_repository else None
        entry = msgspec.structs.replace(image.descriptor, annotations=annotations)
        with self.lease():
            return self._add_entry(entry, reference)

    def set_registry_digest(self, reference: ImageReference, image: Image, digest: str) -> Image:
        """Gives the image this name, by which a registry has it with another digest."""
        known = msgspec.structs.replace(image.descriptor, annotations={PULLED_DIGEST_ANNOTATION: digest})
        with self.lease():
            return self._add_entry(known, reference)

    def remove(self, reference: ImageReference) -> bool:
        """Removes the name, and with its last name the image; `collect` deletes the files."""
        return self._remove_entries(lambda entry: _reference(entry) == reference)

    def remove_image(self, image_id: str) -> list[ImageReference]:
        """Removes the image with all its names, which are returned."""
        with self._changed_index() as manifests:
            gone = [entry for entry in manifests if self._id_of(entry) == image_id]
            manifests[:] = [entry for entry in manifests if entry not in gone]
        return [reference for entry in gone if (reference := _reference(entry))]

    def remove_damaged(self, name: str) -> bool:
        """Removes an image that cannot be read, by name."""
        return self._remove_entries(lambda entry: _entry_name(entry) == name)

    def _remove_entries(self, goes: Callable[[Descriptor], bool]) -> bool:
        with self._changed_index() as manifests:
            kept = [entry for entry in manifests if not goes(entry)]
            removed = len(kept) < len(manifests)
            manifests[:] = kept
        return removed

    # Deleting

    def pin(self, name: str, digests: Iterable[str], holder: Path | None = None, pod: str = "") -> None:
        """Keeps blobs, and the unpacked layers of manifests among them, until `unpin` or until `holder` is gone."""
        pin = Pin(digests=list(digests), holder=str(holder) if holder else "", pod=pod)
        with self.lease():
            self.replace_file(self._pin_path(name), msgspec.json.encode(pin))

    def unpin(self, name: str) -> None:
        self._pin_path(name).unlink(missing_ok=True)

    def pins(self) -> dict[str, Pin]:
        """Those that still hold."""
        pins = {}
        for path in sorted((self.directory / "pins").glob("[!.]*")):
            with suppress(OSError, msgspec.MsgspecError):
                pin = msgspec.json.decode(path.read_bytes(), type=Pin)
                if not pin.holder or Path(pin.holder).exists():
                    pins[path.name] = pin
        return pins

    def collect(self) -> Collected:
        """Deletes blobs and unpacked layers that no image and no pin needs, unless a lease is held."""
        if not self.directory.is_dir():
            return Collected()
        with self.exclusively() as is_alone:
            return self._collect() if is_alone else Collected(busy=True)

    def _collect(self) -> Collected:
        needed, needed_layers = self._needed_digests()
        deleted, size = [], 0
        for path in sorted((self.directory / "blobs" / "sha256").glob("*")):
            digest = f"sha256:{path.name}"
            # A layer that was built here and loaded from an archive is here twice.
            if digest not in needed or self.is_built(digest):
                size += path.stat().st_size
                path.unlink()
                if digest not in needed:
                    deleted.append(digest)
        layers = []
        for path in sorted(self.layers.glob("*")):
            # Locks and other files beside a layer's directory begin with its digest.
            digest = f"sha256:{path.name.partition('.')[0]}"
            if digest in needed_layers:
                continue
            if path.is_dir():
                if self.is_built(digest):
                    deleted.append(digest)
                # Renamed first: a layer that is half deleted must not be taken for a whole one.
                discarded = self.directory / "tmp" / f"layer-{path.name}"
                path.rename(discarded)
                remove_tree(discarded)
                layers.append(digest)
            else:
                path.unlink()
        for path in (self.directory / "pins").glob("[!.]*"):
            if path.name not in self.pins():
                path.unlink(missing_ok=True)
        return Collected(tuple(deleted), tuple(layers), size)

    def _needed_digests(self) -> tuple[set[str], set[str]]:
        """Blobs of images and pins, and the unpacked layers of these."""
        roots = [entry.digest for entry in self._index().manifests]
        needed: set[str] = set()
        layers: set[str] = set()
        for digest in [*roots, *(digest for pin in self.pins().values() for digest in pin.digests)]:
            if digest in needed or not is_digest(digest):
                continue
            needed.add(digest)
            # What cannot be read as a manifest is a blob that stands for itself.
            with suppress(StoreError, FormatError):
                descriptor = Descriptor(digest=digest, size=0)
                manifest = Manifest.decode(self.read_document(descriptor))
                needed.update(blob.digest for blob in (manifest.config, *manifest.layers))
                layers.update(ImageConfig.decode(self.read_document(manifest.config)).rootfs.diff_ids)
        return needed, layers

    # Files

    def _pin_path(self, name: str) -> Path:
        return self.directory / "pins" / name.replace("/", "_").lstrip(".")

    # The index

    def _index(self) -> Index:
        path = self.directory / "index.json"
        try:
            return Index.decode(path.read_bytes())
        except FileNotFoundError:
            return Index(schema_version=2, media_type=OCI_INDEX, manifests=[])
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from error
        except FormatError as error:
            raise StoreError(
                f"{path} cannot be read: {error}; move it away to begin with no images (blobs are kept until `prune`)"
            ) from error

    @contextmanager
    def _changed_index(self) -> Iterator[list[Descriptor]]:
        """The entries of the index, which are written back at the end of the block."""
        with self.lease(), lock_file(self.directory / "index.lock") as descriptor:
            lock(descriptor, fcntl.LOCK_EX)
            index = self._index()
            manifests = list(index.manifests)
            yield manifests
            if manifests != index.manifests:
                document = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests}
                self._replace_index(msgspec.json.encode(document), is_smaller=len(manifests) < len(index.manifests))

    def _replace_index(self, content: bytes, *, is_smaller: bool) -> None:
        path, reserve = self.directory / "index.json", self.directory / "index.reserve"
        try:
            self.replace_file(path, content)
        except FullDiskError:
            # Images can be removed on a full disk, or nothing would free it.
            if not is_smaller or not reserve.exists():
                raise
            self.replace_file_from(reserve, path, content)
        self.reserve(reserve, len(content))

    def _add_entry(self, entry: Descriptor, reference: ImageReference | None) -> Image:
        with self._changed_index() as manifests:
            kept = []
            for old in manifests:
                if reference is not None and _reference(old) == reference:
                    if old.digest == entry.digest:
                        continue
                    # The image that had this name stays, as in Docker, under its other names or without one. With
                    # other layers (compressed in another way) it is still the same image if its ID is the same.
                    if any(other.digest == old.digest and other is not old for other in manifests):
                        continue
                    if self._id_of(old) == self._id_of(entry):
                        continue
                    kept.append(_named(old, None))
                elif old.digest == entry.digest and (_reference(old) is None):
                    continue
                else:
                    kept.append(old)
            if reference is None and any(old.digest == entry.digest for old in kept):
                manifests[:] = kept
            else:
                manifests[:] = [*kept, _named(entry, reference)]
        return self._image(_named(entry, reference))

    def _find_reference(self, reference: ImageReference) -> Image | None:
        for entry in self._index().manifests:
            name = _reference(entry)
            if name is None or name.name != reference.name:
                continue
            if reference.digest is not None:
                pulled = (entry.annotations or {}).get(PULLED_DIGEST_ANNOTATION)
                if reference.digest in (entry.digest, pulled, name.digest):
                    return self._listed_image(entry)
            elif name.tag == reference.tag and name.digest is None:
                return self._listed_image(entry)
        return None

    def _find_id(self, prefix: str) -> Image | None:
        if len(prefix) < 2 or not set(prefix) <= set("0123456789abcdef"):
            return None
        found = [
            image
            for image in self.images()
            if image.manifest.config.hex.startswith(prefix) or (len(prefix) == 64 and image.descriptor.hex == prefix)
        ]
        if len({image.id for image in found}) > 1:
            raise AmbiguousImageError(f"{len(found)} images have an ID that begins with {prefix}: write more of it")
        return found[0] if found else None

    def _id_of(self, entry: Descriptor) -> str | None:
        try:
            return self._image(entry).id
        except DamagedImageError:
            return None

    def _listed_image(self, entry: Descriptor) -> Image | None:
        """None if another command has removed the image since the index was read: it is not damaged then."""
        try:
            return self._image(entry)
        except DamagedImageError:
            if entry in self._index().manifests:
                raise
            return None

    def _image(self, entry: Descriptor) -> Image:
        try:
            manifest = Manifest.decode(self.read_document(entry))
            config = ImageConfig.decode(self.read_document(manifest.config))
        except FormatError as error:
            raise DamagedImageError(str(error)) from error
        return Image(_reference(entry), entry, manifest, config)

    def _check_layers(self, manifest: Manifest, config: ImageConfig) -> None:
        if len(config.rootfs.diff_ids) != len(manifest.layers):
            raise FormatError(
                f"the manifest has {len(manifest.layers)} layers and the configuration {len(config.rootfs.diff_ids)}"
            )
        for layer in manifest.layers:
            if not self.has_layer(layer):
                raise StoreError(f"layer {layer.digest} is missing")


def _reference(entry: Descriptor) -> ImageReference | None:
    name = (entry.annotations or {}).get(NAME_ANNOTATION)
    if name is None:
        return None
    try:
        return ImageReference.parse(name)
    except InvalidReferenceError:
        return None


def _named(entry: Descriptor, reference: ImageReference | None) -> Descriptor:
    kept = {name: value for name, value in (entry.annotations or {}).items() if name == PULLED_DIGEST_ANNOTATION}
    if reference is not None:
        kept |= {NAME_ANNOTATION: str(reference), REF_NAME_ANNOTATION: str(reference)}
    return msgspec.structs.replace(entry, annotations=kept or None)


def _entry_name(entry: Descriptor) -> str:
    reference = _reference(entry)
    return reference.familiar if reference else entry.digest
