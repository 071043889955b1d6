"""Time from the command to the first optimizer step of the digits example, and to its end.

trainwright with a manifest and with the program alone, against plain processes, torchrun and, where it is installed,
torchx.
"""

import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from benchmarks.processes import TRAINWRIGHT, embedded_cluster
from tests.support.kubernetes.controlplane import free_ports

EXAMPLE = Path(__file__).parents[1] / "examples" / "pytorch-digits"
FIRST_STEP = "Train Epoch"
ROUNDS = 5
WORLD_SIZE = 3
Seconds = tuple[float, float]
"""Until the first step, and until the end."""


class RunFailedError(Exception):
    """A contender's run did not train to its end."""


def main() -> None:
    seconds: dict[str, list[Seconds]] = {}
    failures: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name, embedded_cluster(Path(name) / "cluster"):
        directory = Path(name)
        runs: dict[str, Callable[[], Seconds]] = {
            "trainwright run job.yaml": lambda: _manifest(directory / "cluster"),
            "trainwright run train.py": lambda: _program(directory / "cluster", directory / "ours"),
            "plain processes": lambda: _plain_processes(directory / "plain"),
            "torchrun": lambda: _torchrun(directory / "torchrun"),
        }
        if torchx := shutil.which("torchx"):
            runs["torchx"] = lambda: _torchx(torchx, directory / "torchx")
        else:
            print("torchx is not on PATH: `pip install torchx` in an environment of its own to compare with it")
        for _ in range(ROUNDS):
            for label, run in runs.items():
                try:
                    seconds.setdefault(label, []).append(run())
                except RunFailedError as error:
                    failures[label] += 1
                    print(error)
    for number, title in enumerate(("to the first step", "to the end")):
        medians = {label: _median(values, number) for label, values in seconds.items()}
        ours = medians["trainwright run train.py"]
        print(f"{title:28}{'':>12}   run train.py is")
        for label, median in medians.items():
            failed = f"   {failures[label]} of {ROUNDS} runs failed" if failures[label] else ""
            print(f"{label:28}{median:>10.2f} s{ours / median:>10.2f}x{failed}")


def _median(runs: list[Seconds], number: int) -> float:
    return statistics.median([run[number] for run in runs] or [math.nan])


def _manifest(data_directory: Path) -> Seconds:
    flags = ["--data-dir", str(data_directory), "--python", sys.executable]
    return _time([([*TRAINWRIGHT, "run", *flags, str(EXAMPLE / "pytorchjob.yaml")], {})])


def _program(data_directory: Path, models: Path) -> Seconds:
    flags = ["--data-dir", str(data_directory), "--python", sys.executable, "--workers", str(WORLD_SIZE)]
    return _time([([*TRAINWRIGHT, "run", *flags, "train.py", "--", "--model-dir", str(models)], {})])


def _plain_processes(models: Path) -> Seconds:
    (port,) = free_ports(1)
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(WORLD_SIZE),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "train.py", "--model-dir", str(models)]
    return _time([(command, shared | {"RANK": str(rank)}) for rank in range(WORLD_SIZE)])


def _torchrun(models: Path) -> Seconds:
    (port,) = free_ports(1)
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(WORLD_SIZE), "--master-port", str(port)]
    return _time([([sys.executable, *launcher, "train.py", "--model-dir", str(models)], {})])


def _torchx(torchx: str, models: Path) -> Seconds:
    """It starts torchrun, which must be that of this environment."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    flags = ["--scheduler", "local_cwd", "--wait", "--log", "dist.ddp", "-j", f"1x{WORLD_SIZE}"]
    command = [torchx, "run", *flags, "--script", "train.py", "--", "--model-dir", str(models)]
    return _time([(command, {"PATH": path, "OMP_NUM_THREADS": "1"})])


def _time(commands: list[tuple[list[str], dict[str, str]]]) -> Seconds:
    """The first command reports the steps."""
    started = time.monotonic()
    processes = [
        subprocess.Popen(
            command,
            cwd=EXAMPLE,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | env,
            stdout=subprocess.PIPE if number == 0 else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number, (command, env) in enumerate(commands)
    ]
    output = processes[0].stdout
    assert output is not None
    first_step, lines = None, []
    for line in output:
        lines.append(line)
        if first_step is None and FIRST_STEP in line:
            first_step = time.monotonic() - started
    codes = [process.wait() for process in processes]
    if first_step is None or any(codes):
        raise RunFailedError(f"{commands[0][0]} ended with {codes}:\n{''.join(lines[-20:])}")
    return first_step, time.monotonic() - started
