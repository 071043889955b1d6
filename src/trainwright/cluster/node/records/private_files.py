"""The private files of a pod: what its programs wrote to places that only they could see, and that users may miss.

They stay in the directory of the pod, on the host's disk, until the job is deleted.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from trainwright.cluster.node.supervisor.files import read_pod
from trainwright.cluster.node.supervisor.sandbox.private_layers import files_below, find_private_files

_MAX_FILES = 1000
"""The most files of one run of a container, or of one volume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateFile:
    """A file that a program wrote to a place that only its pod could see."""

    container: str
    path: str
    """As the program saw it."""
    size: int
    source: Path
    """Where it is now."""
    volume: str = ""
    """The emptyDir volume that it is in, which is deleted with the Pod object; empty for files outside of volumes."""


def read_private_files(directory: Path) -> tuple[PrivateFile, ...]:
    """The private files in the directory of a pod. Of a file that several runs of a container wrote the last counts."""
    if not directory.exists():
        directory = directory.parents[1] / "removed" / directory.name  # the Pod object has been deleted meanwhile
    found: dict[tuple[str, str], PrivateFile] = {}
    for container, scratch in _scratches(directory):
        for path, size, source in islice(find_private_files(str(scratch)), _MAX_FILES):
            found[container, path] = PrivateFile(container=container, path=path, size=size, source=Path(source))
    for file in _in_volumes(directory):
        found.setdefault((file.container, file.path), file)
    return tuple(sorted(found.values(), key=lambda file: (file.container, file.path)))


def _scratches(directory: Path) -> list[tuple[str, Path]]:
    """Container and scratch directory of each run, the last run of a container last."""
    try:
        paths = list((directory / "scratch").iterdir())
    except FileNotFoundError:
        return []
    names = {path: path.name.rpartition("-") for path in paths}
    return [(names[path][0], path) for path in sorted(paths, key=lambda path: int(names[path][2]))]


def _in_volumes(directory: Path) -> Iterator[PrivateFile]:
    """The files in emptyDir volumes: the only writable ones in the directory of the pod."""
    volumes = f"{directory}/volumes/"
    pod = read_pod(str(directory))
    if pod is None:
        return
    seen = set()
    for container in (*pod["containers"], *pod.get("initContainers", ())):
        for mount in container["mounts"]:
            place = mount["source"]
            if not place.startswith(volumes) or mount["readOnly"] or place in seen:
                continue
            seen.add(place)
            volume = os.path.relpath(place, volumes).partition("/")[0]
            for path, size, source in islice(files_below(place, mount["target"]), _MAX_FILES):
                name = container["name"]
                yield PrivateFile(container=name, path=path, size=size, source=Path(source), volume=volume)
