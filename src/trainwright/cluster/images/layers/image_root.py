"""Runs a process on the files of an image, as RUN of a build does: what it writes is in an overlay's upper directory.

Called as the root of containers, see `namespace`. The process has mounts, processes, devices and a host name of its
own, and the network of this machine or none.
"""

import fcntl
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from trainwright.cluster.linux.container_roots import (
    OverlayLayers,
    mount_kernel_directories,
    mount_points,
    populate_with_host,
    populate_with_image,
)
from trainwright.cluster.linux.hidden_directories import Covers, HiddenDirectories
from trainwright.cluster.linux.mounts import (
    NODEV,
    PRIVATE,
    RDONLY,
    REC,
    bind,
    check,
    libc,
    make_read_only,
    mount,
    pivot_root,
    read_mounts,
    restrict,
    unmount,
)
from trainwright.cluster.linux.privileges import die_with_parent
from trainwright.cluster.linux.safe_paths import resolve_without_proc

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWPID = 0x20000000
_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_EXIT_NOT_STARTED = 125
_ROOT_LAYER = "memory/layers/root"
"""What is written to `/` itself, where the files of this machine are the root, and the names of its mount points."""


@dataclass(frozen=True, slots=True)
class Bind:
    """A file or directory of this machine that the process sees at `target`."""

    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRoot:
    """The root directory of a process: the layers of an image, the topmost first.

    `scratch` is an empty directory: `written` lists what the process has written there. `host_files`: the layers lie
    over the files of this machine, of which the process sees the `hidden` directories and files empty. `prepare` is
    called before the root is made: it may mount things, which end with the process, and returns more binds.
    """

    layers: list[str]
    scratch: str
    binds: Iterable[Bind] = ()
    host_files: bool = False
    hidden: Iterable[str] = ()
    prepare: Callable[[], Iterable[Bind]] = tuple


