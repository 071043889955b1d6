"""Time from the command to the first optimizer step of the digits example: trainwright, plain processes, torchrun."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.processes import TRAINWRIGHT, embedded_cluster
from tests.support.cluster.controlplane import free_ports

EXAMPLE = Path(__file__).parents[1] / "examples" / "pytorch-digits"
FIRST_STEP = "Train Epoch"
ROUNDS = 5
WORLD_SIZE = 3


def main() -> None:
    seconds: dict[str, list[float]] = {"trainwright run": [], "plain processes": [], "torchrun": []}
    with tempfile.TemporaryDirectory() as name, embedded_cluster(Path(name) / "cluster"):
        directory = Path(name)
        runs: dict[str, Callable[[], float]] = {
            "trainwright run": lambda: _trainwright(directory / "cluster"),
            "plain processes": lambda: _plain_processes(directory / "plain"),
            "torchrun": lambda: _torchrun(directory / "torchrun"),
        }
        for _ in range(ROUNDS):
            for label, run in runs.items():
                seconds[label].append(run())
    medians = {label: statistics.median(values) for label, values in seconds.items()}
    for label, median in medians.items():
        print(f"{label:28}{median:>12.2f} s")
    for peer in ("plain processes", "torchrun"):
        print(f"{'ratio to ' + peer:28}{medians['trainwright run'] / medians[peer]:>13.2f}x")


def _trainwright(data_directory: Path) -> float:
    flags = ["--data-dir", str(data_directory), "--python", sys.executable]
    return _until_first_step([([*TRAINWRIGHT, "run", *flags, str(EXAMPLE / "pytorchjob.yaml")], {})])


def _plain_processes(models: Path) -> float:
    (port,) = free_ports(1)
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(WORLD_SIZE),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "train.py", "--model-dir", str(models)]
    return _until_first_step([(command, shared | {"RANK": str(rank)}) for rank in range(WORLD_SIZE)])


def _torchrun(models: Path) -> float:
    (port,) = free_ports(1)
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(WORLD_SIZE), "--master-port", str(port)]
    return _until_first_step([([sys.executable, *launcher, "train.py", "--model-dir", str(models)], {})])


def _until_first_step(commands: list[tuple[list[str], dict[str, str]]]) -> float:
    """The seconds until the first command reports a step. Waits until the training has ended."""
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
    seconds, lines = None, []
    for line in output:
        lines.append(line)
        if seconds is None and FIRST_STEP in line:
            seconds = time.monotonic() - started
    codes = [process.wait() for process in processes]
    if seconds is None or any(codes):
        raise RuntimeError(f"{commands[0][0]} ended with {codes}:\n{''.join(lines[-20:])}")
    return seconds
