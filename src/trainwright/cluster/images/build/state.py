"""An image while it is being built, and the cache of builds: what an instruction made of a state, by a key that stands
for everything that it depends on.

An entry is of use only while the store has its layers; `image prune` deletes layers that no image needs.
"""

import hashlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from trainwright.cluster.images.formats import (
    OCI_CONFIG,
    OCI_MANIFEST,
    Descriptor,
    History,
    ImageConfig,
    Manifest,
    digest_of,
)
from trainwright.cluster.images.store import Image, ImageStore

_FORMAT = "1"
_MOST_ENTRIES = 5000


@dataclass
class BuildState:
    """The image after an instruction of a stage."""

    config: ImageConfig
    layers: list[Descriptor]
    key: str
    """Stands for everything that the state depends on."""
    origin: str = ""
    """What FROM named."""
    missing_base: str = ""
    """Why the host's files stand in for what FROM named; empty if they do not."""
    arguments: dict[str, str] = field(default_factory=dict)
    """Values of the ARGs that the stage has declared."""
    cmd_is_set: bool = False

    def next_stage(self) -> "BuildState":
        """As the base of another stage, which has its own ARGs."""
        return replace(self, config=self.config_copy(), layers=list(self.layers), arguments={}, cmd_is_set=False)

    def config_copy(self) -> ImageConfig:
        return ImageConfig.decode(self.config.encode())

    @property
    def uses_host_files(self) -> bool:
        return self.config.uses_host_files

    @property
    def short_id(self) -> str:
        return digest_of(self.config.encode()).partition(":")[2][:12]

    def as_image(self) -> Image:
        """As an image that is not in the store's index."""
        encoded = self.config.encode()
        config = Descriptor(media_type=OCI_CONFIG, digest=digest_of(encoded), size=len(encoded))
        manifest = Manifest.of_oci(config, self.layers)
        data = manifest.encode()
        return Image(
            None, Descriptor(media_type=OCI_MANIFEST, digest=digest_of(data), size=len(data)), manifest, self.config
        )

    def add_layer(self, layer: Descriptor) -> None:
        """One that was built here: its digest is that of its uncompressed content."""
        self.layers.append(layer)
        self.config.rootfs.diff_ids = [*self.config.rootfs.diff_ids, layer.digest]

    def add_history(self, created: str, created_by: str, *, empty_layer: bool) -> None:
        self.config.created = created
        entry = History(created=created, created_by=created_by, empty_layer=empty_layer)
        self.config.history = [*self.config.history, entry]


class CacheEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    config: bytes
    """The configuration of the image after the instruction, encoded."""
    layers: list[Descriptor]


def cache_key(parent: str, *parts: Any) -> str:
    """`parts` are what the instruction depends on besides the state before it."""
    return hashlib.sha256(msgspec.json.encode([_FORMAT, parent, *parts])).hexdigest()


class BuildCache:
    def __init__(self, store: ImageStore) -> None:
        self._store = store
        self._directory: Path = store.directory / "build-cache"

    def find(self, key: str) -> CacheEntry | None:
        try:
            entry = msgspec.json.decode((self._directory / key).read_bytes(), type=CacheEntry)
        except (OSError, msgspec.MsgspecError):
            return None
        is_whole = all(self._store.has_layer(layer) for layer in entry.layers)
        return entry if is_whole else None

    def add(self, key: str, entry: CacheEntry) -> None:
        """Without waiting for the disk: a broken entry is as good as none."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self._directory / f".{key}.{os.getpid()}"
        temporary.write_bytes(msgspec.json.encode(entry))
        temporary.replace(self._directory / key)

    def trim(self) -> None:
        """Removes entries whose layers are gone, and the oldest if there are too many."""
        try:
            entries = sorted(self._directory.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        except OSError:
            return
        for number, path in enumerate(entries):
            if number >= _MOST_ENTRIES:
                path.unlink(missing_ok=True)
