"""The embedded cluster as a child process, and the CPU time and memory of a process."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TRAINWRIGHT = [sys.executable, "-m", "trainwright"]
READY_SECONDS = 60


@contextmanager
def embedded_cluster(directory: Path) -> Iterator[tuple["subprocess.Popen[bytes]", float]]:
    """Runs `trainwright up`; yields its process and the seconds until it was ready."""
    started = time.monotonic()
    command = [
        *TRAINWRIGHT,
        "up",
        "--data-dir",
        str(directory),
        "--kubeconfig",
        str(directory.with_suffix(".kubeconfig")),
    ]
    log = directory.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    ready = directory / "cluster.json"
    try:
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > started + READY_SECONDS:
                raise RuntimeError(f"trainwright up did not get ready:\n{log.read_text()}")
            time.sleep(0.005)
        yield process, time.monotonic() - started
    finally:
        subprocess.run([*TRAINWRIGHT, "down", "--data-dir", str(directory)], check=False, capture_output=True)
        process.wait(30)


def resident_megabytes(pid: int) -> float:
    return _kernel_megabytes(pid, "VmRSS")


def peak_megabytes(pid: int) -> float:
    """The peak of its resident memory."""
    return _kernel_megabytes(pid, "VmHWM")


def _kernel_megabytes(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(f"process {pid} has ended")


def proportional_megabytes(pid: int) -> float:
    """Its memory, of which pages that it shares with others count in part (PSS)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(f"process {pid} has ended")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
