"""Finds files of pods on this machine: in a running container, in its private layers, in its volumes or on the host.

Private files are those that a container has written to its private layers. Paths are as the program saw them.
"""

import errno
import os
import posixpath
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from trainwright.cluster.linux.hidden_directories import HiddenDirectories
from trainwright.cluster.linux.mounts import is_below
from trainwright.cluster.linux.safe_paths import open_beneath
from trainwright.cluster.linux.trees import walk
from trainwright.cluster.node.pod_processes import running_containers
from trainwright.cluster.node.supervisor.files import read_pod
from trainwright.cluster.node.supervisor.pod_json import MountJson, PodJson
from trainwright.cluster.node.supervisor.sandbox.private_layers import files_below, find_private_files

_MAX_LINKS = 40
_MAX_FILES = 1000
"""The most files of one run of a container, or of one volume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFile:
    """A file that can be copied."""

    path: str
    """As the program saw it."""
    source: Path
    """Where it is now."""
    root: Path
    """The directory that it must not leave: a program of the pod may put a link in its place."""
    relative: str = ""
    """Its path below the directory that was searched; empty if it is the file itself."""
    hidden: tuple[str, ...] = ()
    """Paths below the root that the pod did not see."""

    def copy_to(self, target: Path) -> None:
        """With its mode and times. Raises OSError, or shutil.SameFileError."""
        descriptor = open_beneath(str(self.root), str(self.source.relative_to(self.root)))
        try:
            if self.hidden:
                HiddenDirectories(self.hidden).check(descriptor, self.path)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is no regular file")
            shutil.copy2(f"/proc/self/fd/{descriptor}", target)
        finally:
            os.close(descriptor)


def find_pod_files(directory: Path, path: str) -> list[PodFile]:
    """The file at `path` in a pod, or all files below it; empty if there is none.

    A relative path begins in the working directory of the first container.
    """
    pod = read_pod(str(directory))
    if pod is None or not pod["containers"]:
        return []
    wanted = posixpath.normpath(f"{pod['containers'][0].get('cwd', '/')}/{path}" if not path.startswith("/") else path)
    for _ in range(_MAX_LINKS):
        elsewhere = _absolute_link(pod, wanted)
        if elsewhere is None:
            break
        wanted = elsewhere
    try:
        return (
            _in_running_containers(directory, wanted)
            or _in_layers(directory, wanted)
            or _in_mounts(pod, wanted)
            or _in_image(pod, wanted)
            or _on_host(pod, wanted)
        )
    except PermissionError:  # such as a link in /proc
        return []


def _absolute_link(pod: PodJson, wanted: str) -> str | None:
    """Where an absolute link in a volume leads, as the program saw it; None if there is none on the way."""
    mount = _mount_of(pod, wanted)
    if mount is None:
        return None
    names = wanted[len(mount["target"]) :].strip("/").split("/")
    for count in range(1, len(names) + 1):
        place = Path(mount["source"], *names[:count])
        if place.is_symlink() and (target := str(place.readlink())).startswith("/"):
            return posixpath.normpath("/".join([target, *names[count:]]))
    return None


def _in_running_containers(directory: Path, wanted: str) -> list[PodFile]:
    """Through /proc/PID/root, the program's own view: volumes and layers included."""
    return _in_roots([f"/proc/{container.pid}/root" for container in running_containers(directory)], wanted)


def _in_layers(directory: Path, wanted: str) -> list[PodFile]:
    files = read_private_files(directory)
    exact = [PodFile(path=file.path, source=file.source, root=directory) for file in files if file.path == wanted]
    return exact[-1:] or [
        PodFile(path=file.path, source=file.source, root=directory, relative=posixpath.relpath(file.path, wanted))
        for file in files
        if file.path.startswith(f"{wanted}/")
    ]


def _in_mounts(pod: PodJson, wanted: str) -> list[PodFile]:
    mount = _mount_of(pod, wanted)
    if mount is None:
        return []
    source = Path(mount["source"])
    root = source if source.is_dir() else source.parent
    found = _below(source / wanted[len(mount["target"]) :].lstrip("/"), wanted, root)
    # Volumes are in the data directory, which is hidden; nothing below them is.
    hidden = tuple(path for path in pod.get("hidden", []) if is_below(path, [mount["source"]]))
    return _visible(found, hidden)


def _mount_of(pod: PodJson, wanted: str) -> MountJson | None:
    """That of a volume in which the path lies: the mount with the longest path counts."""
    mounts = [mount for container in pod["containers"] for mount in container.get("mounts", ())]
    above = [
        mount for mount in mounts if wanted == mount["target"] or wanted.startswith(f"{mount['target'].rstrip('/')}/")
    ]
    return max(above, key=lambda mount: len(mount["target"]), default=None)


def _in_image(pod: PodJson, wanted: str) -> list[PodFile]:
    """In the topmost layer that has it."""
    roots = [root for container in pod["containers"] if (root := container.get("root")) is not None]
    return _in_roots([layer for root in roots for layer in root["layers"]], wanted)


def _in_roots(roots: Iterable[str], wanted: str) -> list[PodFile]:
    """In the first of these root directories that has it."""
    for root in map(Path, roots):
        try:
            if found := _below(_resolve(root, wanted), wanted, root):
                return found
        except OSError:
            continue  # not allowed to look, or the program has ended meanwhile
    return []


def _on_host(pod: PodJson, wanted: str) -> list[PodFile]:
    """A pod on the host's files saw what is there, except for what was hidden and what it had for itself."""
    roots = [container.get("root") for container in pod["containers"]]
    if not any(root is None or root["hostFiles"] for root in roots):
        return []
    from trainwright.cluster.node.supervisor.sandbox import sandbox  # few commands need it

    private = sandbox.PRIVATE_DIRECTORIES if pod.get("sandbox") == sandbox.OVERLAY else ()
    real = os.path.realpath(wanted)
    if is_below(f"{real}/", [*private]):
        return []
    return _visible(_below(Path(real), wanted, Path("/")), pod.get("hidden", []))


def _visible(files: list[PodFile], hidden: Sequence[str]) -> list[PodFile]:
    """Those that the pod saw. Links may change: `copy_to` looks again."""
    if not hidden:
        return files
    seen = (file for file in files if not is_below(f"{os.path.realpath(file.source)}/", [*hidden]))
    return [replace(file, hidden=tuple(hidden)) for file in seen]


def _below(source: Path, path: str, root: Path) -> list[PodFile]:
    if source.is_file():
        return [PodFile(path=path, source=source, root=root)]
    found = []
    for parent, directories, names in walk(str(source)):
        directories.sort()
        for file in (Path(parent, name) for name in sorted(names)):
            if file.is_file() and not file.is_symlink():
                relative = str(file.relative_to(source))
                found.append(PodFile(path=f"{path.rstrip('/')}/{relative}", source=file, root=root, relative=relative))
    return found


def _resolve(root: Path, path: str) -> Path:
    """The path below `root`, with symbolic links resolved there: an absolute one would lead to the host's files."""
    resolved, rest, links = root, path.strip("/").split("/"), 0
    while rest:
        name = rest.pop(0)
        if name in {"", "."}:
            continue
        if name == "..":
            resolved = resolved.parent if resolved != root else root
            continue
        target = resolved / name
        if not target.is_symlink():
            resolved = target
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(f"too many symbolic links: {path}")
        link = str(target.readlink())
        resolved = root if link.startswith("/") else resolved
        rest = [*link.strip("/").split("/"), *rest]
    return resolved


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
