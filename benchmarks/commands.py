"""CPU time of commands, compared with kubectl's: what a user waits for on a busy machine."""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.cluster.embedded_cluster import UpCommand, up_command
from tests.support.kubernetes.controlplane import binaries
from tests.support.objects.shell_jobs import shell_job
from trainwright.api.kinds import PYTORCH
from trainwright.kube.client.sync_client import SyncClient

ROUNDS = 30
JOBS = 5


def main() -> None:
    with tempfile.TemporaryDirectory() as name, up_command(Path(name)) as up:
        _create_jobs(up)
        script = str(Path(sys.executable).parent / "trainwright")
        data, kubeconfig = str(up.data.path), str(up.data.kubeconfig)
        kubectl = str(binaries() / "kubectl")
        commands = {
            "trainwright --help": [script, "--help"],
            f"trainwright ps ({JOBS} jobs)": [script, "ps", "--data-dir", data],
            "kubectl --help": [kubectl, "--help"],
            f"kubectl get pytorchjobs ({JOBS})": [kubectl, "--kubeconfig", kubeconfig, "get", "pytorchjobs"],
        }
        medians = {}
        print(f"{'':34}{'CPU, median':>14}{'least':>10}")
        for title, command in commands.items():
            seconds = measure(command, ROUNDS)
            medians[title] = statistics.median(seconds)
            print(f"{title:34}{medians[title]:>12.3f} s{min(seconds):>8.3f} s")
        helps, lists = list(medians.values())[::2], list(medians.values())[1::2]
        print(f"{'ratio':34}{helps[0] / helps[1]:>9.2f}x --help{lists[0] / lists[1]:>9.2f}x list")


def measure(command: Sequence[str], rounds: int) -> list[float]:
    """User and system seconds of each call."""
    subprocess.run(command, check=True, capture_output=True)  # fills the caches of files
    seconds = []
    for _ in range(rounds):
        before = _children()
        subprocess.run(command, check=True, capture_output=True, env=dict(os.environ))
        seconds.append(_children() - before)
    return seconds


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _create_jobs(up: UpCommand) -> None:
    with SyncClient(up.config) as client:
        for number in range(JOBS):
            job = shell_job(f"job-{number}", "true", runPolicy={"suspend": True})
            client.create(PYTORCH.resource, job, namespace="default")


if __name__ == "__main__":
    main()
