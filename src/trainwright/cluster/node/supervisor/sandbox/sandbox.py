"""The sandbox of a pod, made of Linux namespaces and mounts; each function prepares the calling process.

`overlay`: the files of an image or of the host below private writable layers, volumes at their mount paths, and a pid
namespace, hostname, devices and shared memory of the pod's own. `plain`: no isolation, orphaned processes are reaped.
Standard library only.
"""

from __future__ import annotations

import os

from trainwright.cluster.linux import mounts
from trainwright.cluster.linux.container_roots import (
    OverlayLayers,
    mount_kernel_directories,
    mount_points,
    populate_with_host,
    populate_with_image,
)
from trainwright.cluster.linux.hidden_directories import HiddenDirectories
from trainwright.cluster.linux.mounts import check, libc
from trainwright.cluster.linux.safe_paths import resolve_without_proc
from trainwright.cluster.linux.user_namespaces import enter_as_root, enter_keeping_ids
from trainwright.cluster.node.supervisor.sandbox.volume_mounts import ContainerVolumes

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from trainwright.cluster.node.supervisor.pod_json import ContainerJson, PodJson

OVERLAY = "overlay"
PLAIN = "plain"
LEVELS = (OVERLAY, PLAIN)
"""The strongest first."""

PRIVATE_DIRECTORIES = ("/tmp", "/run", "/dev/shm", "/proc")  # noqa: S108 - paths that are hidden, not used
"""Directories that a pod at `overlay` has for itself: the host's files below them are hidden unless mounted."""

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWPID = 0x20000000


def enter_pod(directory: str, pod: PodJson, *, pid_namespace: bool = True) -> None:
    """Moves this process into new namespaces for a pod; its next child is pid 1 of the pod. Without `pid_namespace`
    this process is, see `next_child_in_pid_namespace`.

    A pod with users of its own gets a user namespace as well, which an unprivileged user needs: as root, as programs of
    images expect, or as the same user as outside. `directory` is the pod's: the shared memory of its containers is
    mounted at `shm` in it, volumes of medium Memory at their paths.
    """
    namespaces = _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWIPC | (_CLONE_NEWPID if pid_namespace else 0)
    if not pod["ownUsers"]:
        check(libc.unshare(namespaces), "create namespaces")
    elif pod.get("asRoot"):
        enter_as_root(namespaces)
    else:
        enter_keeping_ids(namespaces)
    name = pod["hostname"].encode()
    check(libc.sethostname(name, len(name)), f"set the hostname {pod['hostname']}")
    # Mounts propagate from the host to the pod only: a pod must not keep a disk of the host busy.
    mounts.mount(None, "/", None, mounts.REC | mounts.SLAVE)
    shared_memory = os.path.join(directory, "shm")
    os.makedirs(shared_memory, exist_ok=True)
    memory_limit = pod.get("memoryLimit")
    _mount_memory(shared_memory, "mode=1777", memory_limit)
    for volume in pod["memoryVolumes"]:
        size, owner = volume.get("size"), volume.get("group")
        options = "mode=1777" if owner is None else f"mode=2777,gid={owner}"
        _mount_memory(volume["path"], options, size or memory_limit)


def next_child_in_pid_namespace(own: int | None) -> None:
    """The next child of this process, which is root, gets a new pid namespace. With `own`, a descriptor of that of this
    process, children are in that one again."""
    if own is None:
        check(libc.unshare(_CLONE_NEWPID), "create a pid namespace")
    else:
        check(libc.setns(own, _CLONE_NEWPID), "return to the pid namespace")


def mount_proc(directory: str) -> str | None:
    """As pid 1: mounts a /proc with the pod's processes and returns its path; None where that is forbidden."""
    proc = os.path.join(directory, "proc")
    os.makedirs(proc, exist_ok=True)
    try:
        mounts.mount("proc", proc, "proc", mounts.NOSUID | mounts.NODEV)
    except OSError:
        return None
    return proc


