"""A fictitious framework on a real API server and on the embedded cluster: its row and its class are enough."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.support.cluster.embedded_cluster import embedded_cluster
from tests.support.harness.job_harness import submit
from tests.support.harness.running_operator import running_operator
from tests.support.kubernetes.fake_kubelet import running_kubelet
from tests.support.objects.jobs import JobBuilder
from tests.support.objects.orchestra import ORCHESTRA, Orchestra
from tests.support.thoroughness import THOROUGH
from tests.support.waiting import eventually
from trainwright.cli.up.up_process import operator_settings
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import NotFound
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.objects import Object
from trainwright.objects.resources import (
    CONFIG_MAPS,
    EVENTS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from trainwright.operator import install_crds

KINDS = {ORCHESTRA.name: ORCHESTRA}
FRAMEWORKS = {ORCHESTRA.framework: Orchestra()}
EXTRAS = [
    (CONFIG_MAPS, "ninth-score"),
    (SERVICE_ACCOUNTS, "ninth-conductor"),
    (ROLES, "ninth-conductor"),
    (ROLE_BINDINGS, "ninth-conductor"),
]


@dataclass
class OrchestraCluster:
    """A cluster with an operator that knows the framework. `finish` lets the program of a pod exit with 0."""

    client: Client
    namespace: str
    directory: Path
    finish: Callable[[str], Awaitable[None]]
    embedded: bool = False

    async def get(self, resource: Resource, name: str) -> Object:
        return await self.client.get(resource, name, namespace=self.namespace)

    async def exists(self, resource: Resource, name: str) -> bool:
        try:
            await self.get(resource, name)
        except NotFound:
            return False
        return True

    async def job(self) -> Object:
        return await self.get(ORCHESTRA.resource, "ninth")

    async def reasons(self) -> set[str]:
        """The reasons of the events that the kind's controller has recorded."""
        found = await self.client.list(EVENTS, namespace=self.namespace)
        return {one["reason"] for one in found.items if one["source"].get("component") == ORCHESTRA.controller}

    async def pods(self) -> dict[str, Object]:
        found = await self.client.list(PODS, namespace=self.namespace)
        return {pod["metadata"]["name"]: pod for pod in found.items}

    def template(self, container: str, *, waits: bool) -> Object:
        """A pod that runs until `finish`, or with the command that the framework gives it."""
        directory = str(self.directory)
        program = 'until [ -e "$0/$SEAT" ]; do sleep 0.02; done'
        spec: Object = {"name": container, "image": "trainwright/host"}
        if waits:
            spec |= {
                "command": ["sh", "-c", program, directory],
                "volumeMounts": [{"name": "shared", "mountPath": directory}],
            }
        volume = {"name": "shared", "hostPath": {"path": directory}}
        return {"spec": {"containers": [spec], "volumes": [volume], "terminationGracePeriodSeconds": 1}}


@asynccontextmanager
async def real_orchestra(config: ClusterConfig, namespace: str, directory: Path) -> AsyncIterator[OrchestraCluster]:
    async with Client(config) as client:
        await install_crds(client, KINDS.values())
        async with (
            running_kubelet(client, namespace) as kubelet,
            running_operator(client, kinds=KINDS, frameworks=FRAMEWORKS, namespace=namespace),
        ):
            yield OrchestraCluster(client, namespace, directory, kubelet.finish)


@asynccontextmanager
async def embedded_orchestra(directory: Path) -> AsyncIterator[OrchestraCluster]:
    (shared := directory / "shared").mkdir()

    async def finish(pod: str) -> None:
        (shared / pod.rpartition("-")[2]).touch()

    async with embedded_cluster(directory / "data") as running, Client(running.config) as client:
        await install_crds(client, KINDS.values())
        settings = operator_settings(running.sandbox)
        async with running_operator(client, kinds=KINDS, frameworks=FRAMEWORKS, settings=settings):
            yield OrchestraCluster(client, "default", shared, finish, embedded=True)


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.apiserver)])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OrchestraCluster]:
    if request.param == "embedded":
        chosen = embedded_orchestra(tmp_path)
    else:
        config = request.getfixturevalue("control_plane").config
        chosen = real_orchestra(config, request.getfixturevalue("real_namespace"), tmp_path)
    async with chosen as cluster:
        yield cluster


