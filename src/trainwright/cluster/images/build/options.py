"""What a user asks of a build."""

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.cluster.images.formats import Platform
from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.store import Image

DEFAULT_SSH = "default"
"""The id of the SSH agent that a mount means without one."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No registry could be asked for an image."""

    cause: str


Pull = Callable[[ImageReference, Platform], Image | Unreachable]
"""Pulls an image into the store. Raises BuildError if the registry refuses."""


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    dockerfile: Path
    context: Path
    tags: Sequence[ImageReference] = ()
    build_args: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """What `RUN --mount=type=secret` shows, by id. They are in memory alone, and no part of image or cache."""
    ssh: Mapping[str, str] = field(default_factory=dict)
    """The sockets of SSH agents for `RUN --mount=type=ssh`, by id."""
    network: str = "default"
    """That of RUN lines which do not say another one: the network of this machine, or `none`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the image, beside those of the Dockerfile."""
    target: str = ""
    platform: Platform = field(default_factory=Platform.of_this_machine)
    no_cache: bool = False
    pull: bool = False
    """Ask registries for images that the store has."""
    strict: bool = False
    """Refuse to use the host's files in place of an image."""
    skip_run: Sequence[str] = ()
    """Patterns of commands of RUN that are not executed."""
    python: Path | None = None
    """The Python of images over the host's files."""
    hidden: Sequence[str] = ()
    """Files and directories of this machine that programs of the build must not see."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for programs that run on the host's files, such as the index of pip; they are no part of the image."""
    is_root: bool = True
    """False for an ordinary user, who is root only inside of containers."""
    created: str = ""
    """The time of the image, as RFC 3339; empty: the time of the build."""

    def skips(self, command: str) -> bool:
        text = " ".join(command.split())
        return any(fnmatch.fnmatchcase(text, pattern) for pattern in self.skip_run)
