"""A tutorial for tf-operator: its manifests, as they stand there, on both clusters.

They have cleanPodPolicy directly under `spec`, a role named `Ps` and images with a program inside.
"""

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.support.cluster.embedded_cluster import up_command
from tests.support.commands.kubectl import Commands
from tests.support.commands.trainwright import trainwright
from tests.support.harness.cluster_harness import ClusterHarness, embedded_cluster_harness, real_cluster_harness
from tests.support.harness.job_harness import JobHarness, environment
from trainwright.api.kinds.tensorflow import TENSORFLOW
from trainwright.cluster.datadir import DataDir
from trainwright.kube.client.errors import AlreadyExists
from trainwright.objects.resources import NAMESPACES, SERVICE_ACCOUNTS

pytestmark = pytest.mark.timeout(120)

TUTORIAL = Path(__file__).parent / "seed_004"
MANIFESTS = ("tfevent-pv.yaml", "tfevent-pvc.yaml", "tf_job_mnist.yaml", "distributed_tfjob.yaml")
NAMESPACE = "kubeflow"
"""The namespace that the manifests name."""
HOST_PATH = Path("/tmp/data")
"""The directory of the PersistentVolume; the embedded node creates it."""


@dataclass(frozen=True)
class Cluster:
    jobs: JobHarness
    kubectl: Callable[..., str]
    is_real: bool

    async def apply(self, manifest: Path) -> str:
        """The output of `kubectl apply`."""
        return await asyncio.to_thread(self.kubectl, "apply", "-f", str(manifest))


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.apiserver)])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path, kubectl_binary: Path) -> AsyncIterator[Cluster]:
    harness: AbstractAsyncContextManager[ClusterHarness]
    if request.param == "real":
        plane = request.getfixturevalue("job_plane")
        kubeconfig, harness = plane.kubeconfig, real_cluster_harness(plane.config, NAMESPACE, tmp_path)
    else:
        kubeconfig, harness = DataDir(tmp_path / "data").kubeconfig, embedded_cluster_harness(tmp_path)

    def kubectl(*arguments: str) -> str:
        command = [kubectl_binary, "--kubeconfig", kubeconfig, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    host_path_existed = HOST_PATH.exists()
    async with harness as running:
        with suppress(AlreadyExists):
            await running.client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        with suppress(AlreadyExists):
            await running.client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default", "namespace": NAMESPACE}})
        jobs = JobHarness(running.client, NAMESPACE, running.operator, kind=TENSORFLOW)
        yield Cluster(jobs, kubectl, is_real=request.param == "real")
        # The test's control plane has no controller that would remove the finalizers of volumes.
        files = [word for name in MANIFESTS for word in ("-f", str(TUTORIAL / name))]
        await asyncio.to_thread(kubectl, "delete", "--ignore-not-found", "--wait=false", *files)
    if not host_path_existed and HOST_PATH.exists():
        HOST_PATH.rmdir()


async def test_tf_config_of_a_worker_is_the_one_that_the_tutorial_shows(cluster: Cluster) -> None:
    shown = yaml.safe_load((TUTORIAL / "tf_config.yaml").read_text())
    [expected] = [env["value"] for env in shown["spec"]["containers"][0]["env"] if env["name"] == "TF_CONFIG"]

    assert "tfjob.kubeflow.org/distributed-training created" in await cluster.apply(TUTORIAL / "distributed_tfjob.yaml")
    names = [f"distributed-training-{rank}" for rank in ("ps-0", "worker-0", "worker-1")]
    await cluster.jobs.wait_for_children("distributed-training", names)

    pods = await cluster.jobs.pods("distributed-training")
    given = environment(pods["distributed-training-worker-0"])["TF_CONFIG"]
    if cluster.is_real:
        assert given == expected
    else:
        # One machine has one port 2222 for three servers.
        assert re.sub(r":\d+\"", ':2222"', given) == expected
        ports = {address.rpartition(":")[2] for role in json.loads(given)["cluster"].values() for address in role}
        assert len(ports) == 3


async def test_a_job_with_one_worker_and_the_volume_of_the_tutorial(cluster: Cluster) -> None:
    assert "persistentvolume/tfevent-volume created" in await cluster.apply(TUTORIAL / "tfevent-pv.yaml")
    assert "persistentvolumeclaim/tfevent-volume created" in await cluster.apply(TUTORIAL / "tfevent-pvc.yaml")
    assert "tfjob.kubeflow.org/mnist created" in await cluster.apply(TUTORIAL / "tf_job_mnist.yaml")
    await cluster.jobs.wait_for_children("mnist", ["mnist-worker-0"])

    [pod] = (await cluster.jobs.pods("mnist")).values()
    assert "env" not in pod["spec"]["containers"][0]
    assert {"name": "training", "persistentVolumeClaim": {"claimName": "tfevent-volume"}} in pod["spec"]["volumes"]
    if not cluster.is_real:  # no controller of the test's control plane binds claims
        bound = ("--for=jsonpath={.status.phase}=Bound", "pvc/tfevent-volume", "--namespace", NAMESPACE)
        await asyncio.to_thread(cluster.kubectl, "wait", *bound, "--timeout=30s")
    await cluster.jobs.wait_for_events(
        "mnist",
        (
            "Warning",
            "DeprecatedField",
            "spec.cleanPodPolicy is deprecated, use spec.runPolicy.cleanPodPolicy instead",
        ),
    )


def test_a_pod_whose_image_defines_the_program_says_what_is_missing(tmp_path: Path, kubectl_binary: Path) -> None:
    with up_command(tmp_path) as up:
        commands = Commands(up, kubectl_binary)
        selector = ("--selector=name=tf-job-operator", "-o", "jsonpath={.items[0].metadata.name}")
        operator = commands.kubectl("get", "pods", "-n", NAMESPACE, *selector)
        assert operator == "training-operator-0"
        commands.kubectl("-n", NAMESPACE, "wait", "--for=condition=Ready", f"pod/{operator}", "--timeout=30s")
        manifest = str(TUTORIAL / "distributed_tfjob.yaml")
        answer = trainwright("run", "--data-dir", str(up.data.path), manifest, environment=up.environment)
        assert "Traceback" not in commands.kubectl("-n", NAMESPACE, "logs", operator)
        with pytest.raises(AssertionError, match="container not found"):
            commands.kubectl("-n", NAMESPACE, "exec", operator, "--", "true")

        assert answer.code == 1
        assert (
            "distributed-training cannot start: worker-0 is waiting: ImageHasNoCommand: this node has no image "
            "swr.cn-north-4.myhuaweicloud.com/honor-bigdata-dev/distributed_worker:1.0 that could define the command: "
            "add `command:` to container tensorflow\n"
        ) in answer.out
        pods = commands.kubectl("get", "pods", "-n", NAMESPACE, "--no-headers").splitlines()
        assert [line.split()[:3] for line in pods] == [
            *(
                [f"distributed-training-{rank}", "0/1", "ImageHasNoCommand"]
                for rank in ("ps-0", "worker-0", "worker-1")
            ),
            [operator, "1/1", "Running"],
        ]
        trainwright("down", "--data-dir", str(up.data.path), environment=up.environment)
