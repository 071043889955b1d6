"""The JSON documents of images as values: manifests, indexes and configurations of OCI and of Docker (schema 2).

Documents of others are kept byte for byte, because their digest is their name. A configuration that is read, changed
and written again keeps the fields that are not listed here.
"""

import hashlib
import platform as machine
from collections.abc import Iterable
from typing import Any, Self, TypeVar

import msgspec

from trainwright.cluster.images.reference import is_digest

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"
OCI_LAYER_GZIP = f"{OCI_LAYER}+gzip"
OCI_LAYER_ZSTD = f"{OCI_LAYER}+zstd"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"

MANIFESTS = (OCI_MANIFEST, DOCKER_MANIFEST)
INDEXES = (OCI_INDEX, DOCKER_LIST)
CONFIGS = (OCI_CONFIG, DOCKER_CONFIG)

HOST_FILES_LABEL = "dev.trainwright.host-files"
"""`"true"` on images whose first layer lies above the files of this machine."""
SKIPPED_LABEL = "dev.trainwright.skipped"
"""The RUN lines that a build has skipped, as a JSON list."""

LARGEST_DOCUMENT = 16 << 20
"""Larger manifests, indexes and configurations are refused; registries refuse manifests above 4 MiB."""

_OTHER = "(other fields)"
_SCHEMA_1 = (
    "application/vnd.docker.distribution.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v1+prettyjws",
)
_T = TypeVar("_T")


