"""The elastic examples: real trainings that go on when they lose workers and get others."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.cluster.embedded_cluster import UpCommand, up_command
from tests.support.commands.trainwright import command_line, trainwright
from tests.support.waiting import wait_until
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects.resources import PODS

EXAMPLES = Path(__file__).parents[2] / "examples"
SECONDS = 540
"""Machines that run other things too need many times the usual time."""


@dataclass
class Training:
    """An example that trains, followed by `trainwright run`."""

    name: str
    up: UpCommand
    file: Path
    process: "subprocess.Popen[bytes]"
    seen: int = 0
    """The number of starts that the test knows."""

    @property
    def output(self) -> str:
        return self.file.read_text()

    @property
    def starts(self) -> list[tuple[int, int]]:
        """The number of workers with which the training began or continued, and after which epoch."""
        found = re.findall(r"Training with (\d) workers, after (\d+) epochs$", self.output, re.MULTILINE)
        return [(int(workers), int(epochs)) for workers, epochs in found]

    def wait_for_workers(self, number: int) -> None:
        """Waits until the training goes on with so many workers, after what the last call has waited for."""

        def found() -> int | None:
            parts = self.output.split("Training with ")[1:]
            wanted = (place for place, (workers, _) in enumerate(self.starts) if workers == number)
            place = next((place for place in wanted if place >= self.seen), None)
            trains = place is not None and any("] loss=" in part for part in parts[place:])
            return place if trains else None

        wait_until(lambda: found() is not None or self.process.poll() is not None, seconds=SECONDS)
        place = found()
        assert place is not None, self.output
        self.seen = place + 1

    def scale(self, replicas: int) -> None:
        data = ["--data-dir", str(self.up.data.path)]
        answer = trainwright(
            "scale", *data, self.name, "--replicas", str(replicas), environment=self.up.environment, seconds=SECONDS
        )
        assert answer.code == 0, answer.all

    def delete_pod(self, name: str) -> None:
        with SyncClient(self.up.config) as client:
            client.delete(PODS, f"{self.name}-{name}", namespace="default")

    def finish(self) -> str:
        assert self.process.wait(SECONDS) == 0, self.output
        return self.output


@contextmanager
def training(example: str, directory: Path) -> Iterator[Training]:
    file = directory / "output"
    with up_command(directory) as up:
        words = command_line("run", "--data-dir", str(up.data.path), str(EXAMPLES / example))
        with file.open("wb") as output:
            process = subprocess.Popen(words, env=dict(up.environment), stdout=output, stderr=subprocess.STDOUT)
        try:
            yield Training(example, up, file, process)
        finally:
            process.kill()
            process.wait()


@pytest.mark.torch
@pytest.mark.thorough
@pytest.mark.timeout(SECONDS + 60)
def test_elastic_pytorch_goes_on_when_workers_are_lost_and_replaced(tmp_path: Path) -> None:
    with training("pytorch-elastic", tmp_path) as job:
        job.wait_for_workers(3)
        job.delete_pod("worker-1")
        job.wait_for_workers(3)  # with the pod that replaces it
        job.scale(2)
        job.wait_for_workers(2)
        job.finish()

    check_training(job, r"worker (\d) of 2")


@pytest.mark.horovod
@pytest.mark.thorough
@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.skipif(find_spec("horovod") is None, reason="this machine has no horovod, see tools/setup horovod")
def test_elastic_horovod_goes_on_when_workers_leave_and_join(tmp_path: Path) -> None:
    with training("horovod-elastic", tmp_path) as job:
        job.wait_for_workers(2)
        job.scale(1)
        job.wait_for_workers(1)
        job.scale(2)
        job.wait_for_workers(2)
        job.delete_pod("worker-1")
        job.wait_for_workers(1)
        job.wait_for_workers(2)  # with the pod that replaces it
        job.finish()

    check_training(job, r"process (\d) of 2")


def check_training(job: Training, process: str) -> None:
    """It never began again, and both processes have the same model at the end."""
    epochs = [epochs for _, epochs in job.starts]
    assert epochs[0] == 0
    assert epochs[1] > 0
    assert epochs == sorted(epochs)
    results = re.findall(rf"{process}: test loss=(\S+) accuracy=(\S+)$", job.output, re.MULTILINE)
    assert sorted(rank for rank, *_ in results) == ["0", "1"]
    [(_, accuracy)] = {tuple(result[1:]) for result in results}
    assert float(accuracy) > 0.9
    assert f"{job.name} succeeded in" in job.output
