"""The examples of all frameworks but PyTorch: real programs, distributed by the environment that the operator sets."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cluster.embedded_cluster import up_command
from tests.support.commands.trainwright import trainwright
from trainwright.api.job import read_job
from trainwright.cli.manifests.reader import read_manifests

EXAMPLES = Path(__file__).parents[2] / "examples"
FRAMEWORKS = {
    "tensorflow-workers": "tensorflow",
    "tensorflow-parameter-server": "tensorflow",
    "mpi": "mpi",
    "horovod": "horovod",
    "horovod-elastic": "horovod",
    "pytorch-elastic": "torch",
    "jax": "jax",
    "xgboost": "xgboost",
    "paddle": "paddle",
}
"""The package that each example needs."""
EQUAL_RESULTS = ["tensorflow-workers", "mpi", "horovod", "jax", "xgboost", "paddle"]
"""Examples in which every process prints the result of the same model."""
SECONDS = 540
"""Machines that run other things too need many times the usual time."""


def trained(example: str, *values: object, thorough: bool = False) -> Any:
    """A parameter for the example with the marks of its framework. `thorough`: also if others of it are quick."""
    framework = FRAMEWORKS[example]
    marks = [getattr(pytest.mark, framework)]
    if thorough or example not in {"tensorflow-parameter-server", "mpi"}:
        marks.append(pytest.mark.thorough)
    if framework in {"paddle", "horovod"} and find_spec(framework) is None:
        marks.append(pytest.mark.skip(reason=f"this machine has no {framework}, see tools/setup {framework}"))
    return pytest.param(example, *values, marks=marks, id="-".join([example, *map(str, values)]))


@pytest.mark.parametrize("example", FRAMEWORKS)
def test_the_manifest_is_valid_for_any_cluster(example: str) -> None:
    [document] = read_manifests([str(EXAMPLES / example)])
    job = read_job(document.object)
    assert job.total_replicas >= 2
    assert {replica.restart_policy for replica in job.replicas.values()} == {"OnFailure"}
    image = yaml.safe_dump(document.object).split("image: ")[1].split()[0]
    assert f"docker build -t {image} ." in (EXAMPLES / example / "README.md").read_text()


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize(
    ("example", "sandbox"),
    [
        # tests/walkthroughs/test_seed_004_training.py trains the program of `mpi`, with the same checks.
        *(trained(example, "strongest", thorough=True) for example in EQUAL_RESULTS),
        *(
            trained(example, "plain")
            for example in EQUAL_RESULTS
            if FRAMEWORKS[example] not in {"tensorflow", "mpi", "horovod"}
        ),
    ],
)
def test_two_processes_train_the_same_model(example: str, sandbox: str, tmp_path: Path) -> None:
    output = run_example(example, tmp_path, sandbox)

    results = re.findall(r"^\[\S+ *\] \w+ (\d) of (\d): test loss=(\S+) accuracy=(\S+)$", output, re.MULTILINE)
    assert sorted(result[:2] for result in results) == [("0", "2"), ("1", "2")], output
    [(_, accuracy)] = {result[2:] for result in results}  # the same loss and accuracy in both processes
    assert float(accuracy) > 0.9
    losses = [float(loss) for loss in re.findall(r"\[\d+/\d+\] loss=(\S+)$", output, re.MULTILINE)]
    assert len(losses) >= 20
    assert losses[-1] < losses[0] / 4
    assert re.search(rf"succeeded in .*: accuracy={accuracy} loss=", output), output


@pytest.mark.mpi
@pytest.mark.thorough  # docs/how-to/mpi-programs.md runs such a program in the same way
@pytest.mark.timeout(SECONDS + 60)
def test_processes_of_mpi_add_up_their_shares_without_a_manifest(tmp_path: Path) -> None:
    with up_command(tmp_path) as up:
        flags = ["--data-dir", str(up.data.path), "--workers", "2", "--workdir", str(EXAMPLES / "mpi")]
        program = str(EXAMPLES / "mpi" / "reduction.py")
        answer = trainwright("run", program, *flags, "--", "--terms=1000", environment=up.environment, seconds=SECONDS)

    assert answer.code == 0, answer.all
    hosts = re.findall(r"^\[launcher\] process (\d) of 2 on reduction-worker-(\d): ", answer.out, re.MULTILINE)
    assert sorted(hosts) == [("0", "0"), ("1", "1")]
    assert "[launcher] pi is 3.1415927" in answer.out


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("example", [trained("tensorflow-parameter-server")])
def test_workers_train_the_weights_of_the_parameter_server(example: str, tmp_path: Path) -> None:
    output = run_example(example, tmp_path)

    assert "[chief-0]  Chief with 2 workers and 1 parameter servers: ParameterServerStrategy\n" in output
    assert "[chief-0]  The weights are on ['/job:ps/replica:0/task:0/device:CPU:0']\n" in output
    steps = dict(re.findall(r"Worker (\d) computed (\d+) steps$", output, re.MULTILINE))
    assert steps.keys() == {"0", "1"}
    assert sum(map(int, steps.values())) == 8 * 60
    losses = [float(loss) for loss in re.findall(r"Epoch \d/8 loss=(\S+)$", output, re.MULTILINE)]
    assert len(losses) == 8
    assert losses[-1] < losses[0] / 4
    [accuracy] = re.findall(r"succeeded in .*: accuracy=(\S+)", output)
    assert float(accuracy) > 0.85  # the workers do not wait for each other, so every run differs


def run_example(example: str, directory: Path, sandbox: str = "strongest") -> str:
    """The output of `trainwright run` for the example; the job must succeed."""
    level = [] if sandbox == "strongest" else ["--sandbox", sandbox]
    with up_command(directory, *level) as up:
        data = ["--data-dir", str(up.data.path)]
        answer = trainwright("run", *data, str(EXAMPLES / example), environment=up.environment, seconds=SECONDS)
    assert answer.code == 0, answer.all
    return answer.out
