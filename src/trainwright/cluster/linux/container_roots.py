"""The root directory of a container, made of overlays: of an image's layers, of the host's files, or of an image's
layers over the host's files.

The functions prepare the calling process, which has a mount namespace of its own. They use names relative to the
current directory, the container's scratch directory. Standard library only.
"""

from __future__ import annotations

import errno
import os
import stat

from trainwright.cluster.linux import mounts
from trainwright.cluster.linux.devices import make_dev, protect_kernel_files, share_host_dev

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Iterable

_NOT_OVERLAID = ("proc", "sys", "dev", "tmp", "run", "lost+found")
_PSEUDO_FILE_SYSTEMS = frozenset({"proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "autofs", "mqueue"})
_TEMPORARY = "/tmp"  # noqa: S108 - the container's own
_RUN = "/run"
_RESOLVER = "/etc/resolv.conf"
_MAX_RESOLVER_BYTES = 64 * 1024


class OverlayLayers:
    """Mounts overlays: `upper` has what the container writes, `path` links to the directory that it covers, and the
    links in `lower`, if there are any, lead to the directories of layers, the topmost first.

    The layers are in the scratch directory, or in memory where the kernel refuses that: for the directory that contains
    the scratch directory, and on file systems without the extended attributes that overlays need.
    """

    def __init__(self, user_namespace: bool, image: Iterable[str] = ()) -> None:
        """`image` are the directories of an image's layers that lie over the host's files, the topmost first."""
        self.user_namespace = user_namespace
        self.root = ""
        """Where the container's root is mounted."""
        self.targets: list[str] = []
        """The mount points in the container of what it may write to."""
        self._image = list(image)
        self._options = ",userxattr" if user_namespace else ""
        self._count = 0

    def mount_whole_host(self) -> bool:
        """One overlay of the host's root file system at the root; False where the kernel refuses it: in a user
        namespace, because of the mounts below it, and if it is an overlay itself."""
        if self.user_namespace or self._image:
            return False
        for name in ("host", "nothing"):
            os.mkdir(f"memory/{name}")
        try:
            # The layer is below `/` as well, which is forbidden for a lower directory, but not for one of an overlay.
            mounts.mount("overlay", "memory/host", "overlay", mounts.RDONLY, "lowerdir=/:memory/nothing")
            self._mount(["memory/host"], self.root, "layers/host", "/")
        except OSError:
            return False
        return True

    def mount_host(self, lower: str, target: str) -> None:
        """Over a directory of the host, and of the image if it has files there."""
        self.mount([*self.image_directories(lower), lower], target, path=lower)

    def mount(self, lowers: list[str], target: str, *, path: str) -> None:
        """`lowers` begin with the topmost."""
        self._count += 1
        try:
            self._mount(lowers, target, f"layers/{self._count}", path)
        except OSError:
            self._mount(lowers, target, f"memory/layers/{self._count}", path)
        self.targets.append(target.removeprefix(self.root) or "/")

    def image_directories(self, path: str) -> list[str]:
        """Where the layers of the image have this directory, down to the one that replaces those below it."""
        found: list[str] = []
        for layer in self._image:
            directory = layer + path
            try:
                status = os.lstat(directory)
            except OSError:
                continue
            if not stat.S_ISDIR(status.st_mode):
                break
            found.append(directory)
            if _is_opaque(directory):
                break
        return found

    def image_names(self) -> dict[str, str]:
        """What the layers of the image have in `/`: name -> path of the topmost."""
        found: dict[str, str] = {}
        for layer in self._image:
            for name in os.listdir(layer):
                found.setdefault(name, f"{layer}/{name}")
        return found

    def _mount(self, lowers: list[str], target: str, layer: str, path: str) -> None:
        os.mkdir(layer)
        os.mkdir(f"{layer}/upper")
        os.symlink(path, f"{layer}/path")
        os.chmod(f"{layer}/upper", stat.S_IMODE(os.stat(lowers[0]).st_mode))
        if _are_empty(lowers):  # an overlay would show the same, and takes ten times as long to mount
            mounts.bind(os.path.abspath(f"{layer}/upper"), target)
            mounts.restrict(target, mounts.NODEV)
            return
        os.mkdir(f"{layer}/work")
        options = f"lowerdir={_lower_option(lowers, layer)},upperdir={layer}/upper,workdir={layer}/work{self._options}"
        mounts.mount("overlay", target, "overlay", mounts.NODEV, options)


def _are_empty(directories: list[str]) -> bool:
    """False if it is not known."""
    try:
        return not any(os.listdir(directory) for directory in directories)
    except OSError:
        return False


def _lower_option(lowers: list[str], layer: str) -> str:
    """Links with short names for several: the options of a mount are one page at most."""
    if lowers == ["memory/host"] or lowers == [os.readlink(f"{layer}/path")]:
        return lowers[0].replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")
    os.mkdir(f"{layer}/lower")
    names = [f"{layer}/lower/{number}" for number in range(len(lowers))]
    for lower, name in zip(lowers, names, strict=True):
        os.symlink(lower, name)
    return ":".join(names)


def _is_opaque(directory: str) -> bool:
    for name in ("user.overlay.opaque", "trusted.overlay.opaque"):
        try:
            if os.getxattr(directory, name) == b"y":
                return True
        except OSError:
            continue
    return False


def populate_with_image(root: str, layers: OverlayLayers, image: list[str]) -> None:
    """The layers of an image, the topmost first, are the root."""
    layers.root = root
    layers.mount(image or [_empty_directory()], root, path="/")
    for name in ("proc", "sys", "dev"):
        _make_kernel_directory(f"{root}/{name}", name)


def _empty_directory() -> str:
    """The only layer of an image without any."""
    os.makedirs("layers/empty", exist_ok=True)
    return os.path.abspath("layers/empty")


def _make_kernel_directory(path: str, name: str) -> None:
    """A link of the image here would lead to the host's files."""
    try:
        os.mkdir(path)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise OSError(errno.ENOTDIR, f"/{name} of the image is not a directory") from None


def populate_with_host(
    root: str,
    layers: OverlayLayers,
    mount_points: list[str],
    *,
    replaced: set[str],
    private: Iterable[str] = (),
) -> None:
    """Fills the new root with the host's files. The directories in `replaced` are mounted later; those in `private` are
    the container's own, with nothing of the host."""
    layers.root = root
    if layers.mount_whole_host():
        for point in mount_points:
            if point not in replaced and not mounts.is_below(point, list(replaced)):
                _overlay_or_read_only(point, root + point, layers)
    else:
        _populate_with_directories(root, layers, mount_points, replaced)
    _make_temporary_directory(root, layers)
    _make_run_directory(root, layers)
    for path in private:  # the last one may be inside another
        if os.path.isdir(root + path):
            layers.mount([*layers.image_directories(path), _empty_directory()], root + path, path=path)
        else:
            os.makedirs(root + path)
    for name in ("sys", "dev", "proc"):
        os.makedirs(f"{root}/{name}", exist_ok=True)


def _populate_with_directories(root: str, layers: OverlayLayers, mount_points: list[str], replaced: set[str]) -> None:
    """The host's top-level directories, each as the lower directory of an overlay."""
    image = layers.image_names()
    for name in sorted({*os.listdir("/"), *image} - set(_NOT_OVERLAID)):
        source, target = f"/{name}", f"{root}/{name}"
        if name in image and not (os.path.isdir(source) and layers.image_directories(source)):
            _add_of_image(image[name], source, target, layers)
        elif os.path.islink(source):
            if name in image:
                _mount_with_link(source, target, layers)
            else:
                os.symlink(os.readlink(source), target)
        elif os.path.isdir(source):
            os.mkdir(target)
            if source not in replaced:
                points = [point for point in mount_points if mounts.is_below(point, [source])]
                _mount_host_directory(source, target, layers, points)
        elif os.path.isfile(source):
            _bind_file(source, target)


def _mount_host_directory(source: str, target: str, layers: OverlayLayers, points: list[str]) -> None:
    _overlay_or_read_only(source, target, layers)
    for point in points:
        _overlay_or_read_only(point, layers.root + point, layers)
    if source == "/var" and layers.user_namespace:
        # An ordinary user may write to a directory of root that is the top of an overlay, not to one below it.
        _overlay_or_read_only("/var/tmp", f"{target}/tmp", layers)  # noqa: S108


def _add_of_image(found: str, path: str, target: str, layers: OverlayLayers) -> None:
    """What the host does not have, or has as something else."""
    mode = os.lstat(found).st_mode
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(found), target)
    elif stat.S_ISDIR(mode):
        os.mkdir(target)
        layers.mount(layers.image_directories(path), target, path=path)
    elif stat.S_ISREG(mode):
        _bind_file(found, target)  # a device is a whiteout: the container does not have the name


def _mount_with_link(source: str, target: str, layers: OverlayLayers) -> None:
    """The host has a link such as /bin -> usr/bin, the image a directory: both are seen there."""
    os.mkdir(target)
    layers.mount([*layers.image_directories(source), os.path.realpath(source)], target, path=source)


def _bind_file(source: str, target: str) -> None:
    with open(target, "xb"):
        pass
    mounts.bind(source, target)
    mounts.make_read_only(target)


def _make_temporary_directory(root: str, layers: OverlayLayers) -> None:
    """The container's own /tmp, on the disk."""
    os.makedirs(root + _TEMPORARY, exist_ok=True)
    if found := layers.image_directories(_TEMPORARY):
        layers.mount(found, root + _TEMPORARY, path=_TEMPORARY)
        return
    temporary = os.path.abspath("layers/tmp/upper")
    os.makedirs(temporary)
    os.symlink(_TEMPORARY, "layers/tmp/path")
    os.chmod(temporary, 0o1777)  # noqa: S103 - the mode of /tmp; the pod's directory above it is private
    mounts.bind(temporary, root + _TEMPORARY)
    layers.targets.append(_TEMPORARY)


def _make_run_directory(root: str, layers: OverlayLayers) -> None:
    """The container's own /run, in memory. The machine's has the sockets of its services, through which the user of the
    pod could start programs outside of it. Links are there too, and what /etc/resolv.conf leads to."""
    if not os.path.isdir(_RUN):
        return
    own = os.path.abspath("memory/run")
    os.mkdir(own)
    for entry in os.scandir(_RUN):
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), f"{own}/{entry.name}")
    resolver = os.path.realpath(_RESOLVER)
    if mounts.is_below(resolver, [_RUN]) and os.access(resolver, os.R_OK):
        copy = own + resolver.removeprefix(_RUN)
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        with open(resolver, "rb") as source, open(copy, "wb") as target:
            target.write(source.read(_MAX_RESOLVER_BYTES))
    place = os.path.realpath(_RUN)
    os.makedirs(root + place, exist_ok=True)
    if found := layers.image_directories(_RUN):
        layers.mount([*found, own], root + place, path=_RUN)
    else:
        mounts.bind(own, root + place)
        layers.targets.append(place)


