"""The interface of the embedded cluster for commands: find it, stop it, kill its pods, delete its data, read
what its pods left.

`cli` imports nothing else of this package, but for the process of `up`, which starts an EmbeddedCluster. What only some
commands need is imported when it is called.
"""

import gc
import os
import signal
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.cluster.data_directory_registry import all_data_directories
from trainwright.cluster.datadir import CONTEXT, ClusterError, ClusterRecord, DataDir
from trainwright.cluster.node.pod_processes import PodProcess, process_trees, running_containers
from trainwright.cluster.node.records import pod_records as records
from trainwright.cluster.node.records.pod_files import PodFile, PrivateFile, find_pod_files
from trainwright.cluster.node.records.pod_records import PodRecord, RunLog, whole_lines
from trainwright.cluster.node_settings import UNKNOWN_IMAGES, NodeSettings
from trainwright.cluster.owned_paths import UntrustedPathError, check_directory

if TYPE_CHECKING:
    from trainwright.cluster.node.pods.pod_termination import StoppingPods

__all__ = [
    "CONTEXT",
    "STOP_SECONDS",
    "UNKNOWN_IMAGES",
    "ClusterError",
    "ClusterRecord",
    "DataDir",
    "NodeSettings",
    "PodFile",
    "PodProcess",
    "PodRecord",
    "PrivateFile",
    "RunLog",
    "all_data_directories",
    "builtin_schema",
    "check_private_file",
    "delete_data",
    "disk_warning",
    "kill_orphaned_pods",
    "pod_files",
    "pod_records",
    "processes_of",
    "running_pods",
    "stop_cluster",
    "try_sandbox",
    "tune_garbage_collector",
    "whole_lines",
]

STOP_SECONDS = 20.0


def check_private_file(path: Path) -> None:
    """Raises ClusterError if another user owns the file or can replace it. It need not exist."""
    try:
        check_directory(path.resolve().parent)
        if path.exists() and path.stat().st_uid not in {os.geteuid(), 0}:
            raise ClusterError(f"{path} belongs to another user")
    except UntrustedPathError as error:
        raise ClusterError(str(error)) from error


def tune_garbage_collector() -> None:
    """To be called once everything has started: excludes the objects that exist by then from garbage collection.

    The default thresholds are made for programs with fewer live objects; with them big lists take twice the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def stop_cluster(data: DataDir, *, seconds: float = STOP_SECONDS) -> bool:
    """Stops the process that runs the cluster, and waits for its end; False if there is none.

    A process that is still starting, or whose record was lost, is found by its lock.
    """
    record = data.running()
    process = record.process if record else data.owner()
    if process is None:
        return False
    try:
        os.kill(process.pid, signal.SIGTERM)
    except ProcessLookupError:
        return True
    except PermissionError as error:
        raise ClusterError(f"pid {process.pid} belongs to another user: stop it as that user") from error
    deadline = time.monotonic() + seconds
    while process.alive:
        if time.monotonic() > deadline:
            raise ClusterError(
                f"the cluster (pid {process.pid}) did not stop within {seconds:.0f} s: see {data.log}, "
                f"or end it with `kill -9 {process.pid}`; acknowledged writes are not lost"
            )
        time.sleep(0.02)
    return True


def running_pods(data: DataDir) -> "StoppingPods":
    """The running pods of a cluster that has been stopped, to end them."""
    from trainwright.cluster.node.pods.pod_termination import StoppingPods

    return StoppingPods(data.node)


def kill_orphaned_pods(data: DataDir) -> int:
    """Kills the pods of a cluster whose data directory has been removed; returns how many were running."""
    from trainwright.cluster.node.pods.pod_termination import kill_orphaned_pods

    return kill_orphaned_pods(data.node)


def delete_data(data: DataDir) -> int:
    """Deletes the cluster's data and keeps images, which other clusters may use too; returns how many there are."""
    from trainwright.cluster.data_directory_registry import unregister
    from trainwright.cluster.images.blobs import StoreError
    from trainwright.cluster.images.store import ImageStore
    from trainwright.cluster.linux.trees import remove_tree

    unregister(data)
    store = ImageStore(data.path / "images")
    try:
        images = len({entry.digest for entry in store.entries()})
    except StoreError:
        images = 0  # without an index none of them can be used
    kept = {store.directory} if images else set()
    for path in set(data.path.iterdir()) - kept:
        if path.is_symlink() or not path.is_dir():
            path.unlink()
        else:
            remove_tree(str(path))
    if set(data.path.iterdir()) - kept:
        raise ClusterError(f"{data.path} could not be deleted completely: the rest belongs to another user")
    # The default directory stays: pods that other clusters run now have a cover over it, which would go with it.
    if not images and data != DataDir.default():
        data.path.rmdir()
    return images


def pod_files(record: PodRecord, path: str) -> list[PodFile]:
    """The file at this path in a pod, or all files below it; empty if there is none."""
    return find_pod_files(record.directory, path)


def processes_of(records: Iterable[PodRecord]) -> dict[str, list[PodProcess]]:
    """The processes of the running containers, by the uid of their pod, with the pids of this machine."""
    pids = {record.uid: [found.pid for found in running_containers(record.directory)] for record in records}
    trees = process_trees((pid for found in pids.values() for pid in found), with_exec=True)
    return {uid: [process for pid in found for process in trees[pid]] for uid, found in pids.items()}


def try_sandbox(python: Path) -> tuple[str, str, str]:
    """The strongest sandbox that works on this machine, why no stronger one does, and why pods have the ports of the
    machine; empty if they have their own."""
    from trainwright.cluster.node.node_registration import shared_ports_text
    from trainwright.cluster.node.supervisor.sandbox.detection import detect_sandbox

    with tempfile.TemporaryDirectory(prefix="trainwright-") as directory:
        found = detect_sandbox(directory, forced=None, python=str(python))
    return found.level, found.reason, shared_ports_text(found.shared_ports) if found.shared_ports else ""


def pod_records(data: DataDir, owner_uid: str) -> list[PodRecord]:
    """What the pods of a job left on the node, until the job is deleted; also while the cluster is not running."""
    return records.pod_records(data.node, owner_uid)


def disk_warning(data: DataDir) -> str:
    """What to do about an almost full disk; empty if there is space. Also while the cluster is not running."""
    from trainwright.cluster.node.machine import how_to_free, read_disk

    if not data.node.is_dir() or not (disk := read_disk(data.node)).is_almost_full:
        return ""
    return f"almost full: {disk.summary}; {how_to_free(data.node)}"


def builtin_schema(kind: str) -> dict[str, Any]:
    """The OpenAPI schema of a built-in type, such as `Pod` or `ObjectMeta`."""
    from trainwright.cluster.apiserver.schema.builtin import definition

    return definition(kind)
