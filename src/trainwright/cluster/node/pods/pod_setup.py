"""Sets up a pod on the disk for its supervisor: volumes, the sources of mounts and, last, its configuration."""

import os
from collections.abc import Iterator
from pathlib import Path

from trainwright.cluster.node.pods.pod_directory import PodDirectory
from trainwright.cluster.node.pods.runtime_config import Problem, Resolved
from trainwright.cluster.node.volumes.setup import set_up
from trainwright.objects.node_annotations import DIRECTORY, PYTHON


def set_up_pod(directory: PodDirectory, resolved: Resolved) -> tuple[Problem, ...]:
    """Why the pod has to wait, if it has to; then the setup is tried again."""
    directory.create()
    problems = tuple(_failures(resolved)) or tuple(_make_mount_sources(resolved))
    if not problems:
        directory.write_pod(resolved.pod)
    return problems


def _failures(resolved: Resolved) -> Iterator[Problem]:
    if not os.access(resolved.python, os.X_OK):
        text = f"the pod's Python {resolved.python} is not there or not executable: correct {PYTHON}"
        yield Problem(reason="PythonNotFound", message=text)
    if resolved.shared_directory and not Path(resolved.shared_directory).is_dir():
        text = f"annotation {DIRECTORY}: {resolved.shared_directory} is not a directory on this machine"
        yield Problem(reason="DirectoryNotFound", message=text)
    for volume in resolved.volumes:
        if failure := set_up(volume):
            yield Problem(reason="FailedMount", message=f'volume "{volume.name}": {failure}')


def _make_mount_sources(resolved: Resolved) -> Iterator[Problem]:
    """Creates the directories that `subPath` names within volumes."""
    for container in [*resolved.pod["initContainers"], *resolved.pod["containers"]]:
        for mount in container["mounts"]:
            source = Path(mount["source"])
            try:
                if not source.exists():
                    source.mkdir(parents=True)
            except (OSError, ValueError) as error:
                text = f"{str(source)!r}: {getattr(error, 'strerror', error)}"
                yield Problem(reason="FailedMount", message=text, container=container["name"])
