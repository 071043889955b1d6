"""The sandbox of a pod, made of Linux namespaces and mounts; each function prepares the calling process.

`overlay`: the files of an image or of the host below private writable layers, volumes at their mount paths, and a pid
namespace, hostname, devices and shared memory of the pod's own. `plain`: no isolation, orphaned processes are reaped.
Standard library only.
"""

from __future__ import annotations

import errno
import os
import stat

from trainwright.cluster.linux.container_roots import (
    OverlayLayers,
    mount_kernel_directories,
    mount_points,
    populate_with_host,
    populate_with_image,
)
from trainwright.cluster.linux.mounts import (
    NODEV,
    NOSUID,
    PRIVATE,
    RDONLY,
    REC,
    SLAVE,
    Mount,
    bind,
    check,
    is_below,
    libc,
    make_read_only,
    mount,
    pivot_root,
    read_mounts,
    restrict,
    unmount,
)
from trainwright.cluster.linux.safe_paths import open_beneath, resolve_without_proc
from trainwright.cluster.linux.user_namespaces import enter_as_root, enter_keeping_ids

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Iterable

OVERLAY = "overlay"
PLAIN = "plain"
LEVELS = (OVERLAY, PLAIN)
"""The strongest first."""

PRIVATE_DIRECTORIES = ("/tmp", "/dev/shm", "/proc")  # noqa: S108 - paths that are hidden, not used
"""Directories that a pod at `overlay` has for itself: the host's files below them are hidden unless mounted."""

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWPID = 0x20000000

_COVER = "mode=755,size=64k,nr_inodes=64"
"""Of the empty directories in place of hidden ones; mount points may be created in them."""


def enter_pod(
    directory: str,
    *,
    hostname: str,
    user_namespace: bool,
    memory_volumes: list[dict[str, object]],
    memory_limit: int | None = None,
    as_root: bool = False,
    pid_namespace: bool = True,
) -> None:
    """Moves this process into new namespaces for a pod; its next child is pid 1 of the pod. Without `pid_namespace`
    this process is, see `next_child_in_pid_namespace`.

    `user_namespace` creates a user namespace as well, which an unprivileged user needs. With `as_root` the user is root
    in it, as programs of images expect; otherwise programs see the same user as outside. `directory` is the pod's: the
    shared memory of its containers is mounted at `shm` in it, volumes of medium Memory at their paths.
    """
    namespaces = _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWIPC | (_CLONE_NEWPID if pid_namespace else 0)
    if not user_namespace:
        check(libc.unshare(namespaces), "create namespaces")
    elif as_root:
        enter_as_root(namespaces)
    else:
        enter_keeping_ids(namespaces)
    name = hostname.encode()
    check(libc.sethostname(name, len(name)), f"set the hostname {hostname}")
    # Mounts propagate from the host to the pod only: a pod must not keep a disk of the host busy.
    mount(None, "/", None, REC | SLAVE)
    shared_memory = os.path.join(directory, "shm")
    os.makedirs(shared_memory, exist_ok=True)
    _mount_memory(shared_memory, "mode=1777", memory_limit)
    for volume in memory_volumes:
        size, owner = volume.get("size"), volume.get("group")
        options = "mode=1777" if owner is None else f"mode=2777,gid={owner}"
        _mount_memory(str(volume["path"]), options, int(str(size)) if size else memory_limit)


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
        mount("proc", proc, "proc", NOSUID | NODEV)
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
    mount("tmpfs", target, "tmpfs", NOSUID | NODEV, f"{options},size={size or '50%'}")


def unmount_memory(scratch: str) -> None:
    """As pid 1, when the container has ended."""
    try:
        unmount(f"{scratch}/memory")
    except OSError:
        pass  # it was not mounted