def make_scratch(scratch: str, *, memory_limit: int | None = None) -> None:
    """As pid 1: creates the directory for what a container writes outside of volumes.

    Its `memory` is mounted in the pod and not in the container, so that it can be read when the container has ended.
    """
    os.makedirs(f"{scratch}/layers")
    os.mkdir(f"{scratch}/memory")
    _mount_memory(f"{scratch}/memory", "mode=755", memory_limit)
    os.mkdir(f"{scratch}/memory/root")
    os.mkdir(f"{scratch}/memory/layers")


def _mount_memory(target: str, options: str, size: int | None) -> None:
    """At most half of the machine's memory, unless a size is given."""
    mounts.mount("tmpfs", target, "tmpfs", mounts.NOSUID | mounts.NODEV, f"{options},size={size or '50%'}")


def unmount_memory(scratch: str) -> None:
    """As pid 1, when the container has ended."""
    try:
        mounts.unmount(f"{scratch}/memory")
    except OSError:
        pass  # it was not mounted


def enter_container(directory: str, pod: PodJson, container: ContainerJson, scratch: str) -> None:
    """Gives this process, a child of pid 1, the root file system of one container.

    `scratch` is from `make_scratch`. Mount targets and the working directory need not exist on the host. A privileged
    container has all devices and no protection of the kernel's files. The volumes of its image stay writable below a
    read-only root.
    """
    check(libc.unshare(_CLONE_NEWNS), "create a mount namespace")
    mounts.mount(None, "/", None, mounts.REC | mounts.PRIVATE)
    host_mounts = mounts.read_mounts()
    hidden = HiddenDirectories(pod["hidden"], host_mounts)
    security = container.get("security") or {}  # pods of an earlier version have none
    privileged, read_only_root = bool(security.get("privileged")), bool(security.get("readOnlyRoot"))
    image = container.get("root")
    host_files = image is None or image["hostFiles"]
    layers = image["layers"] if image else []
    volumes = ContainerVolumes(container["mounts"], host_mounts, hidden=hidden, privileged=privileged)
    # Relative to the scratch directory, because the options of an overlay cannot hold every character of a path.
    os.chdir(scratch)
    root = os.path.abspath("memory/root")
    overlays = OverlayLayers(pod["ownUsers"], layers if host_files else ())
    if host_files:
        mounts.bind(root, root)
        points = [point for point in mount_points(host_mounts) if not mounts.is_below(point, hidden.paths)]
        populate_with_host(root, overlays, points, replaced=volumes.targets, private=pod.get("privateHomes") or ())
    else:
        populate_with_image(root, overlays, layers)
    mount_kernel_directories(
        root,
        user_namespace=pod["ownUsers"],
        privileged=privileged,
        devices=container.get("devices") or [],
        shared_memory=os.path.join(directory, "shm"),
    )
    old_root = _move_into(root)
    overlays.root = ""
    volumes.mount(container["cwd"], overlays, host_files=host_files, host_devices=privileged or pod["ownUsers"])
    inner = image["volumes"] if image and read_only_root else []
    writable = [_make_writable(path, overlays) for path in inner if path not in volumes.targets]
    _leave_host(old_root)
    if read_only_root:
        targets = [target for target in overlays.targets if target not in writable]
        for place in dict.fromkeys((*targets, *volumes.shared, "/")):
            mounts.restrict(place, mounts.RDONLY, recursive=False)


def _move_into(root: str) -> str:
    """Makes the directory the root of this process. Returns where the host's root is now."""
    old_root = f"/.host-{os.urandom(8).hex()}"  # a link in a volume, where mount points are made, cannot name it
    os.mkdir(root + old_root)
    mounts.pivot_root(root, root + old_root)
    return old_root


def _make_writable(path: str, overlays: OverlayLayers) -> str:
    """VOLUME of an image below a read-only root: an overlay of its own, with the image's files."""
    place = resolve_without_proc(path)
    os.makedirs(place, exist_ok=True)
    overlays.mount([place], place, path=place)
    return place


def _leave_host(old_root: str) -> None:
    """Closes the way back: the host's root. The descriptors of volumes, from which one could walk up, are closed."""
    os.chdir("/")
    mounts.unmount(old_root)
    os.rmdir(old_root)


def join_container(pidfd: int) -> None:
    """Gives this process, a child of pid 1, the file system that the process behind the descriptor has."""
    check(libc.setns(pidfd, _CLONE_NEWNS), "join the mount namespace of the container")
