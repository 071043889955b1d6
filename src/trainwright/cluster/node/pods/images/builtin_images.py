"""Images that every node has: they are small layers over the files of this machine.

Programs in them run with a copy of this Python that works on any root file system, also in images without Python or
with another libc. It has the dynamic linker, the libraries and the modules that the program uses, and nothing else. It
can be mounted at any path.
"""

import asyncio
import hashlib
import posixpath
import py_compile
import shutil
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

from trainwright.cluster.node.pods.config.container_image import ContainerImage
from trainwright.cluster.node.pods.config.runtime_config import WaitingReason
from trainwright.cluster.node.pods.images import kubectl
from trainwright.cluster.node.supervisor.files import API_SOCKET
from trainwright.objects.node_annotations import KUBECTL_DELIVERY_IMAGE

_LINKER = "lib/ld.so"
_FIND = """
import os, sys
import {modules}
modules = [module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)]
import ctypes
class Loaded(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]
libraries = []
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Loaded), ctypes.c_size_t, ctypes.c_void_p)
def add(loaded, size, data):
    libraries.append(os.fsdecode(loaded.contents.name))
    return 0
ctypes.CDLL(None).dl_iterate_phdr(add, None)
print(*modules, *(name for name in libraries if "/" in name and name not in modules), sep="\\n")
"""
"""Prints the files of modules and shared libraries, by the names under which the program asked for them."""
_BIN = "/usr/local/lib/trainwright/bin"
"""A directory that this machine does not have in its PATH: a kubectl of the machine must not be found first."""
_PYTHON = "/run/trainwright/kubectl"
"""Where all containers of a pod with kubectl have the Python that runs it: their images need not have one."""
_API = posixpath.dirname(kubectl.API_SOCKET)
"""Where they have the directory of the API server's Unix socket, which a restart of the cluster makes anew."""


def command(directory: str, program: str) -> list[str]:
    """The words that run the program, where the copy is mounted at `directory`."""
    python = [f"{directory}/{_LINKER}", "--library-path", f"{directory}/lib", f"{directory}/bin/python3"]
    return [*python, "-I", "-S", "-B", f"{directory}/{program}.pyc"]


_SCRIPT = f"""\
#!/bin/sh
# Nothing of the image may change how it runs: libraries, locales.
unset LD_PRELOAD
export LC_ALL=C
exec {" ".join(command(_PYTHON, "kubectl"))} "$@"
"""
MODULES = ("os", "sys", "_socket", "select", "json", "time", "encodings.latin_1", "encodings.ascii")


def make_standalone(parent: Path, program: Path, modules: tuple[str, ...]) -> Path:
    """The directory of the copy in `parent`; one that was made before is used again. `modules` are all that the
    program imports."""
    python = Path(getattr(sys, "_base_executable", None) or sys.executable).resolve()
    version = f"{sys.version}{python}{python.stat().st_mtime_ns}{modules}".encode()
    directory = parent / hashlib.sha256(version + program.read_bytes()).hexdigest()[:16]
    if directory.exists():
        return directory
    unfinished = directory.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    for name in ("bin", "lib"):
        (unfinished / name).mkdir(parents=True)
    shutil.copyfile(python, unfinished / "bin/python3")
    for file in _files(python, modules):
        _copy(file, unfinished)
    py_compile.compile(str(program), str(unfinished / f"{program.stem}.pyc"), doraise=True)
    for path in (unfinished, *unfinished.rglob("*")):
        path.chmod(0o755)  # containers may have any user
    unfinished.rename(directory)
    return directory


def _files(python: Path, modules: tuple[str, ...]) -> list[Path]:
    find = [str(python), "-I", "-S", "-c", _FIND.format(modules=", ".join(modules))]
    return [Path(line) for line in subprocess.check_output(find, text=True).splitlines()]


def _copy(file: Path, directory: Path) -> None:
    """Modules keep their place below the prefix of Python, so that it finds them; libraries lie in one directory."""
    prefix = Path(sys.base_prefix)
    inside = file.relative_to(prefix) if file.is_relative_to(prefix) else None
    if inside is not None and file.suffix == ".py":
        target = directory / inside.with_suffix(".pyc")
        target.parent.mkdir(parents=True, exist_ok=True)
        compiled = Path(cache_from_source(file))
        if compiled.exists():
            shutil.copyfile(compiled, target)
        else:
            py_compile.compile(str(file), str(target), doraise=True)
        return
    if inside is not None and "lib-dynload" in inside.parts:
        target = directory / inside
    elif file.name.startswith("ld"):
        target = directory / _LINKER
    else:
        target = directory / "lib" / file.name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target)


class BuiltinImages:
    """`directory` is the node's: the layers are in it."""

    def __init__(self, directory: Path, *, can_mount: bool) -> None:
        self._directory = directory / "builtin-images"
        self._api = (directory / API_SOCKET).parent
        self._can_mount = can_mount
        self._lock = asyncio.Lock()
        self._kubectl_delivery: ContainerImage | None = None

    async def find(self, name: str, container: str) -> ContainerImage | WaitingReason | None:
        """The image of that name, or why it cannot run; None for names that are not built in."""
        if name != KUBECTL_DELIVERY_IMAGE:
            return None
        if not self._can_mount:
            message = (
                "launchers of MPIJobs expect files at fixed paths, which a container can only have at sandbox overlay: "
                "run the cluster as root, or allow unprivileged user namespaces"
            )
            return WaitingReason(reason="ImageNeedsOverlay", message=message, container=container)
        async with self._lock:
            if self._kubectl_delivery is None:
                try:
                    self._kubectl_delivery = await asyncio.to_thread(self._make_kubectl_delivery)
                except (OSError, subprocess.SubprocessError) as error:
                    message = f"failed to copy the Python that runs kubectl in launchers: {error}"
                    return WaitingReason(reason="ImageInspectError", message=message, container=container)
        return self._kubectl_delivery

    def _make_kubectl_delivery(self) -> ContainerImage:
        """Made once for each process of the cluster: kubectl is that of this version."""
        layer = self._directory / "kubectl-delivery"
        script = Path(f"{layer}{_BIN}/kubectl")
        if not script.exists() or script.read_text() != _SCRIPT:
            script.parent.mkdir(parents=True, exist_ok=True)
            unfinished = script.with_suffix(".new")
            unfinished.write_text(_SCRIPT)
            unfinished.chmod(0o755)
            unfinished.rename(script)
        self._api.mkdir(parents=True, exist_ok=True)
        python = make_standalone(self._directory / "python", Path(kubectl.__file__), MODULES)
        return ContainerImage(
            environment={"PATH": _BIN},
            image_id=KUBECTL_DELIVERY_IMAGE,
            layers=(str(layer),),
            pod_mounts={_PYTHON: str(python), _API: str(self._api)},
        )
