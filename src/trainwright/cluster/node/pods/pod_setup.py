"""Sets up a pod on the disk for its supervisor: volumes, the sources of mounts and, last, its configuration."""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from trainwright.cluster.linux.hidden_directories import HiddenDirectories
from trainwright.cluster.linux.safe_paths import open_beneath
from trainwright.cluster.node.pods.config.pod_context import HOSTNAME_FILE, installation
from trainwright.cluster.node.pods.config.runtime_config import RuntimeConfig, WaitingReason
from trainwright.cluster.node.pods.pod_directory import PodDirectory
from trainwright.cluster.node.supervisor.sandbox.sandbox import PLAIN
from trainwright.cluster.node.volumes.setup import set_up
from trainwright.cluster.node.volumes.sources import mount_failure
from trainwright.objects.node_annotations import DIRECTORY, PYTHON


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
