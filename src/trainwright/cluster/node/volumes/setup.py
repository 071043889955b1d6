"""Makes on the disk what `resolve` decided: directories of volumes, files of ConfigMaps, checks of the host's paths."""

import os
import stat
from pathlib import Path

from trainwright.cluster.node.pods.runtime_config import (
    Problem,
    Resolved,
)
from trainwright.cluster.node.volumes.sources import Volume
from trainwright.objects.node_annotations import DIRECTORY, PYTHON

_EXPECTED = {
    "Directory": (stat.S_ISDIR, "directory"),
    "File": (stat.S_ISREG, "file"),
    "Socket": (stat.S_ISSOCK, "socket"),
    "CharDevice": (stat.S_ISCHR, "character device"),
    "BlockDevice": (stat.S_ISBLK, "block device"),
}


def prepare(resolved: Resolved) -> tuple[Problem, ...]:
    """Whatever fails becomes a problem that the pod shows; it is tried again."""
    problems = []
    if not os.access(resolved.python, os.X_OK):
        text = f"the pod's Python {resolved.python} is not there or not executable: correct {PYTHON}"
        problems.append(Problem(reason="PythonNotFound", message=text))
    if resolved.shared_directory and not Path(resolved.shared_directory).is_dir():
        text = f"annotation {DIRECTORY}: {resolved.shared_directory} is not a directory on this machine"
        problems.append(Problem(reason="DirectoryNotFound", message=text))
    for volume in resolved.volumes:
        try:
            trouble = _make(volume)
        except OSError as error:
            trouble = f"{error.strerror}: {error.filename}"
        except ValueError as error:  # a zero byte in the path
            trouble = f"{error}: {volume.path!r}"
        if trouble:
            problems.append(Problem(reason="FailedMount", message=f'volume "{volume.name}": {trouble}'))
    return tuple(problems) or _make_mount_sources(resolved)


def _make(volume: Volume) -> str | None:
    path = Path(volume.path)
    if volume.host_type is not None:
        return _check_host_path(path, volume.host_type)
    path.mkdir(parents=True, exist_ok=True)
    if volume.files is None:
        path.chmod(0o777)  # an emptyDir is for every user of the pod; the pod's directory above it is private
        return None
    for name, file in volume.files.items():
        target = path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode)
    return None


def _check_host_path(path: Path, host_type: str) -> str | None:
    if host_type in {"", "DirectoryOrCreate"} and not path.exists():
        path.mkdir(parents=True)
    elif host_type == "FileOrCreate" and not path.exists():
        path.touch()
    wanted = _EXPECTED.get(host_type.removesuffix("OrCreate"))
    if wanted is None and host_type:
        return f"hostPath.type {host_type!r} is unknown"
    if not path.exists():
        return f"hostPath {path} does not exist"
    if wanted is not None and not wanted[0](path.stat().st_mode):
        return f"hostPath {path} is not a {wanted[1]}"
    return None


def _make_mount_sources(resolved: Resolved) -> tuple[Problem, ...]:
    """Directories that `subPath` names within volumes."""
    problems = []
    for container in [*resolved.pod["initContainers"], *resolved.pod["containers"]]:
        for mount in container["mounts"]:
            source = Path(mount["source"])
            try:
                if not source.exists():
                    source.mkdir(parents=True)
            except (OSError, ValueError) as error:
                text = f"{str(source)!r}: {getattr(error, 'strerror', error)}"
                problems.append(Problem(reason="FailedMount", message=text, container=container["name"]))
    return tuple(problems)
