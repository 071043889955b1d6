"""The size of emptyDir volumes on the disk, which `sizeLimit` limits: a pod that exceeds it is evicted."""

import os
from collections.abc import Iterator
from math import ceil
from pathlib import Path

from trainwright.cluster.linux.trees import walk
from trainwright.objects import Object
from trainwright.objects.quantities import parse_quantity

EVICTED = "Evicted"
GRACE_SECONDS = 1.0
"""As the kubelet gives a pod that it evicts at once."""


def limited_volumes(pod: Object, *, has_tmpfs: bool) -> Iterator[tuple[str, str]]:
    """Name and limit. A tmpfs has its size from the beginning. Pure."""
    for volume in pod["spec"].get("volumes") or ():
        empty = volume.get("emptyDir") or {}
        if empty.get("sizeLimit") and not (has_tmpfs and empty.get("medium") == "Memory"):
            yield str(volume["name"]), str(empty["sizeLimit"])


def exceeded_limit(volumes: list[tuple[str, str]], directory: Path) -> str:
    """The kubelet's message about the first volume in `directory` that is larger than its limit; empty if none is.

    Reads the disk, so not for the event loop.
    """
    for name, limit in volumes:
        if _used_bytes(directory / name) > ceil(parse_quantity(limit)):
            return f'Usage of EmptyDir volume "{name}" exceeds the limit "{limit}". '
    return ""


def _used_bytes(directory: Path) -> int:
    """Blocks on the disk; a file with several names counts once."""
    total, seen = 0, set()
    for parent, _, names in walk(str(directory)):
        for path in (parent, *(f"{parent}/{name}" for name in names)):
            try:
                found = os.lstat(path)
            except OSError:
                continue  # it has just been deleted
            if found.st_nlink == 1 or (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                total += found.st_blocks * 512
    return total
