"""The manifests of seeds 001 and 003, trained with the images that their Dockerfiles build.

What differs from the seeds is listed in docs/how-to/bring-your-image.md: the base is the files of this machine, and
torchvision and its download are replaced by a package with scikit-learn's digits beside the program.
"""

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster.embedded_cluster import UpCommand, up_command
from tests.support.commands.kubectl import Commands
from tests.support.images.seed_images import (
    SEED_001,
    SEED_003,
    SKIPPED,
    build_offline,
    make_wheel,
    with_torchvision,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.torch

SEED = Path(__file__).parent / "seed_images"
HOST_PATH = "/home/traindbjst/traindb/models"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, kubectl_binary: Path) -> Iterator[Commands]:
    directory = tmp_path_factory.mktemp("seeds")
    with up_command(directory) as up:
        _build(up, directory / "context")
        yield Commands(up, kubectl_binary)


def _build(up: UpCommand, context: Path) -> None:
    """With the commands of the seeds, while Docker Hub is unreachable."""
    shutil.copytree(SEED / "torchvision", context / "torchvision", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("mnist.py", "mnist_training.py"):
        shutil.copyfile(SEED / "mnist_training.txt", context / name)
    (context / "Dockerfile_training").write_text(with_torchvision(SEED_001, "/opt/mnist/src"))
    (context / "Dockerfile").write_text(with_torchvision(SEED_003, "/var"))
    with tempfile.TemporaryDirectory(dir="/var/tmp") as wheels:  # /tmp of a build is private
        make_wheel(Path(wheels))
        for words in (
            ["-f", "Dockerfile_training", "-t", "joleedocker/traindb-training-mnist:1.0", *SKIPPED],
            ["-t", "kubeflow/pytorch-dist-mnist-test:1.0"],
        ):
            build_offline(up, *words, ".", context=context, wheels=Path(wheels))


def test_seed_001_trains_and_leaves_its_model_on_the_volume(cluster: Commands, tmp_path: Path) -> None:
    models = tmp_path / "models"
    volumes = (SEED / "traindb-models.yaml").read_text().replace(HOST_PATH, str(models))  # the user's directory
    cluster.kubectl("apply", "-n", "kubeflow", "-f", "-", stdin=volumes)
    cluster.kubectl("create", "-f", str(SEED / "traindb-training-mnist.yaml"), "-n", "kubeflow")
    wait(cluster, "traindb-training-mnist", "kubeflow")

    labels = "job-name=traindb-training-mnist,replica-type=master,replica-index=0"
    listed = cluster.kubectl("get", "pods", "-l", labels, "-n", "kubeflow", "--no-headers")
    assert listed.split()[1:3] == ["0/1", "Completed"]  # the worker may take a moment longer
    pod = cluster.kubectl("get", "pods", "-l", labels, "-o", "name", "-n", "kubeflow").strip()
    check_log(cluster.kubectl("logs", pod, "-n", "kubeflow"))
    # Both ranks write the file, one after the other. The size is the seed's.
    wait_until(lambda: (models / "mnist_cnn.pt").stat().st_size == pytest.approx(1_725_733, rel=0.01))


@pytest.mark.thorough  # the program and the checks of seed 001, with more ranks
def test_seed_003_trains_with_four_ranks_and_arguments_alone(cluster: Commands) -> None:
    created = cluster.kubectl("create", "-f", str(SEED / "pytorch_job_mnist_gloo_demo.yaml"))
    assert created == "pytorchjob.kubeflow.org/pytorch-dist-mnist-gloo-demo created\n"
    wait(cluster, "pytorch-dist-mnist-gloo-demo", "default")

    shown = cluster.kubectl("get", "pytorchjob").splitlines()
    assert [line.split()[:2] for line in shown] == [["NAME", "STATE"], ["pytorch-dist-mnist-gloo-demo", "Succeeded"]]
    check_log(cluster.kubectl("logs", "pytorch-dist-mnist-gloo-demo-master-0"))


def wait(cluster: Commands, job: str, namespace: str) -> None:
    condition = ("--for=condition=Succeeded", "--timeout=200s")
    cluster.kubectl("wait", f"pytorchjob/{job}", "-n", namespace, *condition)


def check_log(log: str) -> None:
    """As the seeds print it."""
    assert log.startswith("Using distributed PyTorch with gloo backend\n")
    losses = re.findall(r"^Train Epoch: 1 \[\d+/1500 \(\d+%\)\]\tloss=(\d+\.\d{4})$", log, re.MULTILINE)
    assert len(losses) == 3
    assert float(losses[-1]) < float(losses[0])
    assert re.search(r"^accuracy=0\.\d{4}$", log, re.MULTILINE)
