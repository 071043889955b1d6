"""kubectl's commands for Deployments and Jobs print the same with our controllers and with upstream's."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cluster.controllers.conftest import ControllerCluster
from tests.support.background import in_background
from tests.support.waiting import eventually
from trainwright.kube.client.errors import ApiError
from trainwright.kube.client.kubeconfig import merge_into_kubeconfig
from trainwright.objects import Object
from trainwright.objects.resources import PODS

pytestmark = pytest.mark.apiserver

LONG_AGO = "2026-01-01T00:00:00Z"


class Kubectl:
    def __init__(self, binary: Path, directory: Path, cluster: ControllerCluster) -> None:
        self._command = [str(binary), "--kubeconfig", str(directory / "kubeconfig"), "-n", cluster.namespace]
        self._environment = {"HOME": str(directory), "PATH": "/usr/bin:/bin"}
        self.namespace = cluster.namespace
        config = cluster.client.config
        merge_into_kubeconfig(
            directory / "kubeconfig",
            name="e",
            server=config.server,
            ca_data=config.ca_data or b"",
            token=config.token or "",
        )

    async def __call__(self, words: str) -> str:
        """The output without what differs between any two runs."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            *words.split(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._environment,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, f"kubectl {words}: {output.decode()}"
        return re.sub(
            r"\b(?:[0-9]+[hms])+\b", "AGE", re.sub(r"-[bcdfghjklmnpqrstvwxz2456789]{8,10}\b", "-HASH", output.decode())
        )


async def run_pods(cluster: ControllerCluster) -> None:
    """In place of the kubelet: pods of Jobs succeed, all others become ready."""
    while True:
        for pod in (await cluster.client.list(PODS, namespace=cluster.namespace)).items:
            if pod["status"]["phase"] == "Pending":
                await _report(cluster, pod)
        await asyncio.sleep(0.02)


async def _report(cluster: ControllerCluster, pod: Object) -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO}
    status = {"phase": "Running", "conditions": [ready]}
    if "job-name" in pod["metadata"]["labels"]:
        status = {"phase": "Succeeded"}
    try:
        await cluster.client.patch(
            PODS, pod["metadata"]["name"], {"status": status}, namespace=cluster.namespace, subresource="status"
        )
    except ApiError:
        return  # deleted meanwhile


@pytest.fixture
async def kubectl(cluster: ControllerCluster, kubectl_binary: Path, tmp_path: Path) -> AsyncIterator[Kubectl]:
    directory = tmp_path / "kubectl"
    directory.mkdir()
    async with in_background(run_pods(cluster)):
        yield Kubectl(kubectl_binary, directory, cluster)


async def test_life_of_a_deployment(kubectl: Kubectl) -> None:
    assert await kubectl("create deployment web --image=one --replicas=2 --port=80") == "deployment.apps/web created\n"
    assert (await kubectl("rollout status deployment/web")).endswith('deployment "web" successfully rolled out\n')
    assert await kubectl("get deployment web") == (
        "NAME   READY   UP-TO-DATE   AVAILABLE   AGE\nweb    2/2     2            2           AGE\n"
    )

    assert await kubectl("set image deployment/web one=two") == "deployment.apps/web image updated\n"
    assert (await kubectl("rollout status deployment/web")).endswith('deployment "web" successfully rolled out\n')
    assert await kubectl("rollout history deployment/web") == (
        "deployment.apps/web \nREVISION  CHANGE-CAUSE\n1         <none>\n2         <none>\n\n"
    )
    assert "Image:\ttwo" in await kubectl("rollout history deployment/web --revision=2")

    assert await kubectl("rollout undo deployment/web") == "deployment.apps/web rolled back\n"
    await kubectl("rollout status deployment/web")
    assert await kubectl("get deployment web -o jsonpath={.spec.template.spec.containers[0].image}") == "one"

    assert await kubectl("rollout restart deployment/web") == "deployment.apps/web restarted\n"
    await kubectl("rollout status deployment/web")
    assert "4         <none>" in await kubectl("rollout history deployment/web")

    assert await kubectl("rollout pause deployment/web") == "deployment.apps/web paused\n"
    assert await kubectl("rollout resume deployment/web") == "deployment.apps/web resumed\n"
    assert await kubectl("scale deployment/web --replicas=3") == "deployment.apps/web scaled\n"
    await kubectl("rollout status deployment/web")
    await kubectl("wait --for=condition=Available deployment/web --timeout=30s")
    await kubectl("wait --for=jsonpath={.status.readyReplicas}=3 deployment/web --timeout=30s")

    described = await kubectl("describe deployment web")
    assert "Replicas:               3 desired | 3 updated | 3 total | 3 available | 0 unavailable" in described
    assert "StrategyType:           RollingUpdate" in described
    assert "25% max unavailable, 25% max surge" in described
    assert "Normal  ScalingReplicaSet" in described
    assert await kubectl("delete deployment web --cascade=foreground") == (
        f'deployment.apps "web" deleted from {kubectl.namespace} namespace\n'
    )
    assert await kubectl("get deployments,replicasets,pods") == (
        f"No resources found in {kubectl.namespace} namespace.\n"
    )


async def test_orphans_survive_their_deployment(kubectl: Kubectl) -> None:
    await kubectl("create deployment web --image=one")
    await kubectl("rollout status deployment/web")
    await kubectl("delete deployment web --cascade=orphan")
    assert (await kubectl("get replicasets --no-headers")).split()[1:4] == ["1", "1", "1"]


async def test_life_of_a_job(kubectl: Kubectl) -> None:
    assert await kubectl("create job pi --image=perl -- perl -e 1") == "job.batch/pi created\n"
    assert await kubectl("wait --for=condition=complete job/pi --timeout=30s") == "job.batch/pi condition met\n"
    assert await kubectl("get job pi") == (
        "NAME   STATUS     COMPLETIONS   DURATION   AGE\npi     Complete   1/1           AGE         AGE\n"
    )
    # Events are written after the status.
    completed = "Normal Completed AGE job-controller Job completed"
    described = await eventually(lambda: kubectl("describe job pi"), lambda text: completed in " ".join(text.split()))
    assert "Pods Statuses:    0 Active (0 Ready) / 1 Succeeded / 0 Failed" in described
    assert await kubectl("delete job pi") == f'job.batch "pi" deleted from {kubectl.namespace} namespace\n'
