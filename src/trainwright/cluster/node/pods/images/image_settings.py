"""Where the images of pods come from."""

from dataclasses import dataclass
from pathlib import Path

UNKNOWN_IMAGES = ("host", "pull", "refuse")
"""What happens to a pod whose image this machine does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSettings:
    directory: Path
    """Of the store."""
    unknown: str = "host"
    """One of UNKNOWN_IMAGES."""
    registries: frozenset[str] = frozenset()
    """Registries from which images are pulled without a login."""
