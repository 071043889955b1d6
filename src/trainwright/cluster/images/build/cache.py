"""The cache of builds: what an instruction made of a state, by a key that stands for everything that it depends on.

An entry is of use only while the store has its layers; `image prune` deletes layers that no image needs.
"""

import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec

from trainwright.cluster.images.formats import Descriptor
from trainwright.cluster.images.store import ImageStore

_FORMAT = "1"
_MOST_ENTRIES = 5000


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
