"""Images in archives: those of `docker save`, of podman and OCI layouts are read; what is written is both at once.

An archive is read once, from its beginning to its end, so that it may come from a pipe. Names of files in it are looked
up and never used as paths.
"""

import io
import posixpath
import tarfile
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import IO, Any, BinaryIO

import msgspec

from trainwright.cluster.images.blobs import StoreError
from trainwright.cluster.images.formats import (
    CONFIGS,
    LARGEST_DOCUMENT,
    MANIFESTS,
    OCI_CONFIG,
    OCI_INDEX,
    OCI_LAYER,
    OCI_LAYER_GZIP,
    OCI_LAYER_ZSTD,
    Descriptor,
    FormatError,
    ImageConfig,
    Index,
    Manifest,
    Platform,
    decode_manifest_or_index,
)
from trainwright.cluster.images.layers.built import BuiltLayers
from trainwright.cluster.images.layers.decompression import DecompressionError, decompress
from trainwright.cluster.images.layers.tar_stream import TarEntry, TarError, TarStream
from trainwright.cluster.images.reference import ImageReference, InvalidReferenceError
from trainwright.cluster.images.store import NAME_ANNOTATION, REF_NAME_ANNOTATION, Image, ImageStore

_DOCKER_MANIFEST_FILE = "manifest.json"
_MOST_FILES = 100_000
_MOST_IMAGES = 1000
_MOST_LINKS = 40
_OTHER_COMPRESSIONS = {b"BZh": "bzip2", b"\xfd7zXZ": "xz"}


class ArchiveError(Exception):
    """The archive cannot be loaded; one line that says what it lacks."""


class _DockerImage(msgspec.Struct, rename="pascal"):
    """An entry of manifest.json."""

    config: str
    layers: list[str]
    repo_tags: list[str] | None = None


@dataclass
class _Contents:
    """What an archive has, by its cleaned names. Everything but links is stored as a blob."""

    blobs: dict[str, Descriptor] = field(default_factory=dict)
    heads: dict[str, bytes] = field(default_factory=dict)
    """The first bytes of each, by its digest."""
    links: dict[str, str] = field(default_factory=dict)

    def find(self, name: str) -> Descriptor | None:
        path = _clean(name)
        for _ in range(_MOST_LINKS):
            if path in self.blobs:
                return self.blobs[path]
            if path not in self.links:
                return None
            path = self.links[path]
        raise ArchiveError(f"{name[:200]!r} is a link to itself")


def load_archive(store: ImageStore, stream: BinaryIO, *, platform: Platform | None = None) -> list[Image]:
    """Stores all images of the archive, under the names that it gives them. Nothing remains after an error."""
    try:
        with store.lease():
            return _Loader(store, platform or Platform.of_this_machine()).load(stream)
    except FormatError as error:
        raise ArchiveError(f"the archive is not valid: {error}") from error
    finally:
        store.collect()