def _overlay_or_read_only(source: str, target: str, layers: OverlayLayers) -> None:
    """Mounts an overlay of a host directory, or the directory itself read-only: an unprivileged user may not overlay a
    directory that has mounts below it."""
    if not os.path.isdir(target):
        return
    try:
        layers.mount_host(source, target)
    except OSError:
        mounts.bind(source, target)
        mounts.make_read_only(target)


def mount_points(host_mounts: list[mounts.Mount]) -> list[str]:
    """The mount points that have real files, outermost first, without `/`."""
    points = {point for _, _, point, kind in host_mounts if kind not in _PSEUDO_FILE_SYSTEMS}
    return sorted(point for point in points if point.split("/")[1] not in {*_NOT_OVERLAID, ""})


def mount_kernel_directories(
    root: str, *, user_namespace: bool, privileged: bool, devices: list[str], shared_memory: str
) -> None:
    """/dev, /sys and /proc, which exist in the root."""
    if privileged:
        share_host_dev(f"{root}/dev", shared_memory=shared_memory)
    else:
        make_dev(f"{root}/dev", devices=devices, shared_memory=shared_memory)
    mounts.bind("/sys", f"{root}/sys")
    try:
        mounts.mount("proc", f"{root}/proc", "proc", mounts.NOSUID | mounts.NODEV)
    except OSError:
        mounts.bind("/proc", f"{root}/proc")  # in a container with a masked /proc the kernel refuses a new one
    if not privileged:
        mounts.make_read_only(f"{root}/sys")
        if not user_namespace:  # an ordinary user has no access anyway
            protect_kernel_files(root)
