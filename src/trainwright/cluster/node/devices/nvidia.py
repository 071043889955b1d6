"""NVIDIA GPUs of this machine, read through the driver's library NVML.

In a process of its own: NVML does not return while a GPU hangs, and the library stays loaded once it was used.
"""

import logging
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from trainwright.programs import own_module

log = logging.getLogger(__name__)

_CONTROL_DEVICE = Path("/dev/nvidiactl")
_READ_SECONDS = 30.0
_SHARED_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_CAPABILITY_NODES = Path("/dev/nvidia-caps")


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


if __name__ == "__main__":
    _print_gpus()