class FormatError(ValueError):
    """A document is not what an image needs; one sentence that says what it lacks."""


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Platform(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An operating system and a processor: `linux/arm64/v8`."""

    architecture: str = ""
    os: str = ""
    variant: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        os, _, rest = text.partition("/")
        architecture, _, variant = rest.partition("/")
        if not os or not architecture or "/" in variant:
            raise FormatError(f"{text!r} is not a platform: write OS/ARCHITECTURE, such as linux/amd64 or linux/arm64")
        architecture, default_variant = _ARCHITECTURES.get(architecture, (architecture, ""))
        return cls(os=os, architecture=architecture, variant=variant or default_variant)

    @classmethod
    def of_this_machine(cls) -> Self:
        return cls.parse(f"linux/{machine.machine()}")

    def runs_on(self, other: "Platform") -> bool:
        if (self.os, self.architecture) != (other.os, other.architecture):
            return False
        # arm64 and arm64/v8 are the same; an image of an older variant of arm runs on a newer processor.
        return not other.variant or not self.variant or self.variant <= other.variant

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


_ARCHITECTURES = {
    "x86_64": ("amd64", ""),
    "aarch64": ("arm64", ""),
    "armv7l": ("arm", "v7"),
    "armv6l": ("arm", "v6"),
    "i386": ("386", ""),
    "i686": ("386", ""),
}
"""The kernel's names of processors as those of images."""


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A reference to a blob: what it is, how it is named by its content, and how long it is."""

    media_type: str = ""
    digest: str
    size: int
    annotations: dict[str, str] | None = None
    platform: Platform | None = None
    urls: list[str] | None = None

    @property
    def hex(self) -> str:
        return self.digest.partition(":")[2]


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An image of one platform: its configuration and its layers, the lowest first."""

    schema_version: int = 0
    media_type: str = ""
    config: Descriptor
    layers: list[Descriptor]
    annotations: dict[str, str] | None = None

    @classmethod
    def decode(cls, data: bytes) -> Self:
        manifest = _decode(data, cls, "the manifest")
        for descriptor in (manifest.config, *manifest.layers):
            _check_descriptor(descriptor)
        return manifest

    @classmethod
    def of_oci(cls, config: Descriptor, layers: Iterable[Descriptor]) -> Self:
        return cls(schema_version=2, media_type=OCI_MANIFEST, config=config, layers=list(layers))

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


class Index(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The manifests of an image for several platforms, or those of an OCI layout."""

    schema_version: int = 0
    media_type: str = ""
    manifests: list[Descriptor]
    annotations: dict[str, str] | None = None

    @classmethod
    def decode(cls, data: bytes) -> Self:
        index = _decode(data, cls, "the index")
        for descriptor in index.manifests:
            _check_descriptor(descriptor)
        return index

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    def choose(self, platform: Platform) -> Descriptor:
        """The manifest for the platform; a platform without a variant takes the first of its architecture."""
        images = [entry for entry in self.manifests if entry.platform is None or entry.platform.os != "unknown"]
        for entry in images:
            if entry.platform == platform:
                return entry
        for entry in images:
            if entry.platform is not None and entry.platform.runs_on(platform):
                return entry
        if len(images) == 1 and images[0].platform is None:
            return images[0]
        offered = ", ".join(str(entry.platform) for entry in images if entry.platform) or "none"
        raise FormatError(f"no image for platform {platform} (it has {offered}); choose one with --platform")


class RunConfig(msgspec.Struct, kw_only=True, rename="pascal", omit_defaults=True):
    """What the image says about its processes."""

    user: str = ""
    exposed_ports: dict[str, dict[str, Any]] = {}
    env: list[str] = []
    entrypoint: list[str] | None = None
    cmd: list[str] | None = None
    volumes: dict[str, dict[str, Any]] = {}
    working_dir: str = ""
    labels: dict[str, str] = {}
    stop_signal: str = ""
    shell: list[str] | None = None
    healthcheck: dict[str, Any] | None = None
    on_build: list[str] = []
    other: dict[str, Any] = msgspec.field(default={}, name=_OTHER)
    """Fields that are not listed here, by their names in JSON."""


class RootFs(msgspec.Struct, kw_only=True):
    type: str = "layers"
    diff_ids: list[str] = []
    """The digests of the uncompressed layers, the lowest first."""


class History(msgspec.Struct, kw_only=True, omit_defaults=True):
    created: str = ""
    created_by: str = ""
    author: str = ""
    comment: str = ""
    empty_layer: bool = False


class ImageConfig(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The configuration of an image; its digest is the image's ID."""

    created: str = ""
    author: str = ""
    architecture: str = ""
    os: str = ""
    variant: str = ""
    config: RunConfig = msgspec.field(default_factory=RunConfig)
    rootfs: RootFs = msgspec.field(default_factory=RootFs)
    history: list[History] = []
    other: dict[str, Any] = msgspec.field(default={}, name=_OTHER)
    """Fields that are not listed here, by their names in JSON."""

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = _without_nulls(_decode(data, dict[str, Any], "the configuration"))
        if isinstance(fields.get("config"), dict):
            fields["config"] = _with_others(_without_nulls(fields["config"]), RunConfig)
        if isinstance(fields.get("history"), list):
            fields["history"] = [_without_nulls(item) if isinstance(item, dict) else item for item in fields["history"]]
        if isinstance(fields.get("rootfs"), dict):
            fields["rootfs"] = _without_nulls(fields["rootfs"])
        try:
            config = msgspec.convert(_with_others(fields, cls), cls)
        except msgspec.ValidationError as error:
            raise FormatError(f"the configuration is not one of an image: {error}") from error
        for diff_id in config.rootfs.diff_ids:
            if not is_digest(diff_id):
                raise FormatError(f"the configuration names a layer {diff_id[:80]!r}, which is not a digest")
        return config

    def encode(self) -> bytes:
        document = _flattened(msgspec.to_builtins(self))
        document["config"] = _flattened(document.get("config", {}))
        document.setdefault("rootfs", {"type": "layers", "diff_ids": []})
        return msgspec.json.encode(document)

    @property
    def platform(self) -> Platform:
        return Platform(os=self.os, architecture=self.architecture, variant=self.variant)

    @property
    def uses_host_files(self) -> bool:
        return self.config.labels.get(HOST_FILES_LABEL) == "true"


def decode_manifest_or_index(data: bytes, media_type: str) -> Manifest | Index:
    """The document by its own media type, else by `media_type` of the descriptor or response, else by its fields."""
    fields = _decode(data, dict[str, Any], "the manifest")
    own = fields.get("mediaType") or media_type.partition(";")[0].strip()
    if str(own).startswith(_SCHEMA_1) or fields.get("schemaVersion") == 1:
        raise FormatError("the manifest has Docker's old schema 1, which is not supported: push the image again")
    if own in INDEXES or (own not in MANIFESTS and "manifests" in fields):
        return Index.decode(data)
    return Manifest.decode(data)


def _check_descriptor(descriptor: Descriptor) -> None:
    if not is_digest(descriptor.digest):
        raise FormatError(f"it names a blob {descriptor.digest[:80]!r}, which is not a digest")
    if descriptor.size < 0:
        raise FormatError(f"it says that {descriptor.digest} has {descriptor.size} bytes")


def _decode(data: bytes, type_: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(data, type=type_)
    except msgspec.ValidationError as error:
        raise FormatError(f"{what} is not valid: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"{what} is not JSON: {error}") from error


def _without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    """Docker writes null for what is not set."""
    return {name: value for name, value in fields.items() if value is not None}


def _with_others(fields: dict[str, Any], type_: type[msgspec.Struct]) -> dict[str, Any]:
    known = {field.encode_name for field in msgspec.structs.fields(type_)}
    own = {name: value for name, value in fields.items() if name in known and name != _OTHER}
    return own | {_OTHER: {name: value for name, value in fields.items() if name not in own}}


def _flattened(document: dict[str, Any]) -> dict[str, Any]:
    other: dict[str, Any] = document.get(_OTHER, {})
    return {name: value for name, value in document.items() if name != _OTHER} | other
