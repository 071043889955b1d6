"""The sandbox of a pod, made of Linux namespaces and mounts; each function prepares the calling process.

`overlay`: the host's files below a private writable layer, volumes at their mount paths, and a pid namespace, hostname
and shared memory of the pod's own. `plain`: no isolation, orphaned processes are reaped. Standard library only.
"""

import ctypes
import errno
import os
import stat

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
_MS_RDONLY = 0x1
_MS_NOSUID = 0x2
_MS_NODEV = 0x4
_MS_REMOUNT = 0x20
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_PRIVATE = 0x40000
_MS_SLAVE = 0x80000
_MS_RELATIME = 0x200000
_ST_RELATIME = 0x1000
# nosuid, nodev, noexec, noatime and nodiratime: an unprivileged user may not drop them.
_ST_KEPT = 0x2 | 0x4 | 0x8 | 0x400 | 0x800
_MNT_DETACH = 0x2
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}

_OLD_ROOT = "/.host"
_NOT_OVERLAID = ("proc", "sys", "dev", "tmp", "lost+found")
_PSEUDO_FILE_SYSTEMS = frozenset({"proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "autofs", "mqueue"})

_libc = ctypes.CDLL(None, use_errno=True)


def enter_pod(directory: str, *, hostname: str, user_namespace: bool, memory_volumes: list[dict[str, object]]) -> None:
    """Moves this process into new namespaces for a pod; its next child is pid 1 of the pod.

    `user_namespace` creates a user namespace as well, which an unprivileged user needs. `directory` is the pod's: the
    shared memory of its containers is mounted at `shm` in it, volumes of medium Memory at their paths.
    """
    user, group = os.getuid(), os.getgid()
    namespaces = _CLONE_NEWNS | _CLONE_NEWPID | _CLONE_NEWUTS | _CLONE_NEWIPC
    _check(_libc.unshare(namespaces | (_CLONE_NEWUSER if user_namespace else 0)), "create namespaces")
    if user_namespace:
        _map_ids(user, group)
    name = hostname.encode()
    _check(_libc.sethostname(name, len(name)), f"set the hostname {hostname}")
    # Mounts propagate from the host to the pod only: a pod must not keep a disk of the host busy.
    _mount(None, "/", None, _MS_REC | _MS_SLAVE)
    shared_memory = os.path.join(directory, "shm")
    os.makedirs(shared_memory, exist_ok=True)
    _mount("tmpfs", shared_memory, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777")
    for volume in memory_volumes:
        size = f",size={volume['size']}" if volume.get("size") else ""
        _mount("tmpfs", str(volume["path"]), "tmpfs", _MS_NOSUID | _MS_NODEV, f"mode=1777{size}")


def mount_proc(directory: str) -> str | None:
    """As pid 1: mounts a /proc with the pod's processes and returns its path; None where that is forbidden."""
    proc = os.path.join(directory, "proc")
    os.makedirs(proc, exist_ok=True)
    try:
        _mount("proc", proc, "proc", _MS_NOSUID | _MS_NODEV)
    except OSError:
        return None
    return proc


def enter_container(
    directory: str, *, scratch: str, mounts: list[dict[str, object]], working_directory: str, user_namespace: bool
) -> None:
    """Gives this process, a child of pid 1, the root file system of one container.

    `scratch` is an empty directory for writes outside of volumes. Each mount has a `source` on the host, a `target` and
    `readOnly`; targets and the working directory need not exist on the host.
    """
    sources = {str(mount["target"]): os.path.realpath(str(mount["source"])) for mount in mounts}
    for source in sources.values():
        if not os.path.exists(source):  # in a volume of medium Memory, which the agent cannot see
            os.makedirs(source)
    _check(_libc.unshare(_CLONE_NEWNS), "create a mount namespace")
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    root = os.path.join(directory, "root")
    os.makedirs(root, exist_ok=True)
    _mount("tmpfs", root, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755")
    # Relative to the scratch directory, because the options of an overlay cannot hold every character of a path.
    os.chdir(scratch)
    overlays = _Overlays(user_namespace)
    _populate_root(root, overlays, shared_memory=os.path.join(directory, "shm"))
    os.mkdir(root + _OLD_ROOT)
    _pivot_root(root, root + _OLD_ROOT)
    ordered = sorted(mounts, key=lambda mount: str(mount["target"]).count("/"))
    targets = [str(mount["target"]) for mount in ordered]
    # Targets below another mount are created in it later, the others now: an overlay hides the mounts below it.
    for target in filter(lambda target: not _is_below(target, targets), targets):
        _make_mount_point(target, like=_OLD_ROOT + sources[target], overlays=overlays)
    if not _is_below(working_directory, targets):
        _make_directories(working_directory, overlays)
    for mount, target in zip(ordered, targets, strict=True):
        source = _OLD_ROOT + sources[target]
        _make_mount_point(target, like=source, overlays=overlays)
        _bind(source, target)
        if mount.get("readOnly"):
            _make_read_only(target)
    if not os.path.isdir(working_directory):
        os.makedirs(working_directory)
    os.chdir("/")
    _check(_libc.umount2(_OLD_ROOT.encode(), _MNT_DETACH), "detach the host's root")
    os.rmdir(_OLD_ROOT)


def become_subreaper() -> None:
    """At `plain`: orphaned descendants become children of this process."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "become the reaper of orphans")


def die_with_parent(signal_number: int) -> None:
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "ask for a signal at the parent's end")


class _Overlays:
    """Mounts overlays whose upper directory is below the scratch directory, or in memory where the kernel refuses that.

    The kernel refuses it for the directory that contains the scratch directory, and on file systems without the
    extended attributes that overlays need.
    """

    def __init__(self, user_namespace: bool) -> None:
        self._options = ",userxattr" if user_namespace else ""

    def mount(self, lower: str, target: str) -> None:
        try:
            self._mount(lower, target, "disk")
        except OSError:
            os.makedirs("memory", exist_ok=True)
            if not os.path.ismount("memory"):
                _mount("tmpfs", "memory", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755")
            self._mount(lower, target, "memory")

    def _mount(self, lower: str, target: str, storage: str) -> None:
        layer = f"{storage}/{target.replace('/', '%')}"
        if os.path.exists(layer):
            layer = f"{layer}%again"
        os.makedirs(f"{layer}/upper")
        os.makedirs(f"{layer}/work")
        found = os.stat(lower)
        os.chmod(f"{layer}/upper", stat.S_IMODE(found.st_mode))
        escaped = lower.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")
        options = f"lowerdir={escaped},upperdir={layer}/upper,workdir={layer}/work{self._options}"
        _mount("overlay", target, "overlay", 0, options)


def _populate_root(root: str, overlays: _Overlays, *, shared_memory: str) -> None:
    """Fills the new root with the host's top-level directories, each as the lower directory of an overlay.

    One overlay of `/` is enough for root, but is refused to unprivileged users, because `/` has locked mounts.
    """
    mount_points = _mount_points()
    for name in sorted(os.listdir("/")):
        source, target = f"/{name}", f"{root}/{name}"
        if os.path.islink(source):
            os.symlink(os.readlink(source), target)
        elif name in _NOT_OVERLAID:
            continue
        elif os.path.isdir(source):
            os.mkdir(target)
            _overlay_or_bind(source, target, overlays)
            for point in mount_points.get(name, ()):
                _overlay_or_bind(point, root + point, overlays)
        elif os.path.isfile(source):
            with open(target, "xb"):
                pass
            _bind(source, target)
    os.mkdir("tmp")
    for name, source in (("sys", "/sys"), ("dev", "/dev"), ("tmp", os.path.abspath("tmp"))):
        os.mkdir(f"{root}/{name}")
        _bind(source, f"{root}/{name}")
    os.chmod("tmp", 0o1777)  # noqa: S103 - the mode of /tmp; the pod's directory above it is private
    if os.path.isdir("/dev/shm"):  # noqa: S108
        _bind(shared_memory, f"{root}/dev/shm")  # noqa: S108
    os.mkdir(f"{root}/proc")
    try:
        _mount("proc", f"{root}/proc", "proc", _MS_NOSUID | _MS_NODEV)
    except OSError:
        _bind("/proc", f"{root}/proc")  # in a container with a masked /proc the kernel refuses a new one


def _overlay_or_bind(source: str, target: str, overlays: _Overlays) -> None:
    """Mounts an overlay of a host directory, or the directory itself: an unprivileged user may not overlay a directory
    that has mounts below it."""
    if not os.path.isdir(target):
        return
    try:
        overlays.mount(source, target)
    except OSError:
        _bind(source, target)


def _mount_points() -> dict[str, list[str]]:
    """Top-level directory -> mount points below it that have real files, outermost first."""
    points: dict[str, list[str]] = {}
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            fields, _, rest = line.partition(" - ")
            point = fields.split()[4]
            for octal in ("040", "011", "012", "134"):
                point = point.replace(f"\\{octal}", chr(int(octal, 8)))
            top, _, inner = point[1:].partition("/")
            if inner and top not in _NOT_OVERLAID and rest.split()[0] not in _PSEUDO_FILE_SYSTEMS:
                points.setdefault(top, []).append(point)
    return {top: sorted(set(found)) for top, found in points.items()}


def _is_below(path: str, targets: list[str]) -> bool:
    return any(path.startswith(target.rstrip("/") + "/") for target in targets)


def _make_mount_point(target: str, *, like: str, overlays: _Overlays) -> None:
    if os.path.exists(target):
        return
    if os.path.isdir(like):
        _make_directories(target, overlays)
        return
    _make_directories(os.path.dirname(target), overlays)
    with open(target, "xb"):
        pass


def _make_directories(path: str, overlays: _Overlays) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except PermissionError:
        # An unprivileged user may not write to root's directories in an overlay, but owns the top of a new one.
        parent = os.path.realpath(path)
        while not os.path.isdir(parent):
            parent = os.path.dirname(parent)
        overlays.mount(parent, parent)
        os.makedirs(path, exist_ok=True)


def _map_ids(user: int, group: int) -> None:
    """Maps the caller's ids to themselves: programs see the same user as outside, and files get the right owner."""
    for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(line)


def _bind(source: str, target: str) -> None:
    _mount(source, target, None, _MS_BIND | _MS_REC)


def _make_read_only(target: str) -> None:
    present = os.statvfs(target).f_flag
    kept = (present & _ST_KEPT) | (_MS_RELATIME if present & _ST_RELATIME else 0)
    _mount(None, target, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | kept)


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    encoded = [os.fsencode(text) if text is not None else None for text in (source, target, kind, options)]
    result = _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    _check(result, f"mount {kind or source or 'flags'} on {target}")


def _pivot_root(new: str, old: str) -> None:
    number = _SYS_PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"change the root directory: unknown processor {os.uname().machine}")
    _check(_libc.syscall(ctypes.c_long(number), os.fsencode(new), os.fsencode(old)), "change the root directory")


def _check(result: int, step: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot {step}: {os.strerror(number)}")