async def test_a_job_of_a_new_framework_runs_to_its_end(cluster: OrchestraCluster) -> None:
    builder = JobBuilder("ninth", kind=ORCHESTRA, namespace=cluster.namespace).run_policy(cleanPodPolicy="All")
    builder.replica("Conductor", pod=cluster.template("conductor", waits=False))
    builder.replica("Violin", 2, pod=cluster.template("orchestra", waits=True))
    builder.replica("Audience", pod=cluster.template("orchestra", waits=True))

    created = await submit(cluster.client, builder)
    playing = await eventually(cluster.job, lambda seen: reason(seen) == "OrchestraJobPlaying")
    assert message(playing) == f"OrchestraJob {cluster.namespace}/ninth plays."

    await check_pods(cluster)
    await check_objects(cluster, owner=created)
    await check_that_a_scale_up_restarts_no_pod(cluster)

    await cluster.finish("ninth-violin-0")
    finished = await eventually(cluster.job, lambda seen: reason(seen) == "OrchestraJobApplauded")
    assert message(finished) == f"OrchestraJob {cluster.namespace}/ninth was applauded."
    assert finished["status"]["completedIndexes"] == {"Violin": "0"}
    await eventually(cluster.pods, lambda left: left == {})
    for resource, name in EXTRAS:
        assert await cluster.exists(resource, name), "the operator may not delete it"
    await eventually(cluster.reasons, lambda seen: "OrchestraJobApplauded" in seen)

    await cluster.client.delete(ORCHESTRA.resource, "ninth", namespace=cluster.namespace)
    for resource, name in EXTRAS if cluster.embedded or THOROUGH else ():
        # kube-controller-manager discovers new kinds every thirty seconds.
        await eventually(partial(cluster.exists, resource, name), lambda there: not there, seconds=90)


async def check_pods(cluster: OrchestraCluster) -> None:
    pods = await cluster.pods()
    assert sorted(pods) == ["ninth-audience-0", "ninth-conductor", "ninth-violin-0", "ninth-violin-1"]
    conductor = pods["ninth-conductor"]
    assert conductor["spec"]["serviceAccountName"] == "ninth-conductor"
    assert conductor["spec"]["containers"][0]["command"] == ["sleep", "60"]
    assert "training.kubeflow.org/replica-index" not in conductor["metadata"]["labels"]
    assert env(conductor)["VIOLINS"] == "ninth-violin-0:4711,ninth-violin-1:4711"
    for name in ("ninth-violin-0", "ninth-violin-1"):
        assert env(pods[name])["STRINGS"] == "4711"
        service = await cluster.get(SERVICES, name)
        assert [(one["name"], one["port"]) for one in service["spec"]["ports"]] == [("strings", 4711)]
    assert not await cluster.exists(SERVICES, "ninth-conductor")


async def check_objects(cluster: OrchestraCluster, *, owner: Object) -> None:
    for resource, name in EXTRAS:
        found = await cluster.get(resource, name)
        assert [one["uid"] for one in found["metadata"]["ownerReferences"]] == [owner["metadata"]["uid"]]
    await eventually(
        lambda: cluster.get(CONFIG_MAPS, "ninth-score"),
        lambda score: score["data"] == {"playing": "ninth-violin-0\nninth-violin-1\n"},
    )


async def check_that_a_scale_up_restarts_no_pod(cluster: OrchestraCluster) -> None:
    before = await cluster.pods()
    more = {"spec": {"orchestraReplicaSpecs": {"Violin": {"replicas": 3}}}}
    await cluster.client.patch(ORCHESTRA.resource, "ninth", more, namespace=cluster.namespace)
    await eventually(
        cluster.pods, lambda pods: len(pods) == 5 and pods["ninth-violin-2"]["status"]["phase"] == "Running"
    )
    after = await cluster.pods()
    assert {name: uid(after[name]) for name in before} == {name: uid(pod) for name, pod in before.items()}


def reason(job: Object) -> str:
    conditions = (job.get("status") or {}).get("conditions") or [{}]
    return str(conditions[-1].get("reason"))


def message(job: Object) -> str:
    return str(job["status"]["conditions"][-1]["message"])


def uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def env(pod: Object) -> dict[str, str]:
    return {one["name"]: one["value"] for one in pod["spec"]["containers"][0]["env"]}
