"""Control groups: limits of memory, CPU and processes for containers, in version 1 or 2 of the kernel's interface.

The agent finds a directory of every controller that it may write to; supervisors make one below it for each of their
containers and remove it afterwards. Standard library only.
"""

from __future__ import annotations

import errno
import os
import time

from trainwright.cluster.node.supervisor.files import read_text

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from trainwright.cluster.node.supervisor.pod_json import LimitsJson, PodJson

CONTROLLERS = ("memory", "cpu", "pids")
PERIOD = 100_000
"""The period of the CPU quota, in microseconds."""

_ROOT = "/sys/fs/cgroup"
_ATTEMPTS = 5
_FILE_SYSTEMS = {"cgroup", "cgroup2"}

Directories = dict[str, str]
"""By controller; the same one for all of them in version 2."""


def find_directories(name: str) -> tuple[Directories, str]:
    """Where the directory `name` can be made for the limits of a node; or none, and why not.

    It is made with the first container that has limits, and removed with the last pod.
    """
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            mounts = file.read().splitlines()
        with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as file:
            own = file.read().splitlines()
    except OSError as error:
        return {}, f"{error.filename}: {error.strerror}"
    candidates = own_directories(mounts, own)
    if set(CONTROLLERS[:2]) <= candidates.keys() - {""}:
        found, reason = _try_version_1(candidates, name)
    elif "" in candidates:
        found, reason = _try_version_2(candidates[""], name)
    else:
        return {}, "no cgroup controllers for memory and cpu are mounted"
    for path in found.values():
        _try_rmdir(path)
    return found, reason


def own_directories(mounts: list[str], own: list[str]) -> Directories:
    """The directories of this process by controller, from the lines of /proc/self/mountinfo and /proc/self/cgroup. That
    of version 2 has no name. Pure."""
    paths = {}
    for line in own:
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        for name in names.split(","):
            paths[name] = path
    found: Directories = {}
    for line in mounts:
        fields, _, rest = line.partition(" - ")
        root, point = fields.split()[3:5]
        kind, _, options = rest.split()[:3]
        if kind not in _FILE_SYSTEMS:
            continue
        controllers = [""] if kind == "cgroup2" else [name for name in options.split(",") if name in CONTROLLERS]
        for controller in controllers:
            if controller in paths:
                path, top = paths[controller], root.rstrip("/")
                inside = path[len(top) :] if path.startswith(f"{top}/") else ""
                found.setdefault(controller, point + inside.rstrip("/"))
    return found


def _try_version_1(candidates: Directories, name: str) -> tuple[Directories, str]:
    made: Directories = {}
    for controller in CONTROLLERS:
        if controller not in candidates:
            continue
        directory = f"{candidates[controller]}/{name}"
        try:
            os.makedirs(directory, exist_ok=True)
        except OSError as error:
            for path in made.values():
                _try_rmdir(path)
            return {}, f"{directory}: {error.strerror}"
        made[controller] = directory
    return made, ""


def _try_version_2(own: str, name: str) -> tuple[Directories, str]:
    """In the nearest directory whose children have the controllers. Processes may be in no directory that has them."""
    reason, above = "", own
    while above.startswith(_ROOT):
        enabled = read_text(f"{above}/cgroup.subtree_control").split()
        missing = [controller for controller in CONTROLLERS if controller not in enabled]
        try:
            if missing:
                _write(f"{above}/cgroup.subtree_control", " ".join(f"+{controller}" for controller in missing))
            os.makedirs(f"{above}/{name}", exist_ok=True)
            _enable_controllers(f"{above}/{name}")
        except OSError as error:
            reason = reason or f"{above}: {error.strerror}"
            above = os.path.dirname(above)
            continue
        return dict.fromkeys(CONTROLLERS, f"{above}/{name}"), ""
    return {}, reason or "no directory of the cgroup file system can be used"


def _enable_controllers(directory: str) -> None:
    _write(f"{directory}/cgroup.subtree_control", " ".join(f"+{controller}" for controller in CONTROLLERS))


def container_directories(directories: Directories, name: str) -> list[str]:
    """Those of one container in those of its pod."""
    return [f"{directory}/{name}" for directory in dict.fromkeys(directories.values())]


def enter(paths: list[str], limits: LimitsJson) -> None:
    """Makes the directories of a container, sets its limits, and moves the calling process there, with its later
    children."""
    for path in paths:
        _make(path)
        for name, value in _settings(path, limits).items():
            if os.path.exists(f"{path}/{name}"):
                _write(f"{path}/{name}", value)
        _write(f"{path}/cgroup.procs", "0")


def _make(path: str) -> None:
    for attempt in range(_ATTEMPTS):
        try:
            os.makedirs(path, exist_ok=True)
            if _is_version_2(path):
                pod = os.path.dirname(path)
                _enable_controllers(os.path.dirname(pod))
                _enable_controllers(pod)
            return
        except FileNotFoundError:  # the last other pod has just removed the node's directory
            if attempt == _ATTEMPTS - 1:
                raise


def _settings(path: str, limits: LimitsJson) -> dict[str, str]:
    """File -> content; those of other controllers do not exist."""
    version_2 = _is_version_2(path)
    settings = {}
    if memory := limits.get("memory"):
        settings["memory.max" if version_2 else "memory.limit_in_bytes"] = str(memory)
        settings["memory.oom.group"] = "1"
    if quota := limits.get("cpuQuota"):
        if version_2:
            settings["cpu.max"] = f"{quota} {PERIOD}"
        else:
            settings |= {"cpu.cfs_period_us": str(PERIOD), "cpu.cfs_quota_us": str(quota)}
    if shares := limits.get("cpuShares"):
        settings["cpu.weight" if version_2 else "cpu.shares"] = str(weight_of(shares) if version_2 else shares)
    if pids := limits.get("pids"):
        settings["pids.max"] = str(pids)
    return settings


def weight_of(shares: int) -> int:
    """cpu.weight (1 to 10,000) for cpu.shares (2 to 262,144), as the kubelet converts it."""
    return 1 + (max(2, min(shares, 262_144)) - 2) * 9999 // 262_142


def oom_kills(paths: list[str]) -> int:
    """How many processes the kernel has killed because the memory limit was reached."""
    for path in paths:
        for name in ("memory.events", "memory.oom_control"):
            for line in read_text(f"{path}/{name}").splitlines():
                key, _, value = line.partition(" ")
                if key == "oom_kill":
                    return int(value)
    return 0


def remove(directories: Directories, *, seconds: float = 0.0) -> bool:
    """Removes the directories if no process is in them. Waits for killed ones to end."""
    deadline = time.monotonic() + seconds
    while not remove_directories(list(dict.fromkeys(directories.values()))):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True


def remove_pod(pod: PodJson | None) -> bool:
    """Removes the directories of a pod, and those of the node if it was the last one."""
    directories = (pod.get("cgroups") if pod else None) or {}
    removed = remove(directories)
    for directory in directories.values():
        _try_rmdir(os.path.dirname(directory))
    return removed


def _try_rmdir(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:
        pass  # it does not exist, or is in use


def remove_directories(paths: list[str]) -> bool:
    """True if none is left."""
    left = [path for path in paths if not _remove_tree(path)]
    return not left


def _remove_tree(path: str) -> bool:
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        return True
    for name in names:
        if os.path.isdir(f"{path}/{name}"):
            _remove_tree(f"{path}/{name}")
    try:
        os.rmdir(path)
    except OSError as error:
        return error.errno == errno.ENOENT
    return True


def _is_version_2(path: str) -> bool:
    return os.path.exists(f"{path}/cgroup.controllers")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
