"""Two jobs of each framework at once: both declare the same ports, and each pod has its own."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.examples.test_frameworks import EXAMPLES, FRAMEWORKS, SECONDS, trained
from tests.support.cluster.embedded_cluster import UpCommand, up_command
from tests.support.commands.trainwright import Result, trainwright

COPIES = ("one", "two")
AT_PLAIN = [example for example in FRAMEWORKS if FRAMEWORKS[example] not in {"mpi", "horovod"}]
"""MPIJobs need the sandbox `overlay`."""


def copied(example: str, directory: Path, suffix: str) -> Path:
    """The example with another name for its job and claims."""
    target = directory / f"{example}-{suffix}"
    shutil.copytree(EXAMPLES / example, target)
    [manifest] = target.glob("*job.yaml")
    documents = list(yaml.safe_load_all(manifest.read_text()))
    for document in documents:
        document["metadata"]["name"] += f"-{suffix}"
        for claim in _claims(document):
            claim["claimName"] += f"-{suffix}"
    manifest.write_text(yaml.safe_dump_all(documents))
    return target


def _claims(value: Any) -> list[dict[str, str]]:
    if isinstance(value, dict):
        own = [value] if "claimName" in value else []
        return own + [claim for child in value.values() for claim in _claims(child)]
    return [claim for child in value for claim in _claims(child)] if isinstance(value, list) else []


def run_copy(up: UpCommand, directory: Path) -> Result:
    data = ["--data-dir", str(up.data.path)]
    return trainwright("run", *data, str(directory), environment=up.environment, seconds=SECONDS)


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize(
    ("example", "sandbox"),
    [
        # tests/end_to_end/test_many_jobs.py runs ten PyTorchJobs with the same port.
        *(
            pytest.param("pytorch-digits", sandbox, marks=[pytest.mark.torch, pytest.mark.thorough])
            for sandbox in ("strongest", "plain")
        ),
        # test_frameworks.py trains with parameter servers: twice four processes of TensorFlow would show little more.
        *(trained(example, "strongest", thorough=FRAMEWORKS[example] == "tensorflow") for example in FRAMEWORKS),
        *(trained(example, "plain", thorough=True) for example in AT_PLAIN),
    ],
)
def test_two_jobs_with_the_same_ports_train_at_once(example: str, sandbox: str, tmp_path: Path) -> None:
    level = [] if sandbox == "strongest" else ["--sandbox", sandbox]
    copies = [copied(example, tmp_path, suffix) for suffix in COPIES]
    with up_command(tmp_path, *level) as up, ThreadPoolExecutor() as threads:
        answers = list(threads.map(lambda copy: run_copy(up, copy), copies))

    for answer in answers:
        assert answer.code == 0, answer.all
        assert " succeeded in " in answer.out
