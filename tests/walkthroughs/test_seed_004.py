"""A tutorial for tf-operator, pytorch-operator and mpi-operator: its manifests and commands, as they stand there, on
both clusters. `test_seed_004_training` has the images that they name.

The manifests have cleanPodPolicy directly under `spec`, a role named `Ps` and images with a program inside.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cluster.embedded_cluster import up_command
from tests.support.commands.kubectl import Commands
from tests.support.commands.real_kubectl import RealKubectl
from tests.support.commands.trainwright import trainwright
from tests.support.harness.cluster_harness import RealClusterHarness, real_cluster_harness
from tests.support.harness.job_harness import environment
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.waiting import wait_until
from trainwright.api.kinds.mpi import MPI
from trainwright.api.kinds.pytorch import PYTORCH
from trainwright.api.kinds.tensorflow import TENSORFLOW
from trainwright.kube.client.errors import AlreadyExists
from trainwright.objects import Object
from trainwright.objects.resources import NAMESPACES, SERVICE_ACCOUNTS

TUTORIAL = Path(__file__).parent / "seed_004"
NAMESPACE = "kubeflow"
"""The namespace that the manifests name, if they name one."""
APPLIED = {
    "tfevent-pv.yaml": "persistentvolume/tfevent-volume created",
    "tfevent-pvc.yaml": "persistentvolumeclaim/tfevent-volume created",
    "tf_job_mnist.yaml": "tfjob.kubeflow.org/mnist created",
    "distributed_tfjob.yaml": "tfjob.kubeflow.org/distributed-training created",
    "pytorch_job_mnist_gloo.yaml": "pytorchjob.kubeflow.org/pytorch-dist-mnist-gloo created",
    "pytorch_job_mnist_mpi.yaml": "pytorchjob.kubeflow.org/pytorch-dist-mnist-mpi created",
    "tensorflow-benchmarks.yaml": "mpijob.kubeflow.org/tensorflow-benchmarks created",
    "tensorflow-mnist-hvd.yaml": "mpijob.kubeflow.org/tensorflow-mnist created",
}
"""What `kubectl apply -f` prints for each manifest."""

Get = Callable[..., Any]
"""`kubectl get … -o json`"""


def check_tf_config(get: Get) -> None:
    """The text of the tutorial."""
    [shown] = yaml.safe_load((TUTORIAL / "tf_config.yaml").read_text())["spec"]["containers"]
    expected = environment({"spec": {"containers": [shown]}})["TF_CONFIG"]

    given = environment(get("pod", "distributed-training-worker-0", "-n", NAMESPACE))["TF_CONFIG"]
    assert given == expected


def check_single_worker(pod: Object) -> None:
    """It has no TF_CONFIG, and the volume."""
    assert "env" not in pod["spec"]["containers"][0]
    assert {"name": "training", "persistentVolumeClaim": {"claimName": "tfevent-volume"}} in pod["spec"]["volumes"]


def check_pytorch_environment(pod: Object) -> None:
    """The variables of the tutorial's master among those of training-operator 1.9.4, which gives the master its
    name."""
    _, _, shown = (TUTORIAL / "pytorch_container.txt").read_text().partition("Environment:\n")
    expected = {name: str(value) for name, value in yaml.safe_load(shown).items()}
    expected["MASTER_ADDR"] = "pytorch-dist-mnist-gloo-master-0"

    given = environment(pod)
    of_1_9_4 = {
        "PYTHONUNBUFFERED": "1",
        "PET_MASTER_PORT": expected["MASTER_PORT"],
        "PET_MASTER_ADDR": expected["MASTER_ADDR"],
        "PET_NODE_RANK": "0",
        "PET_NPROC_PER_NODE": "auto",
        "PET_NNODES": "3",
    }
    assert given == expected | of_1_9_4
    assert [name for name in given if name in expected] == list(expected)


def check_mpi_config(config: Object, job: str) -> None:
    """hostfile and kubexec.sh are those of the tutorial."""
    shown = yaml.safe_load((TUTORIAL / "mpi_config.yaml").read_text().replace("tensorflow-mnist-mpi", job))
    data = config["data"]
    assert {key: data[key] for key in shown["data"]} == shown["data"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, kubectl_binary: Path) -> Iterator[Commands]:
    """The embedded cluster, without the images of the tutorial."""
    with up_command(tmp_path_factory.mktemp("seed_004")) as up:
        yield Commands(up, kubectl_binary)


def test_a_job_whose_image_defines_the_program_says_what_is_missing(cluster: Commands) -> None:
    manifest, data = str(TUTORIAL / "distributed_tfjob.yaml"), str(cluster.up.data.path)
    answer = trainwright("run", "--data-dir", data, manifest, environment=cluster.up.environment)

    assert answer.code == 1
    assert (
        "distributed-training cannot start: worker-0 is waiting: ImageHasNoCommand: this node has no image "
        "swr.cn-north-4.myhuaweicloud.com/honor-bigdata-dev/distributed_worker:1.0 that could define the command: "
        "build, pull or load it with `trainwright image`, or add `command:` to container tensorflow\n"
    ) in answer.out
    pods = cluster.kubectl("get", "pods", "-n", NAMESPACE, "--no-headers", "-l", "job-name=distributed-training")
    assert [line.split()[:3] for line in pods.splitlines()] == [
        [f"distributed-training-{rank}", "0/1", "ImageHasNoCommand"] for rank in ("ps-0", "worker-0", "worker-1")
    ]
    cluster.kubectl("delete", "-f", manifest)


def test_the_commands_of_the_tutorial_on_the_embedded_cluster(cluster: Commands, tmp_path: Path) -> None:
    for manifest in APPLIED:  # the directory of the volume, which the node creates, is one of this test
        text = (TUTORIAL / manifest).read_text().replace("/tmp/data", str(tmp_path / "volume"))
        (tmp_path / manifest).write_text(text)

    def typed(line: str) -> str:
        return cluster.typed(line, directory=tmp_path)

    kinds = [line.split()[0] for line in typed("kubectl get crd | grep kubeflow").splitlines()]
    assert {"mpijobs.kubeflow.org", "pytorchjobs.kubeflow.org", "tfjobs.kubeflow.org"} <= set(kinds)

    for manifest, printed in APPLIED.items():
        namespace = " -n mpi-operator" if manifest == "tensorflow-benchmarks.yaml" else ""
        assert typed(f"kubectl apply -f {manifest}{namespace}") == f"{printed}\n"

    wait = ("wait", "--timeout=60s")
    cluster.kubectl(*wait, "--for=jsonpath={.status.phase}=Bound", "pvc/tfevent-volume", "-n", NAMESPACE)
    header, row = typed("kubectl get pvc -n kubeflow").splitlines()
    assert header.split()[:6] == ["NAME", "STATUS", "VOLUME", "CAPACITY", "ACCESS", "MODES"]
    assert row.split()[:6] == ["tfevent-volume", "Bound", "tfevent-volume", "10Gi", "RWX", "standard"]
    cluster.kubectl(*wait, "--for=condition=Created", "tfjob/mnist", "-n", NAMESPACE)
    shown = yaml.safe_load(typed("kubectl -n kubeflow get tfjob mnist -o yaml"))
    assert shown["status"]["conditions"][0]["reason"] == "TFJobCreated"
    operator = "kubectl get pods -n kubeflow --selector=name=tf-job-operator -o jsonpath='{.items[0].metadata.name}'"
    assert typed(operator) == "training-operator-0"
    assert "Traceback" not in typed(f"kubectl -n kubeflow logs `{operator}`")

    pods = ["pod/distributed-training-worker-0", "pod/mnist-worker-0"]
    cluster.kubectl(*wait, "--for=create", "-n", NAMESPACE, *pods)
    cluster.kubectl(*wait, "--for=create", "pod/pytorch-dist-mnist-gloo-master-0", "configmap/tensorflow-mnist-config")
    cluster.kubectl(*wait, "--for=create", "-n", "mpi-operator", "configmap/tensorflow-benchmarks-config")
    check_tf_config(cluster.get)
    check_single_worker(cluster.get("pod", "mnist-worker-0", "-n", NAMESPACE))
    check_pytorch_environment(cluster.get("pod", "pytorch-dist-mnist-gloo-master-0"))
    check_mpi_config(
        cluster.get("configmap", "tensorflow-benchmarks-config", "-n", "mpi-operator"), "tensorflow-benchmarks"
    )
    check_mpi_config(cluster.get("configmap", "tensorflow-mnist-config"), "tensorflow-mnist")
    missing = "image kubedl/tf-mnist-with-summaries:1.0 is not on this machine"
    wait_until(lambda: missing in cluster.kubectl("describe", "tfjob", "mnist", "-n", NAMESPACE))
    for manifest in reversed(APPLIED):
        namespace = " -n mpi-operator" if manifest == "tensorflow-benchmarks.yaml" else ""
        assert " deleted" in typed(f"kubectl delete -f {manifest}{namespace}")


@pytest.mark.apiserver
async def test_the_same_manifests_on_a_real_api_server(job_plane: ControlPlane, tmp_path: Path) -> None:
    kubectl = RealKubectl(job_plane)
    files = [word for name in APPLIED for word in ("-f", str(TUTORIAL / name))]
    async with real_cluster_harness(job_plane.config, NAMESPACE, tmp_path) as cluster:
        with suppress(AlreadyExists):
            await cluster.client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        with suppress(AlreadyExists):
            await cluster.client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default", "namespace": NAMESPACE}})
        try:
            printed = await asyncio.to_thread(kubectl, "apply", "-n", NAMESPACE, *files)
            assert printed.splitlines() == list(APPLIED.values())
            await check_lives(cluster)
            await asyncio.to_thread(check_objects, kubectl)
        finally:
            # The test's control plane has no controller that would remove the finalizers of volumes.
            await asyncio.to_thread(kubectl, "delete", "-n", NAMESPACE, "--wait=false", *files)


def check_objects(kubectl: RealKubectl) -> None:
    check_tf_config(kubectl.get)
    check_single_worker(kubectl.get("pod", "mnist-worker-0", "-n", NAMESPACE))
    master = kubectl.get("pod", "pytorch-dist-mnist-gloo-master-0", "-n", NAMESPACE)
    check_pytorch_environment(master)
    for job in ("tensorflow-benchmarks", "tensorflow-mnist"):
        check_mpi_config(kubectl.get("configmap", f"{job}-config", "-n", NAMESPACE), job)


async def check_lives(cluster: RealClusterHarness) -> None:
    """As the tutorial's programs live: all end but a parameter server, and `--backend mpi`, which restarts."""
    tensorflow, pytorch, mpi = cluster.of(TENSORFLOW), cluster.of(PYTORCH), cluster.of(MPI)
    distributed = [f"distributed-training-{rank}" for rank in ("ps-0", "worker-0", "worker-1")]
    await tensorflow.wait_for_children("distributed-training", distributed)
    deprecated = "spec.cleanPodPolicy is deprecated, use spec.runPolicy.cleanPodPolicy instead"
    await tensorflow.wait_for_events("mnist", ("Warning", "DeprecatedField", deprecated))
    for name in ("gloo", "mpi"):
        ranks = [f"pytorch-dist-mnist-{name}-{rank}" for rank in ("master-0", "worker-0", "worker-1")]
        await pytorch.wait_for_children(f"pytorch-dist-mnist-{name}", ranks)
        await pytorch.wait_until_running(f"pytorch-dist-mnist-{name}")
    for job in ("tensorflow-benchmarks", "tensorflow-mnist"):
        await mpi.wait_for_children(job, [f"{job}-{rank}" for rank in ("launcher", "worker-0", "worker-1")])
        await mpi.wait_until_running(job)
    await tensorflow.wait_until_running("mnist")
    for role, number in (("PS", 1), ("Worker", 2)):
        await tensorflow.wait_for_counts("distributed-training", role, active=number)

    for pod in ("mnist-worker-0", "distributed-training-worker-0", "pytorch-dist-mnist-gloo-master-0"):
        await cluster.end(pod, exit_code=0)
    for job in ("tensorflow-benchmarks", "tensorflow-mnist"):
        await cluster.end(f"{job}-launcher", exit_code=0)
    await cluster.kubelet.back_off("pytorch-dist-mnist-mpi-master-0", message="back-off 10s restarting")

    for kind, job in (
        (tensorflow, "mnist"),
        (tensorflow, "distributed-training"),
        (pytorch, "pytorch-dist-mnist-gloo"),
    ):
        await kind.wait_for_end(job, "Succeeded")
    for job in ("tensorflow-benchmarks", "tensorflow-mnist"):
        await mpi.wait_for_end(job, "Succeeded")
        await mpi.wait_for_children(job, [f"{job}-launcher"])  # cleanPodPolicy: Running
    assert set(await tensorflow.pods("distributed-training")) == set(distributed)  # cleanPodPolicy: None
    about = "Error pod pytorch-dist-mnist-mpi-master-0 container pytorch waiting message: back-off 10s restarting"
    await pytorch.wait_for_events("pytorch-dist-mnist-mpi", ("Warning", "CrashLoopBackOff", about))
    assert (await pytorch.conditions("pytorch-dist-mnist-mpi"))[-1][:2] == ("Running", "True")
