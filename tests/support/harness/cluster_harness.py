"""Two clusters on which the same play is given: the real API server with a played kubelet, and the embedded cluster
with real processes. A test that knows only `ClusterHarness` passes on both, or has found a difference."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.cluster.embedded_cluster import embedded_cluster
from tests.support.cluster.fake_kubelet import FakeKubelet, running_kubelet
from tests.support.harness.job_harness import JobHarness
from tests.support.harness.running_operator import running_operator, settled
from tests.support.objects.jobs import JobBuilder
from trainwright.api.kinds import KINDS
from trainwright.cli.up_process import operator_settings
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.objects import Object
from trainwright.objects.resources import PODS
from trainwright.operator import Operator, install_crds

# $0 is the directory in which the harness leaves a file with the exit code, named after the rank.
_PROGRAM = 'until [ -e "$0/$RANK" ]; do sleep 0.02; done; read code < "$0/$RANK"; rm "$0/$RANK"; exit "$code"'


class ClusterHarness(JobHarness, ABC):
    """A cluster with a running operator, a namespace on it, and power over how the pods' programs end."""

    def __init__(self, client: Client, namespace: str, operator: Operator, directory: Path) -> None:
        super().__init__(client, namespace, operator)
        self._directory = directory

    @abstractmethod
    async def end(self, pod: str, *, exit_code: int) -> None:
        """Lets the program of this pod, which runs, end."""

    def template(self) -> Object:
        """A pod template for a PyTorchJob whose programs wait for `end`. It is the same on every harness."""
        directory = str(self._directory)
        container = {
            "name": "pytorch",
            "image": "trainwright/host",
            "command": ["sh", "-c", _PROGRAM, directory],
            "volumeMounts": [{"name": "harness", "mountPath": directory}],
        }
        volume = {"name": "harness", "hostPath": {"path": directory}}
        return {"spec": {"containers": [container], "volumes": [volume], "terminationGracePeriodSeconds": 1}}


class RealClusterHarness(ClusterHarness):
    """Nothing runs: a played kubelet reports what the test says."""

    def __init__(
        self, client: Client, namespace: str, operator: Operator, directory: Path, kubelet: FakeKubelet
    ) -> None:
        super().__init__(client, namespace, operator, directory)
        self.kubelet = kubelet

    async def end(self, pod: str, *, exit_code: int) -> None:
        await self.kubelet.finish(pod, exit_code=exit_code)

    async def settle(self) -> None:
        """Also waits until the operator has seen every pod as it is now."""
        await self.submit(JobBuilder("marker").master().run_policy(cleanPodPolicy="All"))
        await self.wait_until_running("marker")
        await self.end("marker-master-0", exit_code=0)
        await self.wait_for_children("marker", [])
        await self.client.delete(self.kind.resource, "marker", namespace=self.namespace)
        await settled(self.operator, counts=False)


class EmbeddedClusterHarness(ClusterHarness):
    """Real processes, that look for the file which says how to end."""

    async def end(self, pod: str, *, exit_code: int) -> None:
        found = await self.client.get(PODS, pod, namespace=self.namespace)
        (rank,) = (env["value"] for env in found["spec"]["containers"][0]["env"] if env["name"] == "RANK")
        unseen = self._directory / f".{rank}"
        unseen.write_text(f"{exit_code}\n")
        unseen.rename(self._directory / rank)


@asynccontextmanager
async def real_cluster_harness(
    config: ClusterConfig, namespace: str, directory: Path, **options: Any
) -> AsyncIterator[RealClusterHarness]:
    """`options` are the operator's."""
    async with Client(config) as client:
        await install_crds(client, KINDS.values())
        async with (
            running_kubelet(client, namespace) as kubelet,
            running_operator(client, namespace=namespace, **options) as operator,
        ):
            yield RealClusterHarness(client, namespace, operator, directory, kubelet)


@asynccontextmanager
async def embedded_cluster_harness(directory: Path, *, sandbox: str | None = None) -> AsyncIterator[ClusterHarness]:
    """At the given level of the sandbox; without one at the strongest that works here."""
    (shared := directory / "harness").mkdir()
    async with embedded_cluster(directory / "data", sandbox=sandbox) as cluster, Client(cluster.config) as client:
        await install_crds(client, KINDS.values())
        async with running_operator(client, settings=operator_settings(cluster.sandbox)) as operator:
            yield EmbeddedClusterHarness(client, "default", operator, shared)
