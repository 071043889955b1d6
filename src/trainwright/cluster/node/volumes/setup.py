"""Sets up volumes on the disk: creates directories, writes the files of ConfigMaps and Secrets, checks host paths."""

import stat
from pathlib import Path

from trainwright.cluster.node.volumes.sources import Volume

_FILE_TYPES = {
    "Directory": (stat.S_ISDIR, "directory"),
    "File": (stat.S_ISREG, "file"),
    "Socket": (stat.S_ISSOCK, "socket"),
    "CharDevice": (stat.S_ISCHR, "character device"),
    "BlockDevice": (stat.S_ISBLK, "block device"),
}


def set_up(volume: Volume) -> str | None:
    """None if the volume is ready, else what is wrong; the caller tries again."""
    try:
        return _set_up(volume)
    except OSError as error:
        return f"{error.strerror}: {error.filename}"
    except ValueError as error:  # a zero byte in the path
        return f"{error}: {volume.path!r}"


def _set_up(volume: Volume) -> str | None:
    path = Path(volume.path)
    if volume.host_path_type is not None:
        return _check_host_path(path, volume.host_path_type)
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


def _check_host_path(path: Path, host_path_type: str) -> str | None:
    if host_path_type in {"", "DirectoryOrCreate"} and not path.exists():
        path.mkdir(parents=True)
    elif host_path_type == "FileOrCreate" and not path.exists():
        path.touch()
    expected = _FILE_TYPES.get(host_path_type.removesuffix("OrCreate"))
    if expected is None and host_path_type:
        return f"hostPath.type {host_path_type!r} is unknown"
    if not path.exists():
        return f"hostPath {path} does not exist: create it on this machine, or correct hostPath.path"
    if expected is not None and not expected[0](path.stat().st_mode):
        return f"hostPath {path} is not a {expected[1]}: correct hostPath.path or hostPath.type"
    return None