class _Loader:
    def __init__(self, store: ImageStore, platform: Platform) -> None:
        self._store = store
        self._platform = platform
        self._contents = _Contents()

    def load(self, stream: BinaryIO) -> list[Image]:
        self._read(stream)
        index = self._contents.find("index.json")
        docker = self._contents.find(_DOCKER_MANIFEST_FILE)
        plans: list[tuple[bytes, list[ImageReference]]] = []
        if index is not None:
            plans = self._plan_index(Index.decode(self._document(index)))
        # Older archives of Docker have no index.json. Newer ones may have one that names what is not in the archive.
        if not plans and docker is not None:
            plans = self._plan_docker(self._document(docker))
        if not plans:
            if index is None and docker is None:
                raise ArchiveError(
                    "this is not an archive of images: it has neither manifest.json nor index.json "
                    "(an archive of files becomes an image with ADD in a Dockerfile)"
                )
            raise ArchiveError("the archive has no image")
        # All of them are checked before the first one gets its name.
        for manifest, _ in plans:
            self._check(Manifest.decode(manifest))
        return [image for manifest, names in plans for image in self._add(manifest, names)]

    def _add(self, manifest: bytes, names: list[ImageReference]) -> Iterator[Image]:
        if not names:
            yield self._store.add_image(manifest)
        for name in names:
            yield self._store.add_image(manifest, reference=name)

    # Reading

    def _read(self, stream: BinaryIO) -> None:
        count = 0
        try:
            for entry in (tar := TarStream(_decompressed(stream))):
                count += 1
                if count > _MOST_FILES:
                    raise ArchiveError(f"the archive has more than {_MOST_FILES} files")
                self._read_entry(entry, tar)
        except (TarError, DecompressionError) as error:
            if not count and isinstance(error, TarError):
                raise ArchiveError(
                    "this is no tar archive: load reads what docker save, podman and skopeo write"
                ) from error
            raise ArchiveError(f"the archive cannot be read: {error}") from error
        if not count:
            raise ArchiveError("the archive is empty")

    def _read_entry(self, entry: TarEntry, tar: TarStream) -> None:
        name = _clean(entry.name.decode(errors="surrogateescape"))
        if entry.type in (b"1", b"2"):
            target = entry.link.decode(errors="surrogateescape")
            # A hard link names a file of the archive, a symbolic link one beside itself.
            self._contents.links[name] = _clean(
                target if entry.type == b"1" else posixpath.join(posixpath.dirname(name), target)
            )
        elif entry.type in (b"0", b"\0", b"7"):
            with self._store.writer() as writer:
                head = b""
                for piece in tar.data():
                    head = head or bytes(piece[:8])
                    writer.write(piece)
                directory, _, last = name.rpartition("/")
                if directory == "blobs/sha256" and writer.digest != f"sha256:{last}":
                    raise ArchiveError(f"{name} is damaged: its content has digest {writer.digest}")
                descriptor = writer.commit()
            self._contents.blobs[name] = descriptor
            self._contents.heads[descriptor.digest] = head

    def _document(self, descriptor: Descriptor) -> bytes:
        if descriptor.size > LARGEST_DOCUMENT:
            raise ArchiveError(f"a document of the archive has {descriptor.size} bytes, more than {LARGEST_DOCUMENT}")
        return self._store.read_document(descriptor)

    # OCI layouts

    def _plan_index(self, index: Index) -> list[tuple[bytes, list[ImageReference]]]:
        """The manifests, each with its names."""
        _check_count(index.manifests)
        plans: dict[bytes, list[ImageReference]] = {}
        for entry in index.manifests:
            data = self._manifest(entry)
            if data is not None:
                names = plans.setdefault(data, [])
                names.extend(name for name in _names_of(entry) if name not in names)
        return list(plans.items())

    def _manifest(self, entry: Descriptor, depth: int = 0) -> bytes | None:
        """The manifest, or that for the platform if the entry is an index; None if the archive does not have it."""
        blob = self._contents.find(_blob_name(entry.digest))
        if blob is None:
            return None
        data = self._document(blob)
        document = decode_manifest_or_index(data, entry.media_type)
        if isinstance(document, Manifest):
            return data
        if depth:
            raise ArchiveError("the archive has an index of indexes, which is not supported")
        present = [item for item in document.manifests if self._contents.find(_blob_name(item.digest))]
        if not present:
            return None
        return self._manifest(msgspec.structs.replace(document, manifests=present).choose(self._platform), depth=1)

    def _check(self, manifest: Manifest) -> None:
        if manifest.config.media_type and manifest.config.media_type not in CONFIGS:
            raise ArchiveError(f"this is not a container image: it is {manifest.config.media_type[:100]}")
        for blob in (manifest.config, *manifest.layers):
            if not self._store.has_layer(blob):
                raise ArchiveError(f"the archive lacks {blob.digest}, or has it with another size")
        config = ImageConfig.decode(self._document(manifest.config))
        if len(config.rootfs.diff_ids) != len(manifest.layers):
            raise ArchiveError(
                f"the image has {len(manifest.layers)} layers, but its configuration {len(config.rootfs.diff_ids)}"
            )

    # Docker's archives

    def _plan_docker(self, data: bytes) -> list[tuple[bytes, list[ImageReference]]]:
        try:
            entries = msgspec.json.decode(data, type=list[_DockerImage])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ArchiveError(f"{_DOCKER_MANIFEST_FILE} is not valid: {error}") from error
        _check_count(entries)
        _check_count([tag for entry in entries for tag in entry.repo_tags or ()])
        return [(self._docker_manifest(entry), _parsed(entry.repo_tags or ())) for entry in entries]

    def _docker_manifest(self, entry: _DockerImage) -> bytes:
        config = self._contents.find(entry.config)
        if config is None:
            raise ArchiveError(f"the archive lacks {entry.config[:200]!r}, the configuration of an image")
        known = next((image for image in self._store.images() if image.id == config.digest), None)
        if known is not None:
            # Its layers are the same, perhaps compressed.
            return self._store.read_document(known.descriptor)
        diff_ids = ImageConfig.decode(self._document(config)).rootfs.diff_ids
        if len(diff_ids) != len(entry.layers):
            raise ArchiveError(f"the image has {len(entry.layers)} layers, but its configuration {len(diff_ids)}")
        layers = [self._docker_layer(name, diff_id) for name, diff_id in zip(entry.layers, diff_ids, strict=True)]
        return Manifest.of_oci(msgspec.structs.replace(config, media_type=OCI_CONFIG), layers).encode()

    def _docker_layer(self, name: str, diff_id: str) -> Descriptor:
        layer = self._contents.find(name)
        if layer is None:
            raise ArchiveError(f"the archive lacks {name[:200]!r}, a layer of an image")
        head = self._contents.heads[layer.digest]
        if head.startswith(b"\x1f\x8b"):
            media_type = OCI_LAYER_GZIP
        elif head.startswith(b"\x28\xb5\x2f\xfd"):
            media_type = OCI_LAYER_ZSTD
        else:
            media_type = OCI_LAYER
            if layer.digest != diff_id:
                raise ArchiveError(f"layer {name[:200]!r} is damaged: its content is {layer.digest}, not {diff_id}")
        return msgspec.structs.replace(layer, media_type=media_type)


