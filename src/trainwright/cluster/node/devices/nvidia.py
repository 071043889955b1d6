"""NVIDIA GPUs of this machine, and the files of their driver that a container with GPUs needs.

GPUs are read through the driver's library NVML in a process of its own: NVML does not return while a GPU hangs, and the
library stays loaded once it was used. The files belong to the kernel module of this machine, so no image has them, and
NVIDIA's container runtime brings them in as well. Libraries are found by the cache of the dynamic linker, and mounted
where the linker of the image looks.
"""

import logging
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from trainwright.cluster.node.supervisor.pod_json import MountJson
from trainwright.programs import own_module

log = logging.getLogger(__name__)

_CONTROL_DEVICE = Path("/dev/nvidiactl")
_READ_SECONDS = 30.0
_SHARED_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_CAPABILITY_NODES = Path("/dev/nvidia-caps")
T = TypeVar("T")

CAPABILITIES_VARIABLE = "NVIDIA_DRIVER_CAPABILITIES"
_DEFAULT = frozenset({"utility", "compute"})
_LIBRARIES = {
    "utility": ("libnvidia-ml", "libnvidia-cfg", "libnvidia-nscq"),
    "compute": (
        "libcuda", "libcudadebugger", "libnvidia-opencl", "libnvidia-gpucomp", "libnvidia-ptxjitcompiler",
        "libnvidia-fatbinaryloader", "libnvidia-allocator", "libnvidia-compiler", "libnvidia-pkcs11",
        "libnvidia-pkcs11-openssl3", "libnvidia-nvvm", "libnvidia-nvvm70", "libnvidia-tileiras",
    ),
    "video": ("libvdpau_nvidia", "libnvidia-encode", "libnvidia-opticalflow", "libnvcuvid"),
    "graphics": (
        "libnvidia-eglcore", "libnvidia-glcore", "libnvidia-tls", "libnvidia-glsi", "libnvidia-fbc", "libnvidia-ifr",
        "libnvidia-rtcore", "libnvoptix", "libGLX_nvidia", "libEGL_nvidia", "libGLESv2_nvidia", "libGLESv1_CM_nvidia",
        "libnvidia-glvkspirv", "libnvidia-cbl",
    ),
}  # fmt: skip
_PROGRAMS = {
    "utility": ("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced"),
    "compute": ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
}
_SOCKETS = {"utility": ("/run/nvidia-persistenced/socket",), "compute": ()}
_DIRECTORIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib", "/usr/lib")
_PROGRAM_PATH = "/usr/bin:/bin:/usr/sbin:/usr/local/bin:/usr/lib/wsl/lib"
_CACHE_LINE = re.compile(r"^\s+(?P<name>lib[^\s]+) \((?P<kind>[^)]*)\) => (?P<path>/.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Gpu:
    uuid: str
    name: str
    memory: int
    """Bytes."""
    nodes: tuple[str, ...]
    """The device nodes that a program opens to compute on it."""


def read_gpus() -> tuple[Gpu, ...]:
    """The GPUs in the order of their PCI addresses; none if there is no driver or it does not answer."""
    if not _CONTROL_DEVICE.exists():
        return ()
    command = own_module(__name__)
    try:
        output = subprocess.run(command, capture_output=True, timeout=_READ_SECONDS, check=True).stdout
        return tuple(msgspec.json.decode(output, type=list[Gpu]))
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        log.warning(
            "pods get no GPUs, because NVML failed: %s", lines[-1] if lines else f"exit code {error.returncode}"
        )
    except subprocess.TimeoutExpired:
        log.warning("pods get no GPUs, because NVML has not answered for %.0f seconds: try nvidia-smi", _READ_SECONDS)
    return ()


def _print_gpus() -> None:
    import pynvml  # type: ignore[import-untyped]

    pynvml.nvmlInit()
    shared = [node for node in _SHARED_NODES if Path(node).exists()]
    shared += sorted(str(node) for node in _CAPABILITY_NODES.glob("*"))
    gpus = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        gpus.append(
            Gpu(
                uuid=pynvml.nvmlDeviceGetUUID(handle),
                name=pynvml.nvmlDeviceGetName(handle),
                memory=pynvml.nvmlDeviceGetMemoryInfo(handle).total,
                nodes=(f"/dev/nvidia{pynvml.nvmlDeviceGetMinorNumber(handle)}", *shared),
            )
        )
    sys.stdout.buffer.write(msgspec.json.encode(gpus))


@dataclass(frozen=True, slots=True)
class DriverFiles:
    """By capability; empty on a machine without the driver."""

    libraries: tuple[tuple[str, str, str], ...] = ()
    """Capability, name by which the linker finds it (`libcuda.so.1`), and path."""
    programs: tuple[tuple[str, str], ...] = ()
    sockets: tuple[tuple[str, str], ...] = ()


def read_driver_files() -> DriverFiles:
    """The files of the driver on this machine."""
    found = parse_linker_cache(_linker_cache())
    for directory in map(Path, _DIRECTORIES):
        for library in (*directory.glob("libcuda.so.*"), *directory.glob("libnvidia-*.so.*")):
            found.setdefault(library.name, str(library))
    libraries = [
        (capability, name, str(Path(path).resolve()))
        for capability, stems in _LIBRARIES.items()
        for name, path in sorted(found.items())
        if name.partition(".so")[0] in stems and Path(path).exists()
    ]
    programs = [
        (capability, program)
        for capability, names in _PROGRAMS.items()
        for name in names
        if (program := shutil.which(name, path=_PROGRAM_PATH))
    ]
    sockets = [(capability, path) for capability, paths in _SOCKETS.items() for path in paths if Path(path).exists()]
    return DriverFiles(tuple(libraries), tuple(programs), tuple(sockets))


def parse_linker_cache(output: str) -> dict[str, str]:
    """Name -> path of the 64-bit libraries in the output of `ldconfig -p`."""
    found: dict[str, str] = {}
    for match in _CACHE_LINE.finditer(output):
        if "x86-64" in match["kind"] or "AArch64" in match["kind"] or "64bit" in match["kind"]:
            found.setdefault(match["name"], match["path"])
    return found


def driver_mounts(driver: DriverFiles, *, environment: Mapping[str, str], library_directory: str) -> list[MountJson]:
    """What a container with GPUs sees of the driver. `environment` is the container's, of which
    NVIDIA_DRIVER_CAPABILITIES counts; `library_directory` is one where the linker of its image looks."""
    wanted = _capabilities(environment.get(CAPABILITIES_VARIABLE, ""))
    mounts: dict[str, str] = {}
    for name, path in _wanted(wanted, ((capability, (name, path)) for capability, name, path in driver.libraries)):
        mounts[f"{library_directory}/{name}"] = path
        mounts.setdefault(f"{library_directory}/{Path(path).name}", path)
    for path in _wanted(wanted, driver.programs):
        mounts[f"/usr/bin/{Path(path).name}"] = str(Path(path))
    mounts |= {path: path for path in _wanted(wanted, driver.sockets)}
    return [{"source": source, "target": target, "readOnly": True} for target, source in mounts.items()]


def _wanted(capabilities: frozenset[str], entries: Iterable[tuple[str, T]]) -> list[T]:
    return [entry for capability, entry in entries if capability in capabilities]


def _capabilities(text: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    if "all" in names:
        return frozenset(_LIBRARIES)
    return names or _DEFAULT


def _linker_cache() -> str:
    program = shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin")
    if program is None:
        return ""
    try:
        return subprocess.run([program, "-p"], capture_output=True, text=True, check=False, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


if __name__ == "__main__":
    _print_gpus()
