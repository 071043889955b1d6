"""Sets up volumes on the disk: creates directories, writes the files of ConfigMaps and Secrets, checks host paths."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from trainwright.cluster.linux.hidden_directories import HiddenDirectories
from trainwright.cluster.linux.mounts import read_mounts
from trainwright.cluster.node.supervisor.sandbox.volume_mounts import is_of_kernel
from trainwright.cluster.node.volumes.atomic_writer import write_files
from trainwright.cluster.node.volumes.sources import Volume

_FILE_TYPES = {
    "Directory": (stat.S_ISDIR, "directory"),
    "File": (stat.S_ISREG, "file"),
    "Socket": (stat.S_ISSOCK, "socket file"),
    "CharDevice": (stat.S_ISCHR, "character device"),
    "BlockDevice": (stat.S_ISBLK, "block device"),
}


def set_up(volume: Volume, hidden: HiddenDirectories) -> str | None:
    """None if the volume is ready, else what is wrong; the caller tries again.

    A path of this machine must not be in a `hidden` directory.
    """
    try:
        if volume.host_path_type is None:
            _set_up(volume)
            return None
        if volume.provisioned:
            return _check_host_path(volume.path, volume.host_path_type, HiddenDirectories((), []))
        return _check_host_path(volume.path, volume.host_path_type, hidden)
    except OSError as error:
        return f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
    except ValueError as error:  # a zero byte in the path
        return f"{error}: {volume.path!r}"


def _set_up(volume: Volume) -> None:
    path = Path(volume.path)
    if volume.files is not None:
        write_files(path, volume.files, group=volume.group)
        return
    path.mkdir(parents=True, exist_ok=True)
    if volume.nfs is not None:
        return
    if volume.group is not None:
        os.chown(path, -1, volume.group)
    # An emptyDir is for every user of the pod; the pod's directory above it is private.
    path.chmod(0o777 if volume.group is None else 0o2777)


def _check_host_path(path: str, host_path_type: str, hidden: HiddenDirectories) -> str | None:
    """Creates what `type` allows to create. The words are the kubelet's, and what to do."""
    creates = host_path_type in {"", "DirectoryOrCreate", "FileOrCreate"}
    try:
        found = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        if creates:
            _create(path, hidden, directory=host_path_type != "FileOrCreate")
            return None
        found = None
    expected = _FILE_TYPES.get(host_path_type.removesuffix("OrCreate"))
    try:
        if found is not None:
            hidden.check(found, f"hostPath {path}")
        if expected is None:
            return f"{host_path_type} is an invalid volume type" if host_path_type else None
        if found is not None and expected[0](os.fstat(found).st_mode):
            return None
    finally:
        if found is not None:
            os.close(found)
    advice = "create it, or correct hostPath.path" if found is None else "correct hostPath.path or hostPath.type"
    return f"hostPath type check failed: {path} is not a {expected[1]}: {advice}"


def _create(path: str, hidden: HiddenDirectories, *, directory: bool) -> None:
    """Step by step from what exists: a link that appears meanwhile is not followed."""
    if is_of_kernel(os.path.realpath(path), read_mounts()):
        raise OSError(errno.EACCES, f"hostPath {path} does not exist, and nothing is made among the kernel's files")
    missing: list[str] = []
    existing = path
    while not os.path.lexists(existing):
        existing, _, name = existing.rpartition("/")
        existing = existing or "/"
        missing.insert(0, name)
    if not directory and len(missing) > 1:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    step = os.open(existing, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        hidden.check(step, f"hostPath {path}")
        for name in missing if directory else ():
            with suppress(FileExistsError):  # another pod was faster
                os.mkdir(name, 0o755, dir_fd=step)
            below = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=step)
            os.close(step)
            step = below
        if not directory:
            with suppress(FileExistsError):
                os.close(os.open(missing[0], os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=step))
    finally:
        os.close(step)
