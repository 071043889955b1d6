"""CPU time of following a job whose ranks print a lot: of `trainwright run`, the cluster and its supervisors.

Every line that a rank has printed must be shown once, in order.
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.processes import TRAINWRIGHT, cpu_seconds, embedded_cluster

RANKS = 32
LINES_PER_SECOND = 100
SECONDS = 20.0
TARGET = 0.40
"""The share of a core that command and cluster may use together."""
PROGRAM = """
import sys, time
rate, seconds, start = float(sys.argv[1]), float(sys.argv[2]), time.monotonic()
number = 0
while (elapsed := time.monotonic() - start) < seconds:
    while number <= elapsed * rate:
        sys.stdout.write(f"step {number} of something that a program logs, loss={1 / (1 + number):.5f}\\n")
        sys.stdout.flush()
        number += 1
    time.sleep(max(start + number / rate - time.monotonic(), 0))
print("printed", number, flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=RANKS)
    parser.add_argument("--rate", type=float, default=LINES_PER_SECOND, help="lines per second of each rank")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    arguments = parser.parse_args([] if __name__ != "__main__" else None)
    with tempfile.TemporaryDirectory() as name, embedded_cluster(Path(name) / "data") as (cluster, _):
        directory = Path(name)
        manifest = directory / "job.json"
        manifest.write_text(json.dumps(_job(arguments.ranks, arguments.rate, arguments.seconds)))
        _measure(directory, manifest, cluster.pid, arguments.ranks, arguments.seconds)


def _measure(directory: Path, manifest: Path, cluster: int, ranks: int, seconds: float) -> None:
    output = directory / "output"
    command = [*TRAINWRIGHT, "run", "--data-dir", str(directory / "data"), str(manifest)]
    with output.open("wb") as stream, subprocess.Popen(command, stdout=stream) as process:
        while output.read_text().count("step 0 of") < ranks:
            if process.poll() is not None:
                raise RuntimeError(f"the job ended early:\n{output.read_text()}")
            time.sleep(0.1)
        begun, before = time.monotonic(), _cpu(process.pid, cluster, directory / "data")
        time.sleep(max(seconds / 2, 1.0))
        after, wall = _cpu(process.pid, cluster, directory / "data"), time.monotonic() - begun
        printed = output.read_text().count("something that a program logs")
        process.wait()
    lines = _lines(output)
    total = sum(len(numbers) for numbers in lines.values())
    shares = {label: (after[label] - before[label]) / wall for label in before}
    for label, share in shares.items():
        print(f"{label:28}{share:>11.1%} of a core")
    print(f"{'together':28}{sum(shares.values()):>11.1%} of a core (target: {TARGET:.0%})")
    print(f"{'lines in half of the time':28}{printed:>12}")
    print(f"{'lines of all ranks':28}{total:>12}, every one once and in order: {_is_complete(lines, ranks)}")


def _cpu(command: int, cluster: int, data: Path) -> dict[str, float]:
    supervisors = 0.0
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if len(words) > 1 and words[-2].startswith(f"{data}/node/".encode()):
                supervisors += cpu_seconds(int(entry.name))
        except (OSError, ValueError):
            continue  # not a process, or one that has ended
    return {
        "trainwright run": cpu_seconds(command),
        "cluster": cpu_seconds(cluster),
        "supervisors of the pods": supervisors,
    }


def _lines(output: Path) -> dict[str, list[str]]:
    lines = defaultdict(list)
    for line in output.read_text().splitlines():
        label, _, text = line.partition("] ")
        if text.strip().startswith(("step ", "printed ")):
            lines[label].append(text.strip())
    return lines


def _is_complete(lines: dict[str, list[str]], ranks: int) -> bool:
    """Compares the lines of each rank with the number that it printed in the end."""
    return len(lines) == ranks and all(
        texts[-1] == f"printed {len(texts) - 1}"
        and [int(text.split()[1]) for text in texts[:-1]] == list(range(len(texts) - 1))
        for texts in lines.values()
    )


def _job(ranks: int, rate: float, seconds: float) -> dict[str, object]:
    command = ["python", "-I", "-S", "-c", PROGRAM, str(rate), str(seconds)]
    container = {"name": "pytorch", "image": "trainwright/host", "command": command}
    template = {"spec": {"containers": [container]}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "talkative"},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "All"},
            "pytorchReplicaSpecs": {"Worker": {"replicas": ranks, "restartPolicy": "Never", "template": template}},
        },
    }


if __name__ == "__main__":
    main()
