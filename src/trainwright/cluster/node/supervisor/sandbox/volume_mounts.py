"""The mounts of a container: volumes, what it shares with this machine, and covers over what it must not see.

Everything is opened before the root directory changes, and mounted by descriptor afterwards: what a path leads to may
change meanwhile. Standard library only.
"""

from __future__ import annotations

import errno
import os
import stat

from trainwright.cluster.linux import mounts
from trainwright.cluster.linux.hidden_directories import Covers, HiddenDirectories, covered_paths
from trainwright.cluster.linux.safe_paths import open_beneath, resolve_without_proc

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from trainwright.cluster.linux.container_roots import OverlayLayers
    from trainwright.cluster.node.supervisor.pod_json import MountJson

_PROCESSES = "proc"
"""The file system that shows processes, and through them the files that they see."""
_DEVICES = frozenset({"devtmpfs", "devpts"})
_KERNEL_SETTINGS = frozenset(
    {"sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "bpf", "configfs", "efivarfs", "pstore"}
)


class OpenVolume:
    """What is to be mounted at a target, by descriptor. See `enter_container` for the configuration."""

    def __init__(self, config: MountJson, hidden: HiddenDirectories, host_mounts: list[mounts.Mount]) -> None:
        self.descriptor = _open_source(config, hidden, host_mounts)
        self.source = os.readlink(f"/proc/self/fd/{self.descriptor}")
        self.of_machine = bool(config.get("hostPath"))
        self.read_only = bool(config.get("readOnly"))
        self.is_shared = "volume" not in config
        self.file_systems = file_systems_above(self.source, host_mounts)
        """The types of those in which it lies, the innermost last."""
        if self.of_machine:
            hidden.check(self.descriptor, f"hostPath {config['source']}")


class ContainerVolumes:
    """Opens them; `mount` mounts them in the new root directory and closes them."""

    def __init__(
        self, configs: list[MountJson], host_mounts: list[mounts.Mount], *, hidden: HiddenDirectories, privileged: bool
    ) -> None:
        self._hidden = hidden
        self._host_mounts = host_mounts
        self._privileged = privileged
        self._volumes = {str(config["target"]): OpenVolume(config, self._hidden, host_mounts) for config in configs}
        self._covers = Covers()
        self._points: dict[str, str] = {}
        """Targets without links."""
        for volume in self._volumes.values():
            if volume.of_machine and _PROCESSES in volume.file_systems and not privileged:
                raise OSError(errno.EACCES, f"hostPath {volume.source} shows the processes of this machine")

    @property
    def targets(self) -> set[str]:
        return set(self._volumes)

    @property
    def shared(self) -> list[str]:
        """What the container shares with this machine besides its volumes."""
        shared = [self._points[target] for target, volume in self._volumes.items() if volume.is_shared]
        return [*shared, *(path for path in self._covers.pinned if mounts.is_below(path, shared))]

    def mount(self, working_directory: str, overlays: OverlayLayers, *, host_files: bool, host_devices: bool) -> None:
        """Mounts volumes and covers, the outer ones first, and creates the working directory. `host_files`: the root
        directory has the files of this machine. `host_devices`: devices in volumes can be used."""
        points = self._points = {target: resolve_without_proc(target) for target in self._volumes}
        covered = self._covered(points, host_files=host_files)
        depths = {place: path.count("/") for place, path in (*points.items(), *zip(covered, covered, strict=True))}
        places = sorted(depths, key=depths.__getitem__)
        # Targets below another mount are created in it later, the others now: an overlay hides the mounts below it.
        for target in filter(lambda target: not mounts.is_below(target, places), self._volumes):
            _make_mount_point(target, like=self._volumes[target].descriptor, overlays=overlays)
        if not mounts.is_below(working_directory, places):
            _make_directories(resolve_without_proc(working_directory), overlays)
        for place in places:
            if volume := self._volumes.get(place):
                self._mount_volume(place, volume, overlays, no_devices=volume.of_machine and not host_devices)
            else:
                hidden, shared = covered[place]
                self._covers.add(place, self._hidden.identities[hidden], shared=shared)
        if not os.path.isdir(working_directory):
            os.makedirs(resolve_without_proc(working_directory))
        for place in self._covers.places:  # last, because mount points may have been created in them
            mounts.restrict(place, mounts.RDONLY, recursive=False)
        for volume in self._volumes.values():
            os.close(volume.descriptor)

    def _covered(self, points: dict[str, str], *, host_files: bool) -> dict[str, tuple[str, str]]:
        """Where empty directories are mounted over hidden ones: these, and the mounts in which they lie."""
        sources = [(points[target], volume.source) for target, volume in self._volumes.items()]
        covered = covered_paths(self._hidden.paths, sources)
        # Without the machine's files: an image may have a directory of the same name.
        return {place: (hidden, shared) for place, hidden, shared in covered if host_files or shared}

    def _mount_volume(self, target: str, volume: OpenVolume, overlays: OverlayLayers, *, no_devices: bool) -> None:
        point = _make_mount_point(target, like=volume.descriptor, overlays=overlays)
        mounts.bind(f"/proc/self/fd/{volume.descriptor}", point)
        restrict_mount(point, no_devices=no_devices, read_only=volume.read_only)
        if volume.of_machine and not self._privileged:
            self._protect_kernel(point, volume)

    def _protect_kernel(self, point: str, volume: OpenVolume) -> None:
        """What a volume has of the kernel's own file systems: processes are those of the pod, settings read-only."""
        if _KERNEL_SETTINGS & set(volume.file_systems):
            mounts.make_read_only(point)
        elif _DEVICES & set(volume.file_systems[-1:]):  # modes are those of the machine; /dev/shm is another mount
            mounts.restrict(point, mounts.RDONLY, recursive=False)
        for _, _, host_point, kind in self._host_mounts:
            if mounts.is_below(host_point, [volume.source]):
                place = point.rstrip("/") + host_point[len(volume.source.rstrip("/")) :]
                if kind == _PROCESSES and os.path.isdir(place):
                    mounts.hide(place)
                elif kind in _KERNEL_SETTINGS and os.path.exists(place):
                    mounts.make_read_only(place)
                elif kind in _DEVICES and os.path.exists(place):
                    mounts.restrict(place, mounts.RDONLY, recursive=False)


def file_systems_above(path: str, host_mounts: list[mounts.Mount]) -> list[str]:
    """The types of the file systems in which a path lies, also of those below which others are mounted; the innermost
    last. Pure."""
    above = [(len(point), kind) for _, _, point, kind in host_mounts if path == point or mounts.is_below(path, [point])]
    return [kind for _, kind in sorted(above, key=lambda pair: pair[0])]


def is_of_kernel(path: str, host_mounts: list[mounts.Mount]) -> bool:
    """Whether a new file at the path would be a device directory or a control group of the machine. Pure."""
    above = file_systems_above(path, host_mounts)
    return bool({*_KERNEL_SETTINGS, _PROCESSES} & set(above) or _DEVICES & set(above[-1:]))


def restrict_mount(point: str, *, no_devices: bool, read_only: bool) -> None:
    if no_devices:
        mounts.restrict(point, mounts.NODEV)  # the devices of a container are those in /dev
    if read_only:
        mounts.make_read_only(point)


def _check_existing_part(volume: str, inside: str, hidden: HiddenDirectories) -> None:
    """Before the rest of a path is made: not in a hidden directory."""
    while inside:
        try:
            descriptor = open_beneath(volume, inside)
        except FileNotFoundError:
            inside = os.path.dirname(inside)
            continue
        try:
            hidden.check(descriptor, f"hostPath {volume}/{inside}")
        finally:
            os.close(descriptor)
        return


def _open_source(source: MountJson, hidden: HiddenDirectories, host_mounts: list[mounts.Mount]) -> int:
    path, volume = str(source["source"]), source.get("volume")
    if volume is not None and path != volume:
        # A volume of medium Memory is empty: the agent could not create a directory in it.
        inside = os.path.relpath(path, str(volume))
        if source.get("hostPath"):
            _check_existing_part(str(volume), inside, hidden)
        return open_beneath(str(volume), inside, create=not is_of_kernel(path, host_mounts))
    if volume is None and not source.get("hostPath") and not os.path.exists(path):
        os.makedirs(path)  # a subPath of a pod that an earlier version has started
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


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
