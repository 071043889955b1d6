"""The sandbox of a pod, made of Linux namespaces and mounts; each function prepares the calling process.

`overlay`: the host's files below private writable layers, volumes at their mount paths, and a pid namespace, hostname
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

Mount = tuple[str, str, str, str]
"""Device, root in its file system, mount point and type."""


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


def make_scratch(scratch: str) -> None:
    """As pid 1: creates the directory for what a container writes outside of volumes.

    Its `memory` is mounted in the pod and not in the container, so that it can be read when the container has ended.
    """
    os.makedirs(f"{scratch}/layers")
    os.mkdir(f"{scratch}/memory")
    _mount("tmpfs", f"{scratch}/memory", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755")
    os.mkdir(f"{scratch}/memory/root")
    os.mkdir(f"{scratch}/memory/layers")


def unmount_memory(scratch: str) -> None:
    """As pid 1, when the container has ended."""
    _libc.umount2(os.fsencode(f"{scratch}/memory"), _MNT_DETACH)


def enter_container(
    directory: str,
    *,
    scratch: str,
    mounts: list[dict[str, object]],
    hidden: list[str],
    working_directory: str,
    user_namespace: bool,
) -> None:
    """Gives this process, a child of pid 1, the root file system of one container.

    `scratch` is from `make_scratch`. Each mount has a `source` on the host, a `target` and `readOnly`; targets and the
    working directory need not exist on the host. `hidden` are directories of the host that the container sees empty,
    by their real paths.
    """
    sources = {str(mount["target"]): os.path.realpath(str(mount["source"])) for mount in mounts}
    for source in sources.values():
        if not os.path.exists(source):  # in a volume of medium Memory, which the agent cannot see
            os.makedirs(source)
    _check(_libc.unshare(_CLONE_NEWNS), "create a mount namespace")
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    # Relative to the scratch directory, because the options of an overlay cannot hold every character of a path.
    os.chdir(scratch)
    root = os.path.abspath("memory/root")
    _bind(root, root)
    host_mounts = _read_mounts()
    hidden = [alias for path in hidden for alias in _aliases(path, host_mounts)]
    layers = _Layers(user_namespace)
    _populate_root(
        root, layers, _mount_points(host_mounts), replaced=set(sources), shared_memory=os.path.join(directory, "shm")
    )
    os.mkdir(root + _OLD_ROOT)
    _pivot_root(root, root + _OLD_ROOT)
    real = {target: os.path.realpath(target) for target in sources}
    covered = covered_paths(hidden, [(real[target], source) for target, source in sources.items()])
    read_only = {str(mount["target"]): bool(mount.get("readOnly")) for mount in mounts}
    real.update((path, path) for path in covered)
    places = list(real)
    # Targets below another mount are created in it later, the others now: an overlay hides the mounts below it.
    for target in filter(lambda target: not _is_below(target, places), sources):
        _make_mount_point(target, like=_OLD_ROOT + sources[target], layers=layers)
    if not _is_below(working_directory, places):
        _make_directories(working_directory, layers)
    covers = []
    for place in sorted(places, key=lambda place: real[place].count("/")):
        if place in sources:
            source = _OLD_ROOT + sources[place]
            _make_mount_point(place, like=source, layers=layers)
            _bind(source, place)
            if read_only[place]:
                _make_read_only(place)
        elif os.path.isdir(place):
            _mount("tmpfs", place, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755")
            covers.append(place)
    if not os.path.isdir(working_directory):
        os.makedirs(working_directory)
    for place in covers:  # last, because mount points may have been created in them
        _make_read_only(place)
    os.chdir("/")
    _check(_libc.umount2(_OLD_ROOT.encode(), _MNT_DETACH), "detach the host's root")
    os.rmdir(_OLD_ROOT)


def covered_paths(hidden: list[str], mounts: list[tuple[str, str]]) -> list[str]:
    """Where a container would see the hidden directories: at their own paths, and in mounts of directories above them.

    `mounts` are pairs of target and source, by their real paths. A mount of a hidden directory itself was asked for by
    name and stays visible.
    """
    found: dict[str, None] = {}
    for path in hidden:
        above = [(target, source.rstrip("/")) for target, source in mounts if _is_below(path, [source])]
        inside = [target + path[len(source) :] for target, source in above]
        for candidate in (path, *inside):
            if _seen_at(candidate, mounts) == path:
                found[candidate] = None
    return list(found)


def _seen_at(path: str, mounts: list[tuple[str, str]]) -> str | None:
    """The host's directory that a container sees at a path; None where a mount is exactly there."""
    above = [(target, source) for target, source in mounts if _is_below(path, [target])]
    if any(path == target for target, _ in mounts):
        return None
    target, source = max(above, key=lambda mount: len(mount[0]), default=("", ""))
    return source.rstrip("/") + path[len(target.rstrip("/")) :]