def enter_container(
    directory: str,
    *,
    scratch: str,
    mounts: list[dict[str, object]],
    hidden: list[str],
    working_directory: str,
    user_namespace: bool,
    devices: list[str] | None = None,
    privileged: bool = False,
    read_only_root: bool = False,
    layers: list[str] | None = None,
    host_files: bool = True,
    image_volumes: list[str] | None = None,
) -> None:
    """Gives this process, a child of pid 1, the root file system of one container.

    `layers` are the directories of an image's layers, the topmost first; `host_files` is True if they lie over the
    host's files. `image_volumes` are directories of the image that stay writable below a read-only root.

    `scratch` is from `make_scratch`. Each mount has a `source` on the host, a `target` and `readOnly`; `volume` is the
    directory that the source must not leave, and `hostPath` marks a path that the user chose. Targets and the working
    directory need not exist on the host. `hidden` are directories of the host that the container sees empty, by their
    real paths. `devices` are those besides the usual ones; a privileged container has all of them and no protection of
    the kernel's files.
    """
    check(libc.unshare(_CLONE_NEWNS), "create a mount namespace")
    mount(None, "/", None, REC | PRIVATE)
    host_mounts = read_mounts()
    hidden = [alias for path in hidden for alias in _aliases(path, host_mounts)]
    volumes = {str(one["target"]): _OpenVolume(one, hidden) for one in mounts}
    # Relative to the scratch directory, because the options of an overlay cannot hold every character of a path.
    os.chdir(scratch)
    root = os.path.abspath("memory/root")
    overlays = OverlayLayers(user_namespace, (layers or ()) if host_files else ())
    if host_files:
        bind(root, root)
        populate_with_host(root, overlays, mount_points(host_mounts), replaced=set(volumes))
    else:
        populate_with_image(root, overlays, layers or [])
    mount_kernel_directories(
        root,
        user_namespace=user_namespace,
        privileged=privileged,
        devices=devices or [],
        shared_memory=os.path.join(directory, "shm"),
    )
    old_root = _move_into(root)
    overlays.root = ""
    _mount_volumes(
        volumes,
        _places_of_covers(hidden, volumes, host_files=host_files),
        working_directory,
        overlays,
        host_devices=privileged or user_namespace,
    )
    writable = [
        _make_writable(path, overlays) for path in image_volumes or () if read_only_root and path not in volumes
    ]
    _leave_host(old_root, volumes.values())
    if read_only_root:
        shared = [target for target, volume in volumes.items() if volume.is_shared]
        targets = [target for target in overlays.targets if target not in writable]
        for place in dict.fromkeys((*targets, *shared, *(("/tmp",) if host_files else ()), "/")):  # noqa: S108
            restrict(place, RDONLY, recursive=False)


class _OpenVolume:
    """What is to be mounted at a target, by descriptor: what a path leads to may change before it is mounted."""

    def __init__(self, config: dict[str, object], hidden: list[str]) -> None:
        self.descriptor = _open_source(config, hidden)
        self.source = os.readlink(f"/proc/self/fd/{self.descriptor}")
        self.of_user = bool(config.get("hostPath"))
        self.read_only = bool(config.get("readOnly"))
        self.is_shared = "volume" not in config


def _move_into(root: str) -> str:
    """Makes the directory the root of this process. Returns where the host's root is now."""
    old_root = f"/.host-{os.urandom(8).hex()}"  # a link in a volume, where mount points are made, cannot name it
    os.mkdir(root + old_root)
    pivot_root(root, root + old_root)
    return old_root


def _places_of_covers(hidden: list[str], volumes: dict[str, _OpenVolume], *, host_files: bool) -> list[str]:
    """Where empty directories are mounted over hidden ones."""
    mounts = [(resolve_without_proc(target), volume.source) for target, volume in volumes.items()]
    covered = covered_paths(hidden, mounts)
    if host_files:
        return covered
    points = [point for point, _ in mounts]
    return [path for path in covered if is_below(path, points)]  # an image may have a directory of the same name


def _mount_volumes(
    volumes: dict[str, _OpenVolume],
    covered: list[str],
    working_directory: str,
    overlays: OverlayLayers,
    *,
    host_devices: bool,
) -> None:
    """Mounts volumes and covers, the outer ones first, and creates the working directory."""
    points = {target: resolve_without_proc(target) for target in volumes} | {path: path for path in covered}
    places = sorted(points, key=lambda place: points[place].count("/"))
    # Targets below another mount are created in it later, the others now: an overlay hides the mounts below it.
    for target in filter(lambda target: not is_below(target, places), volumes):
        _make_mount_point(target, like=volumes[target].descriptor, overlays=overlays)
    if not is_below(working_directory, places):
        _make_directories(resolve_without_proc(working_directory), overlays)
    covers = []
    for place in places:
        if volume := volumes.get(place):
            point = _make_mount_point(place, like=volume.descriptor, overlays=overlays)
            bind(f"/proc/self/fd/{volume.descriptor}", point)
            restrict_mount(point, no_devices=volume.of_user and not host_devices, read_only=volume.read_only)
        elif os.path.isdir(place):
            mount("tmpfs", place, "tmpfs", NOSUID | NODEV, _COVER)
            covers.append(place)
    if not os.path.isdir(working_directory):
        os.makedirs(resolve_without_proc(working_directory))
    for place in covers:  # last, because mount points may have been created in them
        restrict(place, RDONLY, recursive=False)


