"""Sets up a pod on the disk for its supervisor: volumes, the sources of mounts and, last, its configuration."""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from trainwright.cluster.linux.hidden_directories import HiddenDirectories
from trainwright.cluster.linux.mounts import read_mounts
from trainwright.cluster.linux.safe_paths import open_beneath
from trainwright.cluster.node.pods.config.pod_context import HOSTNAME_FILE, installation
from trainwright.cluster.node.pods.config.runtime_config import RuntimeConfig, WaitingReason
from trainwright.cluster.node.pods.pod_directory import PodDirectory
from trainwright.cluster.node.supervisor.sandbox.sandbox import PLAIN
from trainwright.cluster.node.supervisor.sandbox.volume_mounts import is_of_kernel
from trainwright.cluster.node.volumes.atomic_writer import write_files
from trainwright.cluster.node.volumes.sources import Volume, mount_failure
from trainwright.objects.node_annotations import DIRECTORY, PYTHON

_FILE_TYPES = {
    "Directory": (stat.S_ISDIR, "directory"),
    "File": (stat.S_ISREG, "file"),
    "Socket": (stat.S_ISSOCK, "socket file"),
    "CharDevice": (stat.S_ISCHR, "character device"),
    "BlockDevice": (stat.S_ISBLK, "block device"),
}


def set_up_pod(
    directory: PodDirectory, config: RuntimeConfig, find_hidden: Callable[[], Iterable[str]]
) -> tuple[WaitingReason, ...]:
    """Returns why the pod has to wait, nothing if it is set up. Can be repeated.

    `find_hidden` finds the directories that the pod must not see.
    """
    hidden = list(find_hidden())
    directory.create()
    _make_termination_files(config)
    (directory.path / HOSTNAME_FILE).write_text(f"{config.pod_json['hostname']}\n")
    waiting = tuple(_failures(config, hidden)) or tuple(_make_mount_sources(config))
    if not waiting:
        directory.write_runtime_config({**config.pod_json, "hidden": hidden})
    return waiting


def _failures(config: RuntimeConfig, hidden_paths: list[str]) -> Iterator[WaitingReason]:
    if config.python is not None and not os.access(config.python, os.X_OK):
        text = f"Python {config.python} does not exist or is not executable: correct annotation {PYTHON}"
        yield WaitingReason(reason="PythonNotFound", message=text)
    if config.shared_directory and not Path(config.shared_directory).is_dir():
        text = f"annotation {DIRECTORY}: {config.shared_directory} is not a directory on this machine"
        yield WaitingReason(reason="DirectoryNotFound", message=text)
    hidden = HiddenDirectories(hidden_paths)
    for volume in config.volumes:
        if failure := set_up(volume, hidden):
            yield WaitingReason(reason="FailedMount", message=mount_failure(volume.name, failure))
    for name, path in {PYTHON: config.python, DIRECTORY: config.shared_directory}.items():
        if path and _is_hidden(path, hidden):
            text = f"annotation {name}: {path} is in a directory of the cluster, which pods do not see"
            yield WaitingReason(reason="InvalidAnnotation", message=text)


def _is_hidden(path: str, hidden: HiddenDirectories) -> bool:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return hidden.contain(descriptor)
    finally:
        os.close(descriptor)


def _make_termination_files(config: RuntimeConfig) -> None:
    for container in [*config.pod_json["initContainers"], *config.pod_json["containers"]]:
        path = Path(container["terminationMessage"]["file"])
        path.parent.mkdir(exist_ok=True)
        path.touch()


def _make_mount_sources(config: RuntimeConfig) -> Iterator[WaitingReason]:
    """At `plain`: creates the directories that `subPath` names within volumes. At `overlay` the sandbox does it when
    the container starts. A link that another container has made there must not lead out of the volume."""
    if config.pod_json["sandbox"] != PLAIN:
        return
    for container in [*config.pod_json["initContainers"], *config.pod_json["containers"]]:
        for mount in container["mounts"]:
            volume, source = mount.get("volume"), mount["source"]
            if volume is None or volume == source:
                continue
            try:
                os.close(open_beneath(volume, os.path.relpath(source, volume), create=True))
            except (OSError, ValueError) as error:
                where = f'volumeMount "{mount["name"]}" of container "{container["name"]}"'
                text = f"failed to prepare subPath for {where}: {getattr(error, 'strerror', None) or error}"
                yield WaitingReason(reason="CreateContainerConfigError", message=text, container=container["name"])


def make_shared_memory(directory: Path) -> None:
    """That of a namespace; for all users of its containers. The one above it, which other users of this machine can
    see, must be closed to them."""
    with contextlib.suppress(FileExistsError):
        directory.parent.mkdir(mode=0o700)
    status = directory.parent.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "it belongs to another user, or is open to others", str(directory.parent))
    directory.mkdir(exist_ok=True)
    directory.chmod(0o1777)


def find_installations(python: str) -> tuple[str, ...]:
    """The directory of a virtual environment and that of the Python behind it, or that of an installation."""
    return tuple(dict.fromkeys(installation(path) for path in (python, os.path.realpath(python))))


def find_open_mpis(pythons: Iterable[str]) -> frozenset[str]:
    """The installations among those of these Pythons that contain the Open MPI of PyPI: 4 or 5."""
    wrappers = ("bin/orterun_wrapper", "bin/ompirun_wrapper")
    prefixes = {installation(python) for python in pythons}
    return frozenset(prefix for prefix in prefixes if any(Path(prefix, wrapper).exists() for wrapper in wrappers))


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
