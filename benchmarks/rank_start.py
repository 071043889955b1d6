"""Time from the command to the start of the last of three ranks of a program that imports nothing, against torchrun."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.processes import TRAINWRIGHT, embedded_cluster
from tests.support.kubernetes.controlplane import free_ports

ROUNDS = 7
WORLD_SIZE = 3
PROGRAM = "import os, time; open(f'start-{os.environ[\"RANK\"]}', 'w').write(str(time.time()))\n"


def main() -> None:
    seconds: dict[str, list[float]] = {"trainwright run train.py": [], "torchrun": []}
    with tempfile.TemporaryDirectory() as name, embedded_cluster(Path(name) / "cluster"):
        directory = Path(name)
        (directory / "train.py").write_text(PROGRAM)
        flags = ["--data-dir", str(directory / "cluster"), "--python", sys.executable, "--workers", str(WORLD_SIZE)]
        for _ in range(ROUNDS):
            (port,) = free_ports(1)
            launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(WORLD_SIZE), "--master-port", str(port)]
            commands = {
                "trainwright run train.py": [*TRAINWRIGHT, "run", *flags, "train.py"],
                "torchrun": [sys.executable, *launcher, "train.py"],
            }
            for label, command in commands.items():
                seconds[label].append(_until_last_start(command, directory))
    medians = {label: statistics.median(values) for label, values in seconds.items()}
    for label, median in medians.items():
        print(f"{label:28}{median:>10.2f} s")
    print(f"{'ratio':28}{medians['trainwright run train.py'] / medians['torchrun']:>11.2f}x")


def _until_last_start(command: list[str], directory: Path) -> float:
    for old in directory.glob("start-*"):
        old.unlink()
    started = time.time()
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    starts = [float(file.read_text()) for file in directory.glob("start-*")]
    if len(starts) != WORLD_SIZE:
        raise RuntimeError(f"only {len(starts)} of {WORLD_SIZE} ranks have started")
    return max(starts) - started
