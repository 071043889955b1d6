"""Launchers of MPIJobs on the embedded cluster reach their workers by kubectl, whatever their image contains."""

import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster.embedded_cluster import UpCommand, up_command
from tests.support.commands.trainwright import trainwright
from tests.support.images.machine_image import add_machine_image
from tests.support.node.images import shared_libraries
from trainwright.cluster.images.formats import RunConfig
from trainwright.cluster.images.store import ImageStore

IMAGE = "local.test/shell:1"
LAUNCHER = """
for host in $(while read host slots; do echo $host; done < /etc/mpi/hostfile); do
  /etc/mpi/kubexec.sh $host 'echo started in $HOSTNAME; exit 3'
  echo code $?
done
command -v python3 || echo no Python here
"""
JOB = """
apiVersion: kubeflow.org/v1
kind: MPIJob
metadata: {{name: shells}}
spec:
  runPolicy: {{cleanPodPolicy: Running}}
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
          - {{name: launcher, image: {image}, command: [/bin/sh, -c], args: [{script!r}]}}
    Worker:
      replicas: 2
      template: {{spec: {{containers: [{{name: worker, image: {image}}}]}}}}
"""


@pytest.fixture
def up(tmp_path: Path) -> Iterator[UpCommand]:
    """With an image that has nothing but a shell and `sleep`."""
    layer = tmp_path / "shell.tar"
    programs = [Path(found) for name in ("sh", "sleep") if (found := shutil.which(name))]
    with tarfile.open(layer, "w", dereference=True) as tar:
        for program in programs:
            tar.add(program, f"bin/{program.name}")
        for library in shared_libraries(programs):
            tar.add(library, str(library)[1:])
    store = ImageStore(tmp_path / "data" / "images")
    add_machine_image(store, IMAGE, config=RunConfig(env=["PATH=/bin", "LANG=de_DE.ISO-8859-1"]), base=layer)
    with up_command(tmp_path) as running:
        yield running


def test_launcher_without_python_starts_commands_in_its_workers(up: UpCommand) -> None:
    manifest = up.data.path.parent / "job.yaml"
    manifest.write_text(JOB.format(image=IMAGE, script=LAUNCHER))

    data = ["--data-dir", str(up.data.path)]
    answer = trainwright("run", *data, str(manifest), environment=up.environment)

    assert answer.code == 0, answer.all
    for worker in ("shells-worker-0", "shells-worker-1"):
        assert f"[launcher] started in {worker}\n" in answer.out
    assert answer.out.count("[launcher] code 3\n") == 2
    assert "[launcher] no Python here\n" in answer.out
