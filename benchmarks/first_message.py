"""Time from `kubectl apply` of an MPIJob of 1+2 on the embedded cluster to its first MPI message, against plain mpirun
of the same program with two processes."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import yaml

from benchmarks.processes import embedded_cluster
from tests.support.kubernetes.controlplane import binaries

ROUNDS = 10
PROCESSES = 2
SECONDS = 60.0
PROGRAM = """
import sys, time
from mpi4py import MPI
MPI.COMM_WORLD.allreduce(1)
if MPI.COMM_WORLD.rank == 0:
    with open(sys.argv[1] + ".new", "w") as file:
        file.write(str(time.time()))
    import os
    os.rename(sys.argv[1] + ".new", sys.argv[1])
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name, embedded_cluster(Path(name) / "cluster"):
        directory = Path(name) / "work"
        directory.mkdir()
        (directory / "first.py").write_text(PROGRAM)
        kubeconfig = Path(name) / "cluster.kubeconfig"
        numbers = count()
        runs: dict[str, Callable[[], float]] = {
            "MPIJob of 1+2": lambda: _job(directory, kubeconfig, next(numbers)),
            f"mpirun -n {PROCESSES}": lambda: _mpirun(directory, next(numbers)),
        }
        seconds: dict[str, list[float]] = {label: [] for label in runs}
        for number in range(ROUNDS + 1):
            for label, run in runs.items():
                measured = run()
                if number:  # the first of each is cold
                    seconds[label].append(measured)
                else:
                    print(f"{label:20}{measured:>10.2f} s   the first time")
    job, plain = seconds.values()
    for label, values in seconds.items():
        print(f"{label:20}{statistics.median(values):>10.2f} s   {min(values):.2f} to {max(values):.2f} s")
    more = [one - other for one, other in zip(job, plain, strict=True)]
    print(f"{'the job needs':20}{statistics.median(more):>10.2f} s more")


def _mpirun(directory: Path, number: int) -> float:
    result = directory / f"result-{number}"
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    mpirun = str(Path(sys.executable).parent / "mpirun")
    started = time.time()
    command = [mpirun, "-n", str(PROCESSES), sys.executable, "first.py", str(result)]
    subprocess.run(command, cwd=directory, env=os.environ | allowed, check=True)
    return float(result.read_text()) - started


def _job(directory: Path, kubeconfig: Path, number: int) -> float:
    result = directory / f"result-{number}"
    manifest = directory / f"job-{number}.yaml"
    manifest.write_text(yaml.safe_dump(_manifest(directory, f"first-{number}", str(result))))
    kubectl = [str(binaries() / "kubectl"), "--kubeconfig", str(kubeconfig)]
    started = time.time()
    subprocess.run([*kubectl, "apply", "-f", str(manifest)], check=True, capture_output=True)
    for _ in _polls():
        if result.exists():
            break
    found = float(result.read_text()) - started
    subprocess.run([*kubectl, "delete", "mpijob", f"first-{number}", "--wait"], check=True, capture_output=True)
    return found


def _polls() -> Iterator[None]:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        yield
        time.sleep(0.01)
    raise TimeoutError(f"no MPI message within {SECONDS:.0f} seconds")


def _manifest(directory: Path, name: str, result: str) -> dict[str, object]:
    annotations = {"node.trainwright.dev/directory": str(directory), "node.trainwright.dev/python": sys.executable}
    command = ["mpirun", "-n", str(PROCESSES), "python", "first.py", result]
    launcher = {"name": "launcher", "image": "trainwright/host", "command": command}
    worker = {"name": "worker", "image": "trainwright/host"}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "Running"},
            "mpiReplicaSpecs": {
                "Launcher": {"template": {"spec": {"containers": [launcher]}}},
                "Worker": {"replicas": PROCESSES, "template": {"spec": {"containers": [worker]}}},
            },
        },
    }
