"""A base image from Debian's packages, with its own Python and Open MPI: jobs whose programs are in the image alone, as
root and as an ordinary user with subordinate ids."""

import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster.embedded_cluster import UpCommand, up_command
from tests.support.images.machine_image import add_machine_image
from tests.support.images.tools import REASON, are_wanted
from trainwright.cluster.images.formats import RunConfig
from trainwright.cluster.images.store import ImageStore
from trainwright.cluster.linux.user_namespaces import has_subordinate_ids

pytestmark = [
    pytest.mark.images,
    pytest.mark.skipif(not are_wanted(), reason=REASON),
]

ROOT = Path(__file__).parents[4]
PROGRAM = """
import os, sys
assert sys.executable == "/usr/bin/python3", sys.executable
assert not os.path.exists(os.environ["HOST_PYTHON"]), "the host's Python is visible"
assert not os.path.exists(os.environ["HOST_FILE"]), "the host's files are visible"
with open("/etc/debian_version") as file:
    print("Debian", file.read().strip())
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "user", os.getuid(), sys.argv[1:], os.getcwd())
"""
JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: real-base}}
spec:
  pytorchReplicaSpecs:
    Master: &replica
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          containers:
          - name: pytorch
            image: local.test/team/trainer:1
            imagePullPolicy: IfNotPresent
            args: [--epochs, "3"]
            env:
            - {{name: HOST_PYTHON, value: {python}}}
            - {{name: HOST_FILE, value: {file}}}
    Worker: *replica
"""


MPI_JOB = """
apiVersion: kubeflow.org/v1
kind: MPIJob
metadata: {name: real-mpi}
spec:
  runPolicy: {cleanPodPolicy: Running}
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
          - name: mpi
            image: local.test/team/trainer:1
            command: [mpirun, -n, "2", sh, -c, echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname)]
    Worker:
      replicas: 2
      template: {spec: {containers: [{name: mpi, image: "local.test/team/trainer:1"}]}}
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "base.tar"
    command = ["mmdebstrap", "--variant=minbase", "--include=python3-minimal,openmpi-bin", "bookworm", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


def users() -> dict[str, pwd.struct_passwd | None]:
    """Root, and an ordinary user who has subordinate ids."""
    ordinary = [entry for entry in pwd.getpwall() if entry.pw_uid != 0 and has_subordinate_ids(entry.pw_uid)]
    return {"root": None, **({"ordinary": ordinary[0]} if ordinary else {})}


@pytest.fixture(params=["root", "ordinary"])
def up(request: pytest.FixtureRequest, base: Path) -> Iterator[UpCommand]:
    if request.param not in users():
        pytest.skip("no user of this machine has ids in /etc/subuid and /etc/subgid")
    user = users()[request.param]
    config = RunConfig(
        entrypoint=["python3", "/opt/train.py"], env=["PATH=/usr/bin"], working_dir="/opt/work", user="nobody"
    )
    with tempfile.TemporaryDirectory(prefix="trainwright-images-", dir="/tmp") as name:
        directory = Path(name)
        directory.chmod(0o755)
        store = ImageStore(directory / "data" / "images")
        add_machine_image(
            store, "local.test/team/trainer:1", config=config, files={"opt/train.py": PROGRAM.encode()}, base=base
        )
        prefix: tuple[str, ...] = ()
        python, environment = sys.executable, dict[str, str]()
        if user is not None:
            for path in (directory, *directory.rglob("*")):
                os.chown(path, user.pw_uid, user.pw_gid)
            ids = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
            prefix, python = ("setpriv", *ids), shutil.which("python3", path="/usr/local/bin:/usr/bin") or python
            environment = {"PYTHONPATH": f"{ROOT / 'src'}:{sysconfig.get_path('purelib')}"}
        with up_command(
            directory, "--python", python, python=Path(python), prefix=prefix, environment=environment
        ) as running:
            yield running


def test_a_job_whose_program_is_in_the_image_alone(up: UpCommand) -> None:
    output = run(up, JOB.format(python=sys.executable, file=__file__))

    for rank in ("0", "1"):
        assert f"rank {rank} of 2 user 65534 ['--epochs', '3'] /opt/work" in output
    assert "Debian 12" in output


def test_open_mpi_of_the_image_starts_a_process_in_each_worker(up: UpCommand) -> None:
    output = run(up, MPI_JOB)

    for rank in ("0", "1"):
        assert f"rank {rank} of 2 on real-mpi-worker-{rank}\n" in output


def run(up: UpCommand, job: str) -> str:
    manifest = up.data.path.parent / "job.yaml"
    manifest.write_text(job)
    command = [sys.executable, "-m", "trainwright", "run", str(manifest), "--data-dir", str(up.data.path)]
    answer = subprocess.run(command, capture_output=True, text=True, env={**up.environment}, check=False, timeout=120)
    assert answer.returncode == 0, answer.stdout + answer.stderr + up.log.read_text()[-3000:]
    return answer.stdout