def _make_writable(path: str, overlays: OverlayLayers) -> str:
    """VOLUME of an image below a read-only root: an overlay of its own, with the image's files."""
    place = resolve_without_proc(path)
    os.makedirs(place, exist_ok=True)
    overlays.mount([place], place, path=place)
    return place


def restrict_mount(point: str, *, no_devices: bool, read_only: bool) -> None:
    if no_devices:
        restrict(point, NODEV)  # the devices of a container are those in /dev
    if read_only:
        make_read_only(point)


def _leave_host(old_root: str, volumes: Iterable[_OpenVolume]) -> None:
    """Closes the ways back: the host's root, and descriptors from which one could walk up to it."""
    os.chdir("/")
    for volume in volumes:
        os.close(volume.descriptor)
    unmount(old_root)
    os.rmdir(old_root)


def _open_source(source: dict[str, object], hidden: list[str]) -> int:
    """A descriptor of what is to be mounted; refused if the user chose a directory that pods must not see."""
    path, volume = str(source["source"]), source.get("volume")
    if volume is None or path == volume:
        if volume is None and not os.path.exists(path):
            os.makedirs(path)  # a subPath of a pod that an earlier version has started
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    else:
        # A volume of medium Memory is empty: the agent could not create a directory in it.
        descriptor = open_beneath(str(volume), os.path.relpath(path, str(volume)), create=True)
    found = os.readlink(f"/proc/self/fd/{descriptor}")
    if source.get("hostPath") and (found in hidden or is_below(found, hidden)):
        raise OSError(errno.EACCES, f"hostPath {path} is in a directory of the cluster, which pods do not see")
    return descriptor


def join_container(pidfd: int) -> None:
    """Gives this process, a child of pid 1, the file system that the process behind the descriptor has."""
    check(libc.setns(pidfd, _CLONE_NEWNS), "join the mount namespace of the container")


def covered_paths(hidden: list[str], mounts: list[tuple[str, str]]) -> list[str]:
    """Where a container would see the hidden directories: at their own paths, and in mounts of directories above them.

    `mounts` are pairs of target and source, by their real paths. A mount of a hidden directory itself was asked for by
    name and stays visible.
    """
    found: dict[str, None] = {}
    for path in hidden:
        above = [(target, source.rstrip("/")) for target, source in mounts if is_below(path, [source])]
        inside = [target + path[len(source) :] for target, source in above]
        for candidate in (path, *inside):
            if _seen_at(candidate, mounts) == path:
                found[candidate] = None
    return list(found)


def _seen_at(path: str, mounts: list[tuple[str, str]]) -> str | None:
    """The host's directory that a container sees at a path; None where a mount is exactly there."""
    above = [(target, source) for target, source in mounts if is_below(path, [target])]
    if any(path == target for target, _ in mounts):
        return None
    target, source = max(above, key=lambda mount: len(mount[0]), default=("", ""))
    return source.rstrip("/") + path[len(target.rstrip("/")) :]


def possible_aliases(path: str, mounts: list[Mount]) -> list[str]:
    """Where the directory would be seen because another directory of its file system is mounted too, and its own
    path."""
    found = [path]
    for device, root, point, _ in mounts:
        if path == point or is_below(path, [point]):
            inside = root.rstrip("/") + path[len(point.rstrip("/")) :]
            for other, other_root, other_point, _ in mounts:
                if other == device and (inside == other_root or is_below(inside, [other_root])):
                    found.append(other_point.rstrip("/") + inside[len(other_root.rstrip("/")) :])
    return list(dict.fromkeys(found))


def _aliases(path: str, mounts: list[Mount]) -> list[str]:
    """Those of them that are the same directory."""
    if not os.path.exists(path):
        return [path]
    possible = filter(os.path.exists, possible_aliases(path, mounts))
    return [one for one in possible if os.path.samefile(one, path)]


def _make_mount_point(target: str, *, like: int, overlays: OverlayLayers) -> str:
    """A directory or a file, as `like` is one. Returns its path without links, which may lead to a directory that the
    container does not have yet."""
    point = resolve_without_proc(target)
    if os.path.exists(point):
        return point
    if stat.S_ISDIR(os.fstat(like).st_mode):
        _make_directories(point, overlays)
        return point
    _make_directories(os.path.dirname(point), overlays)
    with open(point, "xb"):
        pass
    return point


def _make_directories(path: str, overlays: OverlayLayers) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except PermissionError:
        # An unprivileged user may not write to root's directories in an overlay, but owns the top of a new one.
        parent = os.path.realpath(path)
        while not os.path.isdir(parent):
            parent = os.path.dirname(parent)
        overlays.mount([parent], parent, path=parent)
        os.makedirs(path, exist_ok=True)
