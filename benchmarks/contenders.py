"""The operators that are compared: ours, and the Go training-operator v1.9.4 as shipped and tuned."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.processes import TRAINWRIGHT, cpu_seconds
from tests.support.controlplane import ControlPlane

Command = tuple[list[str], dict[str, str]]
"""What to start, and the environment that it gets beside ours."""

STOP_SECONDS = 30


@dataclass(frozen=True)
class Contender:
    name: str
    label: str
    command: Callable[[ControlPlane, Path], Command]
    bounded: bool = False
    """Too slow for the whole: only its rate in the first seconds is measured."""


@dataclass
class RunningContender:
    """A contender at work, and what the kernel knows of its cost."""

    process: "subprocess.Popen[bytes]"
    log: Path
    started: float = field(default_factory=time.monotonic)

    @property
    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process.pid)

    @property
    def peak_megabytes(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        raise ProcessLookupError(f"process {self.process.pid} has ended")

    def check(self) -> None:
        if (code := self.process.poll()) is not None:
            raise RuntimeError(f"the operator ended with {code}:\n{self.log.read_text()[-3000:]}")


@contextmanager
def running(contender: Contender, plane: ControlPlane, directory: Path) -> Iterator[RunningContender]:
    log = directory / f"{contender.name}.log"
    command, env = contender.command(plane, directory)
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=os.environ | env, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield RunningContender(process, log)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ours(plane: ControlPlane, directory: Path) -> Command:
    _ = directory
    return [*TRAINWRIGHT, "operator", "--kubeconfig", str(plane.kubeconfig), "--enable-scheme", "PyTorchJob"], {}


OURS = Contender("ours", "ours", _ours)
CONTENDERS = (OURS,)
