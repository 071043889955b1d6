"""The digits example: a manifest for any cluster, and a program that learns and resumes."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.embedded_cluster import up_command
from tests.support.commands.trainwright import trainwright
from trainwright.api.job import read_job
from trainwright.cli.manifests.reader import read_manifests

EXAMPLE = Path(__file__).parents[2] / "examples" / "pytorch-digits"
LOSS_LINE = re.compile(r"Train Epoch: \d+ \[\d+/1500 \(\d+%\)\] loss=\d+\.\d{4}")


def test_the_manifest_is_valid_for_any_cluster() -> None:
    claim, manifest = (document.object for document in read_manifests([str(EXAMPLE / "pytorchjob.yaml")]))
    assert claim["kind"] == "PersistentVolumeClaim"
    assert "storageClassName" not in claim["spec"]
    job = read_job(manifest)
    assert {name: replica.count for name, replica in job.replicas.items()} == {"Master": 1, "Worker": 2}
    assert {replica.restart_policy for replica in job.replicas.values()} == {"OnFailure"}
    # Only one pod mounts it, so ReadWriteOnce is enough on any number of nodes.
    assert "volumes" in job.replicas["Master"].template["spec"]
    assert "volumes" not in job.replicas["Worker"].template["spec"]


@pytest.mark.torch
def test_an_interrupted_training_resumes_and_a_finished_one_starts_again(tmp_path: Path) -> None:
    interrupted = _start(tmp_path, "--epochs=3")
    with interrupted:
        assert interrupted.stdout is not None
        for line in interrupted.stdout:
            if line.startswith("Train Epoch: 3"):
                interrupted.kill()
    assert (tmp_path / "digits.checkpoint.pt").exists()

    resumed = _finish(_start(tmp_path, "--epochs=3"))
    assert "Resuming after epoch 2" in resumed
    assert "Train Epoch: 2" not in resumed
    assert [file.name for file in tmp_path.iterdir()] == ["digits.pt"]
    first = _weights(tmp_path)

    again = _finish(_start(tmp_path, "--epochs=3"))
    assert "Resuming" not in again
    assert len(_accuracies(again)) == 3
    # The same seed, interrupted or not: the same model.
    second = _weights(tmp_path)
    assert first.keys() == second.keys()
    assert all(first[name].equal(second[name]) for name in first)


@pytest.mark.torch
@pytest.mark.thorough  # README's `make run` trains the same job, in the strongest sandbox
def test_three_processes_learn_the_digits_without_any_sandbox(tmp_path: Path) -> None:
    with up_command(tmp_path, "--sandbox", "plain") as up:
        data = ["--data-dir", str(up.data.path)]
        answer = trainwright("run", *data, str(EXAMPLE), environment=up.environment, seconds=240)

        assert answer.code == 0, answer.all
        printed = {rank: _lines(answer.out, rank) for rank in ("master-0", "worker-0", "worker-1")}
        assert printed["master-0"][0] == "Rank 0 of 3: distributed PyTorch with gloo backend"
        assert printed["worker-0"] == ["Rank 1 of 3: distributed PyTorch with gloo backend"]
        assert len([line for line in printed["master-0"] if LOSS_LINE.fullmatch(line)]) >= 8
        assert _accuracies("\n".join(printed["master-0"]))[-1] >= 0.95
        [volume] = re.findall(r"^Volume digits \(mounted at /models\): (.+)$", answer.out, re.MULTILINE)
        assert [file.name for file in Path(volume).iterdir()] == ["digits.pt"]
        assert not any(name.startswith("module.") for name in _weights(Path(volume)))


def _lines(output: str, rank: str) -> list[str]:
    """What one rank has printed, without its label, and without torch's warning that an address has no name here."""
    return re.findall(rf"^\[{rank}\] (?!\[W.*\[c10d\])(.*)$", output, re.MULTILINE)


def _start(directory: Path, *arguments: str) -> "subprocess.Popen[str]":
    environment = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    return subprocess.Popen(
        [sys.executable, str(EXAMPLE / "train.py"), "--model-dir", str(directory), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _finish(process: "subprocess.Popen[str]") -> str:
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return output


def _accuracies(output: str) -> list[float]:
    return [float(found) for found in re.findall(r"^accuracy=(\d\.\d{4})$", output, re.MULTILINE)]


def _weights(directory: Path) -> "dict[str, Any]":
    import torch

    weights: dict[str, Any] = torch.load(directory / "digits.pt", weights_only=True)
    return weights
