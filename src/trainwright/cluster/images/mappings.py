"""What image names mean on this machine: another image, or a Python on the machine's own files."""

from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from trainwright.atomic_files import write_atomically
from trainwright.cluster.images.blobs import StoreError
from trainwright.cluster.images.reference import ImageReference, InvalidReferenceError

_FILE = "mappings.json"


class ImageMapping(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pattern: str
    """The name of an image, in which `*` stands for any characters."""
    python: str = ""
    image: str = ""

    def matches(self, name: str) -> bool:
        """By the name as it was written, or by the full one; a pattern without a tag is for all tags."""
        names = [name]
        try:
            reference = ImageReference.parse(name)
            names += [str(reference), reference.familiar, reference.name, reference.familiar_name]
        except InvalidReferenceError:
            pass
        return any(fnmatchcase(form, self.pattern) for form in names)


class ImageMappings:
    """A file in the directory of the store."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _FILE

    def all(self) -> list[ImageMapping]:
        """In the order in which they were made."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=list[ImageMapping])
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError) as error:
            raise StoreError(f"{self._path} cannot be read: {error}; remove it to begin without mappings") from error

    def find(self, name: str) -> ImageMapping | None:
        """A mapping of the exact name counts before patterns, and a later one before an earlier one."""
        found = [mapping for mapping in self.all() if mapping.matches(name)]
        exact = [mapping for mapping in found if "*" not in mapping.pattern]
        return (exact or found)[-1] if found else None

    def add(self, mapping: ImageMapping) -> None:
        """In place of one with the same pattern."""
        self._write([*(known for known in self.all() if known.pattern != mapping.pattern), mapping])

    def remove(self, pattern: str) -> bool:
        kept = [known for known in self.all() if known.pattern != pattern]
        removed = len(kept) < len(self.all())
        if removed:
            self._write(kept)
        return removed

    def _write(self, mappings: list[ImageMapping]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(self._path, msgspec.json.encode(mappings) + b"\n")