def run_in_image_root(root: ImageRoot, execute: Callable[[], object], *, network: bool = True) -> int:
    """Runs `execute`, which executes a program or returns, as process 1 of a new root directory. Returns the wait
    status; every process below it has ended then.

    Without `network` the process has a loopback device alone. Raises OSError if the root directory cannot be made.

    `execute` must not import modules: the process no longer sees the files of this Python.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _exit_with(reader, lambda: _run_in_namespaces(root, execute, writer, network=network))
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        error = pipe.read()
    _, status = os.waitpid(child, 0)
    if error:
        number, _, text = error.decode(errors="replace").partition(" ")
        raise OSError(int(number), text)
    return status


def written(scratch: str) -> list[tuple[str, str]]:
    """Directories with what was written (overlayfs' upper directories), and the paths at which they were seen."""
    _remove_mount_points(f"{scratch}/{_ROOT_LAYER}")
    parents = [path for path in (f"{scratch}/layers", f"{scratch}/memory/layers") if os.path.isdir(path)]
    layers = [f"{parent}/{name}" for parent in parents for name in os.listdir(parent)]
    found = [
        (f"{layer}/upper", os.readlink(f"{layer}/path"))
        for layer in layers
        if os.path.islink(f"{layer}/path") and os.path.isdir(f"{layer}/upper")
    ]
    return sorted(found, key=lambda pair: pair[1])


def _remove_mount_points(layer: str) -> None:
    """Those that `/` got before the process ran; what it added stays."""
    try:
        with open(f"{layer}/mount-points", encoding="utf-8", errors="surrogateescape") as file:
            names = file.read().split("\0")
    except FileNotFoundError:
        return
    for name in names:
        path = f"{layer}/upper/{name}"
        with suppress(OSError):
            if os.path.isdir(path) and not os.path.islink(path):
                os.rmdir(path)
            else:
                os.unlink(path)


def _enter(wanted: ImageRoot) -> None:
    """Gives this process, which has namespaces of its own, the root directory."""
    mount(None, "/", None, REC | PRIVATE)
    sources = [(os.open(bind.source, os.O_PATH | os.O_CLOEXEC), bind) for bind in (*wanted.binds, *wanted.prepare())]
    user_namespace = in_user_namespace()
    host_mounts = read_mounts()
    hidden_paths = HiddenDirectories(wanted.hidden, host_mounts) if wanted.host_files else None
    os.makedirs(f"{wanted.scratch}/memory/root")
    os.makedirs(f"{wanted.scratch}/memory/layers")
    os.makedirs(f"{wanted.scratch}/shm")
    os.chdir(wanted.scratch)
    root = os.path.abspath("memory/root")
    overlays = OverlayLayers(user_namespace, wanted.layers if wanted.host_files else ())
    if wanted.host_files:
        _bind_root_layer(root)
        populate_with_host(root, overlays, mount_points(host_mounts), replaced=set())
    else:
        populate_with_image(root, overlays, wanted.layers)
    mount("tmpfs", "shm", "tmpfs", 0, "mode=1777,size=64m")
    mount_kernel_directories(
        root, user_namespace=user_namespace, privileged=False, devices=[], shared_memory=os.path.abspath("shm")
    )
    if wanted.host_files:
        with open(f"{_ROOT_LAYER}/mount-points", "x", encoding="utf-8", errors="surrogateescape") as file:
            file.write("\0".join(os.listdir(root)))
    old_root = f"/.host-{os.urandom(8).hex()}"
    os.mkdir(root + old_root)
    pivot_root(root, root + old_root)
    for descriptor, source in sources:
        point = resolve_without_proc(source.target)
        _make_mount_point(point, directory=os.path.isdir(f"/proc/self/fd/{descriptor}"))
        bind(f"/proc/self/fd/{descriptor}", point)
        os.close(descriptor)
        if source.read_only:
            make_read_only(point)
    if hidden_paths is not None:
        covers = Covers()
        for path, identity in hidden_paths.identities.items():
            covers.add(path, identity)
        for place in covers.places:
            restrict(place, RDONLY, recursive=False)
    os.chdir("/")
    unmount(old_root)
    os.rmdir(old_root)
    os.getcwd()  # fails outside of the root directory


def _bind_root_layer(root: str) -> None:
    upper = os.path.abspath(f"{_ROOT_LAYER}/upper")
    os.makedirs(upper)
    os.chmod(upper, 0o755)  # noqa: S103 - the root directory of images
    os.symlink("/", f"{_ROOT_LAYER}/path")
    bind(upper, root)
    restrict(root, NODEV, recursive=False)


def _run_in_namespaces(root: ImageRoot, execute: Callable[[], object], report: int, *, network: bool) -> int:
    """In a child: makes the namespaces and process 1 in them. Returns the exit status for this process."""
    die_with_parent(signal.SIGKILL)
    try:
        namespaces = _CLONE_NEWNS | _CLONE_NEWPID | _CLONE_NEWUTS | _CLONE_NEWIPC
        check(libc.unshare(namespaces if network else namespaces | _CLONE_NEWNET), "create namespaces")
        if not network:
            _start_loopback()
        name = b"localhost"
        libc.sethostname(name, len(name))
    except OSError as error:
        os.write(report, f"{error.errno} {error.strerror}".encode())
        return _EXIT_NOT_STARTED
    process = os.fork()
    if process == 0:

        def first() -> int:
            die_with_parent(signal.SIGKILL)
            try:
                _enter(root)
            except OSError as error:
                os.write(report, f"{error.errno} {error.strerror or error}".encode())
                return _EXIT_NOT_STARTED
            os.close(report)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by Python
                signal.signal(number, signal.SIG_DFL)
            execute()
            return 0

        _exit_with(None, first)
    os.close(report)
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        os.kill(os.getpid(), os.WTERMSIG(status))
    return os.waitstatus_to_exitcode(status) & 0xFF


def _start_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", _IFF_UP))


def _exit_with(unused: int | None, function: Callable[[], int]) -> None:
    """In a child: never returns."""
    status = _EXIT_NOT_STARTED
    try:
        if unused is not None:
            os.close(unused)
        status = function()
    finally:
        os._exit(status)


def _make_mount_point(point: str, *, directory: bool) -> None:
    if os.path.lexists(point):
        return
    os.makedirs(point if directory else os.path.dirname(point), exist_ok=True)
    if not directory:
        with open(point, "xb"):
            pass


def in_user_namespace() -> bool:
    """True unless this is the first one, in which overlays have attributes of their own."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        return file.read().split() != ["0", "0", "4294967295"]
