"""NFS volumes: mounted by root, or replaced by a directory of this machine that the user maps to the export. Pure."""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwright.cluster.node.volumes.files import UnsupportedVolumeError

_SERVER = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9._:%\[\]-]{0,252}")
"""It must not begin like an option of mount.nfs."""
_DEFAULT_OPTIONS = "retry=0"
"""One attempt: the pod tries again by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NfsSupport:
    """What this node can do about NFS."""

    mappings: Mapping[str, str] = field(default_factory=dict)
    """`SERVER:/PATH` -> directory of this machine."""
    program: str | None = None
    """The path of mount.nfs; None if this node cannot mount."""
    reason: str = "only root can mount it"
    """Why it cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NfsMount:
    source: str
    options: str


def mapped_directory(server: str, path: str, mappings: Mapping[str, str]) -> str | None:
    """The directory for an export, or below that of the longest mapped path above it."""
    wanted = posixpath.normpath(path)
    for above in (wanted, *_parents(wanted)):
        if (directory := mappings.get(f"{server}:{above}")) is not None:
            return posixpath.normpath(posixpath.join(directory, posixpath.relpath(wanted, above)))
    return None


def nfs_mount(server: str, path: str, options: list[str], support: NfsSupport) -> NfsMount:
    """Raises UnsupportedVolumeError, with what to do."""
    if not _SERVER.fullmatch(server):
        raise UnsupportedVolumeError(f"nfs.server {server[:100]!r} is neither a name nor an address")
    source = f"{server}:{posixpath.normpath(path)}"
    if support.program is None:
        raise UnsupportedVolumeError(
            f"this node cannot mount {source}: {support.reason}. Have it mounted on this machine, and start the "
            f"cluster with `trainwright up --map-nfs {source}=DIRECTORY`"
        )
    given = any(option.partition("=")[0] == "retry" for option in options)
    return NfsMount(source=source, options=",".join(options if given else [*options, _DEFAULT_OPTIONS]))


def _parents(path: str) -> list[str]:
    found = []
    while path != "/":
        path = posixpath.dirname(path)
        found.append(path)
    return found
