"""The same test on two clusters: the real API server with a fake kubelet, and the embedded cluster with real processes.

A test that uses only `ClusterHarness` must pass on both.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.cluster.embedded_cluster import embedded_cluster
from tests.support.harness.job_harness import JobHarness
from tests.support.harness.running_operator import running_operator, settled
from tests.support.kubernetes.fake_kubelet import FakeKubelet, running_kubelet
from tests.support.objects.jobs import JobBuilder
from trainwright.api.kinds import KINDS
from trainwright.cli.up.up_process import operator_settings
from trainwright.cluster.node_settings import NodeSettings
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.objects import Object
from trainwright.objects.resources import NODES
from trainwright.operator import JobController, install_crds

# $0 is the directory in which the harness leaves a file with the exit code, named after the pod.
_PROGRAM = (
    'file="$0/$HOSTNAME"; until [ -e "$file" ]; do sleep 0.02; done; read code < "$file"; rm "$file"; exit "$code"'
)


class ClusterHarness(JobHarness, ABC):
    """A job harness that also decides how the programs of pods end."""

    def __init__(self, client: Client, namespace: str, operator: JobController, directory: Path) -> None:
        super().__init__(client, namespace, operator)
        self._directory = directory

    @abstractmethod
    async def end(self, pod: str, *, exit_code: int) -> None:
        """Ends the program of this running pod."""

    def template(self) -> Object:
        """A pod template for jobs of the kind whose programs wait for `end`; the same on every cluster."""
        directory = str(self._directory)
        container = {
            "name": self.kind.container or "main",
            "image": "trainwright/host",
            "command": ["sh", "-c", _PROGRAM, directory],
            "volumeMounts": [{"name": "harness", "mountPath": directory}],
        }
        volume = {"name": "harness", "hostPath": {"path": directory}}
        return {"spec": {"containers": [container], "volumes": [volume], "terminationGracePeriodSeconds": 1}}


class RealClusterHarness(ClusterHarness):
    """The real API server. No program runs: a fake kubelet reports what the test says."""

    def __init__(
        self, client: Client, namespace: str, operator: JobController, directory: Path, kubelet: FakeKubelet
    ) -> None:
        super().__init__(client, namespace, operator, directory)
        self.kubelet = kubelet

    async def end(self, pod: str, *, exit_code: int) -> None:
        await self.kubelet.finish(pod, exit_code=exit_code)

    async def settle(self) -> None:
        """Also waits until the operator has seen the present state of all pods."""
        role = self.kind.roles[0]
        builder = JobBuilder("marker", kind=self.kind).replica(role.name).run_policy(cleanPodPolicy="All")
        await self.submit(builder)
        await self.wait_until_running("marker")
        await self.end(role.child_name("marker", 0), exit_code=0)
        await self.wait_for_children("marker", [])
        await self.client.delete(self.kind.resource, "marker", namespace=self.namespace)
        await settled(self.operator, counts=False)


class EmbeddedClusterHarness(ClusterHarness):
    """The embedded cluster. Programs wait for a file with their exit code."""

    async def end(self, pod: str, *, exit_code: int) -> None:
        unseen = self._directory / f".{pod}"
        unseen.write_text(f"{exit_code}\n")
        unseen.rename(self._directory / pod)


@asynccontextmanager
async def real_cluster_harness(
    config: ClusterConfig, namespace: str, directory: Path, **options: Any
) -> AsyncIterator[RealClusterHarness]:
    """On a server that has our CRDs, with `options` for the operator."""
    async with (
        Client(config) as client,
        running_kubelet(client, namespace) as kubelet,
        running_operator(client, namespace=namespace, **options) as operator,
    ):
        yield RealClusterHarness(client, namespace, operator, directory, kubelet)


@asynccontextmanager
async def embedded_cluster_harness(directory: Path, *, sandbox: str | None = None) -> AsyncIterator[ClusterHarness]:
    """At the given sandbox level; by default at the strongest that works on this machine."""
    (shared := directory / "harness").mkdir()
    async with (
        embedded_cluster(directory / "data", settings=NodeSettings(sandbox=sandbox or "")) as cluster,
        Client(cluster.config) as client,
    ):
        await install_crds(client, KINDS.values())
        settings = operator_settings(cluster.sandbox)
        async with running_operator(client, settings=settings, cluster_resources=(NODES,)) as operator:
            yield EmbeddedClusterHarness(client, "default", operator, shared)
