"""The state with which following a job begins."""

import os
from pathlib import Path

from tests.support.objects.shell_jobs import shell_job
from trainwright.cli.follow.state.followed_job import state_of
from trainwright.cli.targets import Target
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.objects.node_annotations import DIRECTORY


def test_the_number_of_epochs_is_read_from_the_program_of_the_job(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("Trainer(max_epochs=7)")
    job = shell_job("digits", "true")
    job["metadata"] |= {"uid": "1", "annotations": {DIRECTORY: str(tmp_path)}}
    container = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    target = Target(ClusterConfig(server="https://127.0.0.1:1"), True, "kubectl")
    for command, epochs in ((["python", "train.py"], 7), (["python", "train.py", "--epochs=3"], 3), (["true"], None)):
        container["command"] = command
        assert state_of(job, target).progress.epochs == epochs


def test_a_program_that_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.py")
    job = shell_job("digits", "true")
    job["metadata"] |= {"uid": "1", "annotations": {DIRECTORY: str(tmp_path)}}
    container = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    target = Target(ClusterConfig(server="https://127.0.0.1:1"), True, "kubectl")
    for word in ("train.py", "zero\0.py"):
        container["command"] = ["python", word]
        assert state_of(job, target).progress.epochs is None
