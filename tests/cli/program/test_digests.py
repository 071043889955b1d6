"""A job remembers its program, so that a later `run` sees that it was edited."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.objects.shell_jobs import shell_job
from trainwright.cli.manifests.apply import annotated_for_node, edited_files
from trainwright.cli.manifests.positions import Place
from trainwright.cli.manifests.reader import Document
from trainwright.cli.program.digests import with_digests
from trainwright.objects import Object


def job_in(directory: Path, *command: str, working_directory: str | None = None) -> Object:
    job = shell_job("digits", "true")
    [container] = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    container.pop("args", None)
    container["command"] = list(command)
    if working_directory:
        container["workingDir"] = working_directory
    document = Document(Place("job.yaml", 1), directory, job)
    return with_digests(annotated_for_node(document)).object


def test_edits_of_the_program_and_its_modules_are_seen(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import model")
    (tmp_path / "model.py").write_text("")
    (tmp_path / "other.py").write_text("")
    before = job_in(tmp_path, "python", "train.py")
    assert edited_files(job_in(tmp_path, "python", "train.py"), before) == []

    (tmp_path / "model.py").write_text("x = 1")
    (tmp_path / "other.py").write_text("x = 1")
    assert edited_files(job_in(tmp_path, "python", "train.py"), before) == ["model.py"]
    (tmp_path / "train.py").write_text("")
    assert edited_files(job_in(tmp_path, "python", "train.py"), before) == ["model.py", "train.py"]


def test_modules_and_other_working_directories_are_found(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    program = tmp_path / "package" / "train.py"
    program.write_text("1")
    module = job_in(tmp_path, "torchrun", "-m", "package.train")
    file = job_in(tmp_path, "python", "train.py", working_directory="package")
    program.write_text("2")
    assert edited_files(job_in(tmp_path, "torchrun", "-m", "package.train"), module) == ["package/train.py"]
    assert edited_files(job_in(tmp_path, "python", "train.py", working_directory="package"), file) == ["train.py"]


def test_jobs_without_a_program_of_this_machine_have_no_digests(tmp_path: Path) -> None:
    without = job_in(tmp_path, "python", "/opt/absent/train.py", "-m", "not-a-module")
    assert edited_files(without, without) == []
    document = Document(Place("job.yaml", 1), tmp_path, shell_job("digits", "true"))
    assert with_digests(document) is document  # not for the embedded cluster


@pytest.mark.parametrize("master", [1, {"template": {"spec": {"containers": [1, {"command": 5, "args": "train.py"}]}}}])
def test_malformed_jobs_are_left_to_validation(tmp_path: Path, master: Any) -> None:
    job = {**shell_job("digits", "true"), "spec": {"pytorchReplicaSpecs": {"Master": master}}}
    document = annotated_for_node(Document(Place("job.yaml", 1), tmp_path, job))
    assert with_digests(document) is document