# Writing


def save_archive(store: ImageStore, images: Sequence[Image], stream: BinaryIO) -> None:
    """Writes an OCI layout that is also an archive of `docker save`. The same images give the same bytes."""
    with store.lease():
        names: dict[str, list[ImageReference]] = {}
        distinct: dict[str, Image] = {}
        for image in images:
            distinct[image.descriptor.digest] = image
            known = names.setdefault(image.descriptor.digest, [])
            if image.reference is not None and image.reference.tag and image.reference not in known:
                known.append(image.reference)
        blobs = {blob.digest: blob for image in distinct.values() for blob in image.blobs}
        for digest, image in distinct.items():
            for blob in image.blobs:
                if not store.has_layer(blob):
                    name = names[digest][0].familiar if names[digest] else digest
                    raise StoreError(f"{blob.digest} of image {name} is missing: build, pull or load it again")
        with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            _add_directory(archive, "blobs")
            _add_directory(archive, "blobs/sha256")
            for _, blob in sorted(blobs.items()):
                member = tarfile.TarInfo(_blob_name(blob.digest))
                member.size = blob.size
                with _open(store, blob) as file:
                    archive.addfile(member, file)
            _add_file(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
            _add_file(archive, "index.json", _index_of(distinct.values(), names))
            _add_file(archive, _DOCKER_MANIFEST_FILE, _docker_index_of(distinct.values(), names))


def _open(store: ImageStore, blob: Descriptor) -> AbstractContextManager[IO[bytes]]:
    if store.has_blob(blob.digest):
        return store.blob_path(blob.digest).open("rb")
    return BuiltLayers(store).open(blob)


def _index_of(images: Iterable[Image], names: dict[str, list[ImageReference]]) -> bytes:
    entries = []
    for image in images:
        bare = Descriptor(
            media_type=image.manifest.media_type or MANIFESTS[0],
            digest=image.descriptor.digest,
            size=image.descriptor.size,
        )
        for name in names[image.descriptor.digest]:
            annotations = {NAME_ANNOTATION: str(name), REF_NAME_ANNOTATION: str(name)}
            entries.append(msgspec.structs.replace(bare, annotations=annotations))
        if not names[image.descriptor.digest]:
            entries.append(bare)
    return Index(schema_version=2, media_type=OCI_INDEX, manifests=entries).encode()


def _docker_index_of(images: Iterable[Image], names: dict[str, list[ImageReference]]) -> bytes:
    entries = [
        {
            "Config": _blob_name(image.id),
            "RepoTags": [name.familiar for name in names[image.descriptor.digest]] or None,
            "Layers": [_blob_name(layer.digest) for layer in image.manifest.layers],
        }
        for image in images
    ]
    return msgspec.json.encode(entries)


def _add_directory(archive: tarfile.TarFile, name: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode = tarfile.DIRTYPE, 0o755
    archive.addfile(member)


def _add_file(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


# Names


def _clean(name: str) -> str:
    return posixpath.normpath(f"/{name}").lstrip("/")


def _blob_name(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _check_count(images: Sized) -> None:
    if len(images) > _MOST_IMAGES:
        raise ArchiveError(f"the archive has {len(images)} images, more than {_MOST_IMAGES}")


def _names_of(entry: Descriptor) -> list[ImageReference]:
    annotations = entry.annotations or {}
    name = annotations.get(NAME_ANNOTATION)
    if name is None:
        name = annotations.get(REF_NAME_ANNOTATION, "")
        # Some tools write the tag alone.
        if name == "latest":
            name = ""
    return _parsed([name])


def _parsed(names: Iterable[str]) -> list[ImageReference]:
    """Without those that are no names: the images are then loaded without one."""
    found = []
    for name in names:
        try:
            found.append(ImageReference.parse(name))
        except InvalidReferenceError:
            continue
    return found


def _decompressed(stream: Any) -> Iterator[bytes]:
    peeked = stream if hasattr(stream, "peek") else io.BufferedReader(stream)
    head = peeked.peek(6)[:6]
    for magic, compression in _OTHER_COMPRESSIONS.items():
        if head.startswith(magic):
            raise ArchiveError(f"the archive is compressed with {compression}: decompress it first")
    return decompress(peeked)
