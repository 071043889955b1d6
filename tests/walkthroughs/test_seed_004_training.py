"""The manifests of seed 004, as they stand, trained with images of the names that they use.

The tutorial does not show its programs: these are ours, in seed_004/images, at the paths of the manifests.
"""

import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.cluster.embedded_cluster import up_command
from tests.support.commands.kubectl import Commands
from tests.support.commands.trainwright import command_line
from tests.support.images.seed_images import SEED_003, build_offline, make_wheel, with_torchvision
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(400)

TUTORIAL = Path(__file__).parent / "seed_004"
IMAGES = TUTORIAL / "images"
EXAMPLES = Path(__file__).parents[2] / "examples"
PYTORCH_IMAGE = "swr.cn-north-4.myhuaweicloud.com/honor-bigdata/pytorch-dist-mnist-test"
WAIT = "--timeout=300s"
WITH_HOROVOD = pytest.mark.skipif(find_spec("horovod") is None, reason="see tools/setup horovod")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, kubectl_binary: Path) -> Iterator[Commands]:
    with up_command(tmp_path_factory.mktemp("seed_004")) as up:
        yield Commands(up, kubectl_binary)


@pytest.fixture(scope="module")
def pytorch_images(cluster: Commands, tmp_path_factory: pytest.TempPathFactory) -> None:
    """With the two commands of the tutorial. Its Dockerfiles are not shown: those of the same program elsewhere are
    taken, in which torch has no MPI."""
    context = tmp_path_factory.mktemp("pytorch")
    seed = TUTORIAL.with_name("seed_images")
    shutil.copytree(seed / "torchvision", context / "torchvision", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(seed / "mnist_training.txt", context / "mnist.py")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as wheels:  # /tmp of a build is private
        make_wheel(Path(wheels))
        for file, tag in (("Dockerfile", "1.0"), ("Dockerfile-mpi", "mpi")):
            (context / file).write_text(with_torchvision(SEED_003, "/var"))
            words = ("-f", file, "-t", f"{PYTORCH_IMAGE}:{tag}", "./")
            build_offline(cluster.up, *words, context=context, wheels=Path(wheels))


def build(cluster: Commands, name: str, tag: str, directory: Path, *files: Path) -> None:
    """An image of seed_004/images, with further files in its context."""
    context = directory / name
    shutil.copytree(IMAGES / name, context)
    for file in files:
        shutil.copy(file, context)
    build_offline(cluster.up, "-t", tag, ".", context=context)


def apply_and_wait(cluster: Commands, manifest: str, job: str, *namespace: str) -> None:
    cluster.typed(" ".join(["kubectl", "apply", "-f", manifest, *namespace]), directory=TUTORIAL)
    cluster.kubectl("wait", "--for=condition=Succeeded", job, *namespace, WAIT)


def values_of(log: str, pattern: str) -> list[float]:
    return [float(loss) for loss in re.findall(pattern, log, re.MULTILINE)]


@pytest.mark.parametrize(
    ("example", "epochs"),
    [
        pytest.param("mpi", 100, marks=pytest.mark.mpi),
        pytest.param("horovod", 20, marks=[pytest.mark.horovod, pytest.mark.thorough, WITH_HOROVOD]),
    ],
)
def test_the_horovod_job_trains_in_both_workers(cluster: Commands, tmp_path: Path, example: str, epochs: int) -> None:
    program = EXAMPLES / example / "train.py"
    build(cluster, "mpi-horovod-mnist", "docker.io/kubeflow/mpi-horovod-mnist", tmp_path, program)

    apply_and_wait(cluster, "tensorflow-mnist-hvd.yaml", "mpijob/tensorflow-mnist", "-n", "mpi-operator")

    log = cluster.kubectl("logs", "tensorflow-mnist-launcher", "-n", "mpi-operator")
    # kubexec.sh has `set -x`; the `+` of the two may be in one line.
    for worker in ("tensorflow-mnist-worker-0", "tensorflow-mnist-worker-1"):
        assert f"/opt/kube/kubectl exec {worker} -- /bin/sh -c " in log
    results = re.findall(r"^process (\d) of 2: test loss=(\S+) accuracy=(\S+)$", log, re.MULTILINE)
    assert sorted(rank for rank, *_ in results) == ["0", "1"]
    [(_, accuracy)] = {result[1:] for result in results}  # the same model in both
    assert float(accuracy) > 0.9
    losses = values_of(log, rf"^\[\d+/{epochs}\] loss=(\S+)$")
    assert len(losses) == epochs
    assert losses[-1] < losses[0] / 4
    workers = "job-name=tensorflow-mnist,replica-type=worker"  # cleanPodPolicy: Running
    cluster.kubectl("wait", "--for=delete", "pod", "-n", "mpi-operator", "-l", workers, WAIT)
    pods = cluster.kubectl("get", "pods", "-n", "mpi-operator", "--no-headers", "-l", "job-name=tensorflow-mnist")
    assert [line.split()[:3] for line in pods.splitlines()] == [["tensorflow-mnist-launcher", "0/1", "Completed"]]
    cluster.typed("kubectl delete -f tensorflow-mnist-hvd.yaml -n mpi-operator", directory=TUTORIAL)


@pytest.mark.mpi
@pytest.mark.thorough
def test_the_benchmark_prints_what_tf_cnn_benchmarks_prints(cluster: Commands, tmp_path: Path) -> None:
    build(
        cluster,
        "tensorflow-benchmarks",
        "mpioperator/tensorflow-benchmarks:latest",
        tmp_path,
        EXAMPLES / "mpi" / "train.py",
    )

    apply_and_wait(cluster, "tensorflow-benchmarks.yaml", "mpijob/tensorflow-benchmarks", "-n", "mpi-operator")

    log = cluster.kubectl("logs", "tensorflow-benchmarks-launcher", "-n", "mpi-operator")
    assert "Model:       resnet101\nBatch size:  128 global\n             64 per device\n" in log
    losses = values_of(log, r"^\d+\timages/sec: [\d.]+\t(\S+)$")
    assert len(losses) == 11
    assert losses[-1] < losses[0] / 2
    hosts = re.findall(r"^process (\d) of 2 on (\S+): total images/sec: [\d.]+$", log, re.MULTILINE)
    assert sorted(hosts) == [(str(rank), f"tensorflow-benchmarks-worker-{rank}") for rank in (0, 1)]


@pytest.mark.tensorflow
@pytest.mark.thorough
def test_the_single_worker_leaves_its_summaries_on_the_volume(cluster: Commands, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    build(cluster, "tf-mnist-with-summaries", "kubedl/tf-mnist-with-summaries:1.0", tmp_path)
    manifest = (TUTORIAL / "tfevent-pv.yaml").read_text().replace("/tmp/data", str(volume))
    cluster.kubectl("apply", "-f", "-", stdin=manifest)
    cluster.typed("kubectl apply -f tfevent-pvc.yaml", directory=TUTORIAL)

    apply_and_wait(cluster, "tf_job_mnist.yaml", "tfjob/mnist", "-n", "kubeflow")

    assert sorted(path.parent.name for path in volume.glob("logs/*/events.out.tfevents.*")) == ["test", "train"]
    log = cluster.kubectl("logs", "mnist-worker-0", "-n", "kubeflow")
    accuracies = values_of(log, r"^Accuracy at step \d+: (\S+)$")
    assert len(accuracies) == 11
    assert accuracies[0] < 0.5
    assert accuracies[-1] > 0.8


@pytest.mark.tensorflow
@pytest.mark.thorough
def test_both_workers_train_the_weights_of_the_parameter_server(cluster: Commands, tmp_path: Path) -> None:
    tag = "swr.cn-north-4.myhuaweicloud.com/honor-bigdata-dev/distributed_worker:1.0"
    build(cluster, "distributed_worker", tag, tmp_path)

    apply_and_wait(cluster, "distributed_tfjob.yaml", "tfjob/distributed-training", "-n", "kubeflow")

    for index in (0, 1):
        worker = f"distributed-training-worker-{index}"
        ended = "--for=jsonpath={.status.phase}=Succeeded"  # the other worker may take a moment longer
        cluster.kubectl("wait", ended, f"pod/{worker}", "-n", "kubeflow", WAIT)
        log = cluster.kubectl("logs", worker, "-n", "kubeflow")
        losses = values_of(log, rf"^worker {index} of 2: \[\d+/150\] loss=(\S+)$")
        assert len(losses) == 5
        assert losses[-1] < losses[0]
        [accuracy] = values_of(log, rf"^worker {index} of 2: accuracy=(\S+)$")
        assert accuracy > 0.8
    # A parameter server does not end by itself, and cleanPodPolicy None keeps it.
    server = cluster.kubectl("get", "pod", "distributed-training-ps-0", "-n", "kubeflow", "--no-headers")
    assert server.split()[1:3] == ["1/1", "Running"]
    cluster.kubectl("delete", "-f", str(TUTORIAL / "distributed_tfjob.yaml"))


@pytest.mark.torch
@pytest.mark.thorough
@pytest.mark.usefixtures("pytorch_images")
def test_three_ranks_train_with_gloo(cluster: Commands) -> None:
    apply_and_wait(cluster, "pytorch_job_mnist_gloo.yaml", "pytorchjob/pytorch-dist-mnist-gloo")

    log = cluster.kubectl("logs", "pytorch-dist-mnist-gloo-master-0")
    assert log.startswith("Using distributed PyTorch with gloo backend\n")
    losses = values_of(log, r"^Train Epoch: 1 \[\d+/1500 \(\d+%\)\]\tloss=(\S+)$")
    assert losses[-1] < losses[0]
    described = cluster.kubectl("describe", "pod", "pytorch-dist-mnist-gloo-master-0")
    assert layout(described, start="Containers:") >= layout((TUTORIAL / "pytorch_container.txt").read_text())


def layout(text: str, start: str = "") -> set[str]:
    """What kubectl prints before the first colon of each line, from the line `start` on."""
    return {line.split(":")[0] for line in text[text.index(start) :].splitlines()}


@pytest.mark.torch
@pytest.mark.thorough
@pytest.mark.usefixtures("pytorch_images")
def test_the_backend_mpi_restarts_and_the_cause_is_named(cluster: Commands) -> None:
    cause = "RuntimeError: Distributed package doesn't have MPI built in"
    advice = (
        "this torch has no MPI: use the backend gloo, or run an MPI program as an MPIJob, in which mpirun starts it"
    )
    manifest = str(TUTORIAL / "pytorch_job_mnist_mpi.yaml")
    command = command_line("run", "--data-dir", str(cluster.up.data.path), manifest)
    run = subprocess.Popen(command, env=dict(cluster.up.environment), stdout=subprocess.PIPE, text=True)
    try:
        printed = ""
        for line in run.stdout or ():
            printed += line
            if line.startswith(f"  {advice}"):
                break
    finally:
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=60)

    assert re.search(rf"^\S+-\d has failed \d times in the same way, .*{re.escape(cause)}", printed, re.MULTILINE)
    wait_until(lambda: cause in cluster.kubectl("describe", "pytorchjob", "pytorch-dist-mnist-mpi"))
    events = cluster.kubectl("describe", "pytorchjob", "pytorch-dist-mnist-mpi")
    assert re.search(rf"Warning +FailureDiagnosed .* failed first: {re.escape(cause)}.*: {re.escape(advice)}", events)
    job = cluster.get("pytorchjob", "pytorch-dist-mnist-mpi")
    assert [one["type"] for one in job["status"]["conditions"] if one["status"] == "True"] == ["Created", "Running"]
    restarts = cluster.kubectl("get", "pods", "-l", "job-name=pytorch-dist-mnist-mpi", "--no-headers").splitlines()
    assert any(int(line.split()[3]) >= 1 for line in restarts)
    cluster.kubectl("delete", "-f", manifest)
