"""The sandbox of a pod, made of Linux namespaces and mounts; each function prepares the calling process.

`overlay`: the host's files below private writable layers, volumes at their mount paths, and a pid namespace, hostname,
devices and shared memory of the pod's own. `plain`: no isolation, orphaned processes are reaped. Standard library only.
"""

from __future__ import annotations

import errno
import os
import stat

from trainwright.cluster.linux.devices import make_dev, protect_kernel_files, share_host_dev
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
from trainwright.cluster.linux.safe_paths import open_beneath

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
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWPID = 0x20000000
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_NOT_OVERLAID = ("proc", "sys", "dev", "tmp", "lost+found")
_PSEUDO_FILE_SYSTEMS = frozenset({"proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "autofs", "mqueue"})
_COVER = "mode=755,size=64k,nr_inodes=64"
"""Of the empty directories in place of hidden ones; mount points may be created in them."""


def enter_pod(
    directory: str,
    *,
    hostname: str,
    user_namespace: bool,
    memory_volumes: list[dict[str, object]],
    memory_limit: int | None = None,
) -> None:
    """Moves this process into new namespaces for a pod; its next child is pid 1 of the pod.

    `user_namespace` creates a user namespace as well, which an unprivileged user needs. `directory` is the pod's: the
    shared memory of its containers is mounted at `shm` in it, volumes of medium Memory at their paths.
    """
    user, group = os.getuid(), os.getgid()
    namespaces = _CLONE_NEWNS | _CLONE_NEWPID | _CLONE_NEWUTS | _CLONE_NEWIPC
    check(libc.unshare(namespaces | (_CLONE_NEWUSER if user_namespace else 0)), "create namespaces")
    if user_namespace:
        _map_ids(user, group)
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
) -> None:
    """Gives this process, a child of pid 1, the root file system of one container.

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
    # By descriptor: what a path leads to may change before it is mounted.
    opened = {str(one["target"]): _open_source(one, hidden) for one in mounts}
    sources = {target: os.readlink(f"/proc/self/fd/{source}") for target, source in opened.items()}
    # Relative to the scratch directory, because the options of an overlay cannot hold every character of a path.
    os.chdir(scratch)
    root = os.path.abspath("memory/root")
    bind(root, root)
    layers = _Layers(user_namespace)
    _populate_root(
        root,
        layers,
        _mount_points(host_mounts),
        replaced=set(sources),
        shared_memory=os.path.join(directory, "shm"),
        devices=devices or [],
        privileged=privileged,
    )
    old_root = f"/.host-{os.urandom(8).hex()}"  # a link in a volume, where mount points are made, cannot name it
    os.mkdir(root + old_root)
    pivot_root(root, root + old_root)
    layers.root = ""
    real = {target: os.path.realpath(target) for target in sources}
    covered = covered_paths(hidden, [(real[target], source) for target, source in sources.items()])
    by_target = {str(one["target"]): one for one in mounts}
    real.update((path, path) for path in covered)
    places = list(real)
    # Targets below another mount are created in it later, the others now: an overlay hides the mounts below it.
    for target in filter(lambda target: not is_below(target, places), sources):
        _make_mount_point(target, like=opened[target], layers=layers)
    if not is_below(working_directory, places):
        _make_directories(working_directory, layers)
    covers = []
    for place in sorted(places, key=lambda place: real[place].count("/")):
        if place in sources:
            _make_mount_point(place, like=opened[place], layers=layers)
            bind(f"/proc/self/fd/{opened[place]}", place)
            if by_target[place].get("hostPath") and not privileged and not user_namespace:
                restrict(place, NODEV)  # the devices of a container are those in /dev
            if by_target[place].get("readOnly"):
                make_read_only(place)
        elif os.path.isdir(place):
            mount("tmpfs", place, "tmpfs", NOSUID | NODEV, _COVER)
            covers.append(place)
    if not os.path.isdir(working_directory):
        os.makedirs(working_directory)
    for place in covers:  # last, because mount points may have been created in them
        restrict(place, RDONLY, recursive=False)
    _leave_host(old_root, opened.values())
    if read_only_root:
        shared = [target for target, one in by_target.items() if "volume" not in one]
        for place in (*layers.targets, *shared, "/tmp", "/"):  # noqa: S108
            restrict(place, RDONLY, recursive=False)


def _leave_host(old_root: str, opened: Iterable[int]) -> None:
    """Closes the ways back: the host's root, and descriptors from which one could walk up to it."""
    os.chdir("/")
    for descriptor in opened:
        os.close(descriptor)
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


def become_subreaper() -> None:
    """At `plain`: orphaned descendants become children of this process."""
    check(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "become the reaper of orphans")


def die_with_parent(signal_number: int) -> None:
    check(libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "ask for a signal at the parent's end")


class _Layers:
    """Mounts overlays over directories of the host: `upper` has what the container writes, `path` links to the
    directory.

    The layers are in the scratch directory, or in memory where the kernel refuses that: for the directory that contains
    the scratch directory, and on file systems without the extended attributes that overlays need.
    """

    def __init__(self, user_namespace: bool) -> None:
        self.user_namespace = user_namespace
        self.root = ""
        """Where the container's root is mounted."""
        self.targets: list[str] = []
        """The mount points of the overlays in the container."""
        self._options = ",userxattr" if user_namespace else ""
        self._count = 0

    def mount(self, lower: str, target: str) -> None:
        self._count += 1
        try:
            self._mount(lower, target, f"layers/{self._count}")
        except OSError:
            self._mount(lower, target, f"memory/layers/{self._count}")
        self.targets.append(target.removeprefix(self.root))

    def _mount(self, lower: str, target: str, layer: str) -> None:
        os.makedirs(f"{layer}/upper")
        os.mkdir(f"{layer}/work")
        os.symlink(lower, f"{layer}/path")
        os.chmod(f"{layer}/upper", stat.S_IMODE(os.stat(lower).st_mode))
        escaped = lower.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")
        options = f"lowerdir={escaped},upperdir={layer}/upper,workdir={layer}/work{self._options}"
        mount("overlay", target, "overlay", NODEV, options)


def _populate_root(
    root: str,
    layers: _Layers,
    mount_points: dict[str, list[str]],
    *,
    replaced: set[str],
    shared_memory: str,
    devices: list[str],
    privileged: bool,
) -> None:
    """Fills the new root with the host's top-level directories, each as the lower directory of an overlay.

    One overlay of `/` is enough for root, but is refused to unprivileged users, because `/` has locked mounts. The
    directories in `replaced` are mounted later.
    """
    layers.root = root
    for name in sorted(os.listdir("/")):
        source, target = f"/{name}", f"{root}/{name}"
        if os.path.islink(source):
            os.symlink(os.readlink(source), target)
        elif name in _NOT_OVERLAID:
            continue
        elif os.path.isdir(source):
            os.mkdir(target)
            if source in replaced:
                continue
            _overlay_or_read_only(source, target, layers)
            for point in mount_points.get(name, ()):
                _overlay_or_read_only(point, root + point, layers)
            if name == "var" and layers.user_namespace:
                # An ordinary user may write to a directory of root that is the top of an overlay, not to one below it.
                _overlay_or_read_only("/var/tmp", f"{root}/var/tmp", layers)  # noqa: S108
        elif os.path.isfile(source):
            with open(target, "xb"):
                pass
            bind(source, target)
            make_read_only(target)
    _make_temporary_directory(root)
    for name in ("sys", "dev", "proc"):
        os.mkdir(f"{root}/{name}")
    if privileged:
        share_host_dev(f"{root}/dev", shared_memory=shared_memory)
    else:
        make_dev(f"{root}/dev", devices=devices, shared_memory=shared_memory)
    _mount_kernel_files(root, user_namespace=layers.user_namespace, privileged=privileged)


def _mount_kernel_files(root: str, *, user_namespace: bool, privileged: bool) -> None:
    bind("/sys", f"{root}/sys")
    try:
        mount("proc", f"{root}/proc", "proc", NOSUID | NODEV)
    except OSError:
        bind("/proc", f"{root}/proc")  # in a container with a masked /proc the kernel refuses a new one
    if not privileged:
        make_read_only(f"{root}/sys")
        if not user_namespace:  # an ordinary user has no access anyway
            protect_kernel_files(root)


def _make_temporary_directory(root: str) -> None:
    """The container's own /tmp, on the disk."""
    temporary = os.path.abspath("layers/tmp/upper")
    os.makedirs(temporary)
    os.symlink("/tmp", "layers/tmp/path")  # noqa: S108
    os.chmod(temporary, 0o1777)  # noqa: S103 - the mode of /tmp; the pod's directory above it is private
    os.mkdir(f"{root}/tmp")  # noqa: S108
    bind(temporary, f"{root}/tmp")  # noqa: S108


def _overlay_or_read_only(source: str, target: str, layers: _Layers) -> None:
    """Mounts an overlay of a host directory, or the directory itself read-only: an unprivileged user may not overlay a
    directory that has mounts below it."""
    if not os.path.isdir(target):
        return
    try:
        layers.mount(source, target)
    except OSError:
        bind(source, target)
        make_read_only(target)


def _mount_points(mounts: list[Mount]) -> dict[str, list[str]]:
    """Top-level directory -> mount points below it that have real files, outermost first."""
    points: dict[str, list[str]] = {}
    for _, _, point, kind in mounts:
        top, _, inner = point[1:].partition("/")
        if inner and top not in _NOT_OVERLAID and kind not in _PSEUDO_FILE_SYSTEMS:
            points.setdefault(top, []).append(point)
    return {top: sorted(set(found)) for top, found in points.items()}


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


def _make_mount_point(target: str, *, like: int, layers: _Layers) -> None:
    """A directory or a file, as `like` is one."""
    if os.path.exists(target):
        return
    target = os.path.realpath(target)  # a link may lead to a directory that the container does not have yet
    if stat.S_ISDIR(os.fstat(like).st_mode):
        _make_directories(target, layers)
        return
    _make_directories(os.path.dirname(target), layers)
    with open(target, "xb"):
        pass


def _make_directories(path: str, layers: _Layers) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except PermissionError:
        # An unprivileged user may not write to root's directories in an overlay, but owns the top of a new one.
        parent = os.path.realpath(path)
        while not os.path.isdir(parent):
            parent = os.path.dirname(parent)
        layers.mount(parent, parent)
        os.makedirs(path, exist_ok=True)


def _map_ids(user: int, group: int) -> None:
    """Maps the caller's ids to themselves: programs see the same user as outside, and files get the right owner."""
    for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(line)