def become_subreaper() -> None:
    """At `plain`: orphaned descendants become children of this process."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "become the reaper of orphans")


def die_with_parent(signal_number: int) -> None:
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "ask for a signal at the parent's end")


class _Layers:
    """Mounts overlays over directories of the host: `upper` has what the container writes, `path` links to the
    directory.

    The layers are in the scratch directory, or in memory where the kernel refuses that: for the directory that contains
    the scratch directory, and on file systems without the extended attributes that overlays need.
    """

    def __init__(self, user_namespace: bool) -> None:
        self.user_namespace = user_namespace
        self._options = ",userxattr" if user_namespace else ""
        self._count = 0

    def mount(self, lower: str, target: str) -> None:
        self._count += 1
        try:
            self._mount(lower, target, f"layers/{self._count}")
        except OSError:
            self._mount(lower, target, f"memory/layers/{self._count}")

    def _mount(self, lower: str, target: str, layer: str) -> None:
        os.makedirs(f"{layer}/upper")
        os.mkdir(f"{layer}/work")
        os.symlink(lower, f"{layer}/path")
        os.chmod(f"{layer}/upper", stat.S_IMODE(os.stat(lower).st_mode))
        escaped = lower.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")
        options = f"lowerdir={escaped},upperdir={layer}/upper,workdir={layer}/work{self._options}"
        _mount("overlay", target, "overlay", 0, options)


def _populate_root(
    root: str, layers: _Layers, mount_points: dict[str, list[str]], *, replaced: set[str], shared_memory: str
) -> None:
    """Fills the new root with the host's top-level directories, each as the lower directory of an overlay.

    One overlay of `/` is enough for root, but is refused to unprivileged users, because `/` has locked mounts. The
    directories in `replaced` are mounted later.
    """
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
            _overlay_or_bind(source, target, layers)
            for point in mount_points.get(name, ()):
                _overlay_or_bind(point, root + point, layers)
            if name == "var" and layers.user_namespace:
                # An ordinary user may write to a directory of root that is the top of an overlay, not to one below it.
                _overlay_or_bind("/var/tmp", f"{root}/var/tmp", layers)  # noqa: S108
        elif os.path.isfile(source):
            with open(target, "xb"):
                pass
            _bind(source, target)
    temporary = os.path.abspath("layers/tmp/upper")
    os.makedirs(temporary)
    os.symlink("/tmp", "layers/tmp/path")  # noqa: S108
    os.chmod(temporary, 0o1777)  # noqa: S103 - the mode of /tmp; the pod's directory above it is private
    for name, source in (("sys", "/sys"), ("dev", "/dev"), ("tmp", temporary)):
        os.mkdir(f"{root}/{name}")
        _bind(source, f"{root}/{name}")
    if os.path.isdir("/dev/shm"):  # noqa: S108
        _bind(shared_memory, f"{root}/dev/shm")  # noqa: S108
    os.mkdir(f"{root}/proc")
    try:
        _mount("proc", f"{root}/proc", "proc", _MS_NOSUID | _MS_NODEV)
    except OSError:
        _bind("/proc", f"{root}/proc")  # in a container with a masked /proc the kernel refuses a new one


def _overlay_or_bind(source: str, target: str, layers: _Layers) -> None:
    """Mounts an overlay of a host directory, or the directory itself: an unprivileged user may not overlay a directory
    that has mounts below it."""
    if not os.path.isdir(target):
        return
    try:
        layers.mount(source, target)
    except OSError:
        _bind(source, target)


def _read_mounts() -> list[Mount]:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        return [_parse_mount(line) for line in lines]


def _parse_mount(line: str) -> Mount:
    fields, _, rest = line.partition(" - ")
    device, root, point = fields.split()[2:5]
    return device, _unescape(root), _unescape(point), rest.split()[0]


def _unescape(path: str) -> str:
    for octal in ("040", "011", "012", "134"):
        path = path.replace(f"\\{octal}", chr(int(octal, 8)))
    return path


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
        if path == point or _is_below(path, [point]):
            inside = root.rstrip("/") + path[len(point.rstrip("/")) :]
            for other, other_root, other_point, _ in mounts:
                if other == device and (inside == other_root or _is_below(inside, [other_root])):
                    found.append(other_point.rstrip("/") + inside[len(other_root.rstrip("/")) :])
    return list(dict.fromkeys(found))


def _aliases(path: str, mounts: list[Mount]) -> list[str]:
    """Those of them that are the same directory."""
    if not os.path.exists(path):
        return [path]
    possible = filter(os.path.exists, possible_aliases(path, mounts))
    return [one for one in possible if os.path.samefile(one, path)]


def _is_below(path: str, targets: list[str]) -> bool:
    return any(path.startswith(target.rstrip("/") + "/") for target in targets)


def _make_mount_point(target: str, *, like: str, layers: _Layers) -> None:
    if os.path.exists(target):
        return
    target = os.path.realpath(target)  # a link may lead to a directory that the container does not have yet
    if os.path.isdir(like):
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
