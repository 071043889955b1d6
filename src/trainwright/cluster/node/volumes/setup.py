"""Sets up volumes on the disk: creates directories, writes the files of ConfigMaps and Secrets, checks host paths."""

import os
import stat
from collections.abc import Collection
from pathlib import Path

from trainwright.cluster.node.volumes.atomic_writer import write_files
from trainwright.cluster.node.volumes.sources import Volume, is_provisioned

_FILE_TYPES = {
    "Directory": (stat.S_ISDIR, "directory"),
    "File": (stat.S_ISREG, "file"),
    "Socket": (stat.S_ISSOCK, "socket file"),
    "CharDevice": (stat.S_ISCHR, "character device"),
    "BlockDevice": (stat.S_ISBLK, "block device"),
}


def set_up(volume: Volume, *, hidden: Collection[str] = (), provisioned: str | None = None) -> str | None:
    """None if the volume is ready, else what is wrong; the caller tries again.

    Of the `hidden` directories pods can mount only the volumes in `provisioned`.
    """
    try:
        if volume.host_path_type is not None and not is_provisioned(volume, provisioned):
            real = os.path.realpath(volume.path)
            if any(real == path or real.startswith(f"{path}/") for path in hidden):
                return f"hostPath {volume.path} is in a directory of the cluster, which pods do not see"
        return _set_up(volume)
    except OSError as error:
        return f"{error.strerror}: {error.filename}"
    except ValueError as error:  # a zero byte in the path
        return f"{error}: {volume.path!r}"


def _set_up(volume: Volume) -> str | None:
    path = Path(volume.path)
    if volume.host_path_type is not None:
        return _check_host_path(path, volume.host_path_type)
    if volume.files is not None:
        write_files(path, volume.files, group=volume.group)
        return None
    path.mkdir(parents=True, exist_ok=True)
    if volume.nfs is not None:
        return None
    if volume.group is not None:
        os.chown(path, -1, volume.group)
    # An emptyDir is for every user of the pod; the pod's directory above it is private.
    path.chmod(0o777 if volume.group is None else 0o2777)
    return None


def _check_host_path(path: Path, host_path_type: str) -> str | None:
    """Creates what `type` allows to create. The words are the kubelet's, and what to do."""
    if host_path_type in {"", "DirectoryOrCreate"} and not path.exists():
        path.mkdir(mode=0o755, parents=True)
    elif host_path_type == "FileOrCreate" and not path.exists():
        path.touch(mode=0o644)
    expected = _FILE_TYPES.get(host_path_type.removesuffix("OrCreate"))
    if expected is None:
        return f"{host_path_type} is an invalid volume type" if host_path_type else None
    if path.exists() and expected[0](path.stat().st_mode):
        return None
    advice = "correct hostPath.path or hostPath.type" if path.exists() else "create it, or correct hostPath.path"
    return f"hostPath type check failed: {path} is not a {expected[1]}: {advice}"
