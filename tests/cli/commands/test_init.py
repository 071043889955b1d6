"""`trainwright init`: a manifest to start from."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from trainwright.api.job import read_job
from trainwright.cli.main import cli
from trainwright.cli.program.job import FRAMEWORKS


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(*words: str) -> Result:
    return CliRunner().invoke(cli, ["init", *words], prog_name="trainwright")


def written(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("workers", ["1", "3"])
def test_the_manifest_of_every_kind_is_valid_and_commented(directory: Path, framework: str, workers: str) -> None:
    kind = FRAMEWORKS[framework].name
    assert init("--kind", kind, "--workers", workers, "--gpus", "1").exit_code == 0
    job = read_job({**written(directory / "job.yaml"), "metadata": {"name": "train", "namespace": "default"}})
    launchers = 1 if kind == "MPIJob" else 0
    assert (job.kind.name, job.total_replicas) == (kind, int(workers) + launchers)
    text = (directory / "job.yaml").read_text()
    article = "An" if kind in {"MPIJob", "XGBoostJob"} else "A"
    assert text.startswith(f"# {article} {kind} that runs train.py: trainwright run job.yaml\n")
    first = next(iter(job.kind.roles)) if "Master" in text or launchers else job.kind.roles_by_label["worker"]
    assert f"# Also the name of its pods: {first.child_name('NAME', 0)}" in text
    # What is commented out is a part of the manifest as soon as somebody removes the marks.
    enabled = text.replace("# volume", "volume").replace("#   - {name", "  - {name")
    [pod] = [
        replica["template"]["spec"]
        for replica in yaml.safe_load(enabled)["spec"][job.kind.replicas_field].values()
        if "volumes" in replica["template"]["spec"]
    ]
    assert pod["volumes"][0]["name"] == pod["containers"][0]["volumeMounts"][0]["name"] == "models"


def test_the_program_is_found_from_the_directory_of_the_manifest(directory: Path) -> None:
    (directory / "manifests").mkdir()
    (directory / "fit.py").write_text("import jax\n")
    result = init("fit.py", "-o", "manifests/fit.yaml", "--", "--epochs", "3")
    assert (
        result.output == "manifests/fit.yaml created with a JAXJob; edit it, then: trainwright run manifests/fit.yaml\n"
    )
    made = written(directory / "manifests" / "fit.yaml")
    [container] = made["spec"]["jaxReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert container["command"] == ["python3", "../fit.py"]
    assert container["args"] == ["--epochs", "3"]
    assert made["metadata"]["name"] == "fit"


def test_a_file_is_overwritten_only_by_force(directory: Path) -> None:
    (directory / "job.yaml").write_text("mine")
    refused = init()
    assert refused.exit_code == 1
    assert "job.yaml exists: overwrite it with --force, or write another file with -o FILE" in refused.output
    assert (directory / "job.yaml").read_text() == "mine"
    assert init("--force").exit_code == 0
    assert written(directory / "job.yaml")["kind"] == "PyTorchJob"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent.py"], "absent.py does not exist"),
        (["-o", "."], ". is a directory: name a file in it, such as job.yaml"),
        (["-o", "absent/job.yaml"], "failed to write absent/job.yaml: No such file or directory"),
        (["--kind", "MXJob"], "write pytorch, tensorflow, xgboost, paddle, jax, mpi, or the kind of the job"),
        (["-m", "a.b", "train.py"], "-m a.b and train.py: name one of them"),
    ],
)
def test_a_mistake_is_one_clear_error(words: list[str], message: str) -> None:
    result = init(*words)
    assert result.exit_code in {1, 2}
    assert message in result.output


def test_standard_output(directory: Path) -> None:
    result = init("-m", "package.train", "-o", "-", "--nproc", "2")
    assert yaml.safe_load(result.output)["spec"]["nprocPerNode"] == "2"
    assert list(directory.iterdir()) == []
