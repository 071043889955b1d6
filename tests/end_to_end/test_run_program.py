"""`trainwright run train.py` trains an unchanged program and leaves the same files as torchrun."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.embedded_cluster import UpCommand, up_command
from tests.support.commands.trainwright import trainwright
from tests.support.kubernetes.controlplane import free_ports
from tests.support.thoroughness import THOROUGH

PROGRAM = Path(__file__).parents[2] / "examples" / "pytorch-digits" / "train.py"
ARGUMENTS = ("--epochs", "2", "--model-dir", "models")


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with up_command(tmp_path_factory.mktemp("embedded")) as up:
        yield up


@pytest.mark.torch
@pytest.mark.parametrize(
    ("flag", "processes"),
    [("--workers", 1), *([("--workers", 2), ("--workers", 4), ("--nproc", 2)] if THOROUGH else [])],
)
def test_the_files_are_those_of_torchrun(embedded: UpCommand, tmp_path: Path, flag: str, processes: int) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for directory in (ours, theirs):
        directory.mkdir()
    torchrun = _torchrun(processes, theirs)  # at the same time, to use both cores of a small machine
    answer = trainwright(
        "run", "--data-dir", str(embedded.data.path), "--python", sys.executable, str(PROGRAM),
        flag, str(processes), "--env", "OMP_NUM_THREADS=1", "--", *ARGUMENTS,
        environment=embedded.environment, directory=ours, seconds=240,
    )  # fmt: skip
    output, _ = torchrun.communicate(timeout=240)
    assert torchrun.returncode == 0, output
    assert answer.code == 0, answer.all
    assert "PyTorchJob" not in answer.err
    assert f"of {processes}: distributed PyTorch with gloo backend" in answer.out

    assert _files(ours) == _files(theirs) == ["models", "models/digits.pt"]
    model, expected = _weights(ours), _weights(theirs)
    assert {name: value.shape for name, value in model.items()} == {n: value.shape for n, value in expected.items()}
    if processes == 1:  # several ranks add their gradients in another order
        assert all(value.equal(expected[name]) for name, value in model.items())


def _torchrun(processes: int, directory: Path) -> "subprocess.Popen[str]":
    [port] = free_ports(1)
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--master-port", str(port)]
    return subprocess.Popen(
        [sys.executable, *launcher, str(PROGRAM), *ARGUMENTS],
        cwd=directory,
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # with several threads the order of sums is another
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def _weights(directory: Path) -> dict[str, Any]:
    import torch

    weights: dict[str, Any] = torch.load(directory / "models" / "digits.pt", weights_only=True)
    return weights
