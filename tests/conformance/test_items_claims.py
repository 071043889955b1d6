"""Items 63, 68 and 69: schedulers of users, adoption and release of children, and watches that lag behind."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine.planning import child, decide, events, manifests
from tests.support.harness.cluster_harness import RealClusterHarness, real_cluster_harness
from tests.support.harness.job_harness import Event, JobHarness, owner_reference
from tests.support.harness.running_operator import running_operator
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.kubernetes.fake_kubelet import running_kubelet
from tests.support.kubernetes.podgroups import serve_pod_groups
from tests.support.objects.jobs import JobBuilder, template
from tests.support.waiting import eventually
from trainwright.api.kinds import PYTORCH
from trainwright.api.labels import JOB_NAME
from trainwright.engine import Settings
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.requests import Request, Response
from trainwright.objects import Object
from trainwright.objects.kinds.gangs import GangScheduler
from trainwright.objects.resources import CONFIG_MAPS, PODS, SERVICES, Resource

# 63: schedulerName

GANG = Settings(gang=GangScheduler("gang-scheduler"))
SCHEDULERS = {
    "none": (None, None, False),
    "both": ("custom-a", "custom-b", True),
    "one": (None, "custom-b", True),
    "same": ("gang-scheduler", "gang-scheduler", False),
}
"""The scheduler of master and workers, and whether a warning is expected."""
WARNING: Event = (
    "Warning",
    "SetPodTemplateSchedulerName",
    "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten",
)


@pytest.mark.parametrize("row", SCHEDULERS)
def test_item_63_scheduler_names_as_planned(row: str) -> None:
    master, worker, warned = SCHEDULERS[row]
    builder = JobBuilder().master(pod=scheduled_by(master)).workers(1, pod=scheduled_by(worker))
    (group,) = manifests(decide(builder, settings=GANG))
    present = {**group, "metadata": {**group["metadata"], "uid": "u", "resourceVersion": "1"}}
    planned = decide(builder, settings=GANG, extras=[present])
    assert (WARNING in events(planned)) is warned
    for name, scheduler in (("digits-master-0", master), ("digits-worker-0", worker)):
        assert child(planned, name)["spec"]["schedulerName"] == (scheduler or "gang-scheduler")


@pytest.mark.apiserver
async def test_item_63_scheduler_names(
    control_plane: ControlPlane, client: Client, real_namespace: str, tmp_path: Path
) -> None:
    await serve_pod_groups(client, GangScheduler("gang-scheduler"))
    async with real_cluster_harness(control_plane.config, real_namespace, tmp_path, settings=GANG) as cluster:
        for job, (master, worker, _) in SCHEDULERS.items():
            await cluster.submit(JobBuilder(job).master(pod=scheduled_by(master)).workers(1, pod=scheduled_by(worker)))
        for job, (master, worker, _) in SCHEDULERS.items():
            await cluster.wait_until_running(job)
            pods = await cluster.pods(job)
            assert pods[f"{job}-master-0"]["spec"]["schedulerName"] == (master or "gang-scheduler")
            assert pods[f"{job}-worker-0"]["spec"]["schedulerName"] == (worker or "gang-scheduler")
        await cluster.settle()
        for job, (_, _, warned) in SCHEDULERS.items():
            names = (f"{job}-master-0", f"{job}-worker-0")
            assert await cluster.events(job) == {
                *(("Normal", "SuccessfulCreatePod", f"Created pod: {name}") for name in names),
                *(("Normal", "SuccessfulCreateService", f"Created service: {name}") for name in names),
                *([WARNING] if warned else []),
            }


def scheduled_by(name: str | None) -> Object:
    pod = template()
    if name is not None:
        pod["spec"]["schedulerName"] = name
    return pod


# 68: adoption and release

HOLD = {"finalizers": ["example.com/hold"]}
PODS_AND_SERVICES = pytest.mark.parametrize("resource", [PODS, SERVICES], ids=lambda resource: resource.plural)


class Claims:
    """Pods or Services with the names of `job`'s children that the test creates."""

    def __init__(self, harness: JobHarness, resource: Resource) -> None:
        self.harness = harness
        self.resource = resource

    async def create(self, index: int, *, job_name: str = "job", metadata: Object | None = None) -> Object:
        """An orphan with the name and labels of worker `index`, unless `metadata` sets others."""
        labels = {
            "training.kubeflow.org/operator-name": "pytorchjob-controller",
            "training.kubeflow.org/job-name": job_name,
            "training.kubeflow.org/replica-type": "worker",
            "training.kubeflow.org/replica-index": str(index),
        }
        named = {
            "name": f"job-worker-{index}",
            "namespace": self.harness.namespace,
            "labels": labels,
            **(metadata or {}),
        }
        spec = template()["spec"] if self.resource is PODS else {"clusterIP": "None", "ports": [{"port": 1}]}
        head = {"apiVersion": "v1", "kind": self.resource.kind}
        return await self.harness.client.create(self.resource, {**head, "metadata": named, "spec": spec})

    async def read(self, index: int) -> Object:
        return await self.harness.client.get(self.resource, f"job-worker-{index}", namespace=self.harness.namespace)

    async def owners(self, index: int) -> list[Object]:
        found: list[Object] = (await self.read(index))["metadata"].get("ownerReferences", [])
        return found

    async def wait_until_adopted(self, index: int, child: Object, job: Object) -> None:
        """Waits until the job owns this very child."""
        await eventually(lambda: self.owners(index), lambda owners: owners == [owner_reference(job)])
        assert (await self.read(index))["metadata"]["uid"] == child["metadata"]["uid"]

    async def assert_unchanged(self, index: int, child: Object) -> None:
        seen = (await self.read(index))["metadata"]
        for field in ("uid", "labels", "ownerReferences", "deletionTimestamp"):
            assert seen.get(field) == child["metadata"].get(field), field

    async def delete(self, index: int) -> Object:
        name, namespace = f"job-worker-{index}", self.harness.namespace
        return await self.harness.client.delete(self.resource, name, namespace=namespace, grace_period_seconds=0)

    async def remove_finalizers(self, *indexes: int) -> None:
        """Lets the children, and so the namespace, be deleted."""
        for index in indexes:
            patch = {"metadata": {"finalizers": None}}
            name, namespace = f"job-worker-{index}", self.harness.namespace
            await self.harness.client.patch(self.resource, name, patch, namespace=namespace)


@pytest.fixture
def claims(harness: RealClusterHarness, resource: Resource) -> Claims:
    return Claims(harness, resource)


@PODS_AND_SERVICES
@pytest.mark.apiserver
async def test_item_68_orphans_with_the_labels_of_the_job_are_adopted(
    harness: RealClusterHarness, claims: Claims
) -> None:
    ours, other = await claims.create(0), await claims.create(1, job_name="testing")
    job = await harness.submit(JobBuilder("job").workers(2))
    await claims.wait_until_adopted(0, ours, job)
    taken = (
        f'Resource "job-worker-1" of Kind "{claims.resource.kind}" already exists and is not managed by PyTorchJob job'
        ": delete it, or give the job another name"
    )
    await harness.wait_for_events("job", ("Warning", "ErrResourceExists", taken))
    await harness.settle()
    await claims.assert_unchanged(1, other)


@PODS_AND_SERVICES
@pytest.mark.apiserver
async def test_item_68_a_job_that_is_being_deleted_adopts_nothing(harness: RealClusterHarness, claims: Claims) -> None:
    await terminating_job(harness, suspended=True)
    orphans = [await claims.create(0), await claims.create(1)]
    await harness.settle()
    for index, orphan in enumerate(orphans):
        await claims.assert_unchanged(index, orphan)
    await remove_job_finalizers(harness)


@PODS_AND_SERVICES
@pytest.mark.apiserver
async def test_item_68_a_job_that_is_being_deleted_keeps_its_children(
    harness: RealClusterHarness, claims: Claims
) -> None:
    job = await terminating_job(harness, suspended=False)
    await claims.delete(1)
    orphan = await claims.create(1)
    await harness.settle()
    assert await claims.owners(0) == [owner_reference(job)]
    await claims.assert_unchanged(1, orphan)
    await remove_job_finalizers(harness)


@PODS_AND_SERVICES
@pytest.mark.apiserver
async def test_item_68_children_of_another_owner_are_not_adopted(harness: RealClusterHarness, claims: Claims) -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}}
    owner = await harness.client.create(CONFIG_MAPS, config_map, namespace=harness.namespace)
    theirs = await claims.create(1, metadata={"ownerReferences": [{**owner_reference(owner), "apiVersion": "v1"}]})
    job = await harness.submit(JobBuilder("job").workers(2))
    await eventually(lambda: harness.pods("job"), lambda pods: "job-worker-0" in pods)
    await eventually(lambda: harness.services("job"), lambda services: "job-worker-0" in services)
    await harness.settle()
    assert await claims.owners(0) == [owner_reference(job)]
    await claims.assert_unchanged(1, theirs)


@PODS_AND_SERVICES
@pytest.mark.apiserver
async def test_item_68_children_that_were_relabelled_are_released(harness: RealClusterHarness, claims: Claims) -> None:
    job = await harness.submit(JobBuilder("job").workers(2))
    await harness.wait_until_running("job")
    before = await claims.read(1)
    relabelled = {"metadata": {"labels": {JOB_NAME: "testing"}}}
    await harness.client.patch(claims.resource, "job-worker-1", relabelled, namespace=harness.namespace)
    await eventually(lambda: claims.owners(1), lambda owners: owners == [])
    await harness.settle()
    after = await claims.read(1)
    assert (after["metadata"]["uid"], after["metadata"].get("deletionTimestamp")) == (before["metadata"]["uid"], None)
    assert await claims.owners(0) == [owner_reference(job)]


@PODS_AND_SERVICES
@pytest.mark.apiserver
async def test_item_68_orphans_that_are_being_deleted_are_not_adopted(
    harness: RealClusterHarness, claims: Claims
) -> None:
    """A job keeps its terminating children, but does not adopt terminating orphans."""
    await claims.create(1, metadata=HOLD)
    orphan = await claims.delete(1)
    job = await harness.submit(JobBuilder("job").workers(2))
    await eventually(lambda: harness.pods("job"), lambda pods: "job-worker-0" in pods)
    await eventually(lambda: harness.services("job"), lambda services: "job-worker-0" in services)
    await harness.client.patch(claims.resource, "job-worker-0", {"metadata": HOLD}, namespace=harness.namespace)
    await claims.delete(0)
    await harness.settle()
    assert await claims.owners(0) == [owner_reference(job)]
    await claims.assert_unchanged(1, orphan)

    await claims.remove_finalizers(0, 1)
    await harness.wait_for_children("job", ["job-worker-0", "job-worker-1"])


async def terminating_job(harness: JobHarness, *, suspended: bool) -> Object:
    """A job of two workers that is terminating because of a finalizer."""
    await harness.submit(JobBuilder("job").workers(2).suspend(suspended))
    if suspended:
        await eventually(lambda: harness.conditions("job"), bool)
    else:
        await harness.wait_until_running("job")
    await harness.client.patch(PYTORCH.resource, "job", {"metadata": HOLD}, namespace=harness.namespace)
    return await harness.client.delete(PYTORCH.resource, "job", namespace=harness.namespace)


async def remove_job_finalizers(harness: JobHarness) -> None:
    patch = {"metadata": {"finalizers": None}}
    await harness.client.patch(PYTORCH.resource, "job", patch, namespace=harness.namespace)


# 69: the operator reads its own writes, however late the watch is

DELAYED = {"pods", "services"}


class DelayedWatchClient(Client):
    """Holds back every event of the watches of pods and services until `release` is set, and counts their creates."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.release = asyncio.Event()
        self.held: set[str] = set()
        """The resources of which at least one event has been held back."""
        self.creates: Counter[tuple[str, int]] = Counter()
        """By resource and status code."""

    async def send(self, request: Request) -> Response:
        response = await super().send(request)
        plural = request.path.rpartition("/")[2]
        if request.method == "POST" and plural in DELAYED:
            self.creates[plural, response.status] += 1
        return response

    async def stream_lines(self, request: Request) -> AsyncGenerator[bytes, None]:
        """Reflectors read their watches here."""
        plural = request.path.rpartition("/")[2]
        async with aclosing(super().stream_lines(request)) as lines:
            async for line in lines:
                if plural in DELAYED and not self.release.is_set():
                    self.held.add(plural)
                    await self.release.wait()
                yield line


@pytest.mark.apiserver
async def test_item_69_a_delayed_watch_never_creates_a_rank_twice(
    control_plane: ControlPlane, client: Client, real_namespace: str
) -> None:
    """Upstream waits for the events that it expects; our cache takes in the server's answers. The job is reconciled
    several times, scaled up and scaled down before the first event arrives."""
    async with (
        DelayedWatchClient(control_plane.config) as delayed,
        running_kubelet(client, real_namespace) as kubelet,
        running_operator(delayed, namespace=real_namespace) as operator,
    ):
        harness = JobHarness(client, real_namespace, operator)
        await harness.submit(JobBuilder("job").master().workers(3))
        names = ["job-master-0", *(f"job-worker-{index}" for index in range(3))]
        await harness.wait_for_children("job", names)
        first = await harness.pods("job")
        for number in range(5):
            poke = {"metadata": {"annotations": {"poke": str(number)}}}
            await client.patch(PYTORCH.resource, "job", poke, namespace=real_namespace)
            await harness.settle()
        assert delayed.creates == {("pods", 201): 4, ("services", 201): 4}

        for count in (5, 2):
            scale = {"spec": {"replicas": count}}
            await client.patch(PYTORCH.resource, "job", scale, namespace=real_namespace, subresource="scale")
            names = ["job-master-0", *(f"job-worker-{index}" for index in range(count))]
            await harness.wait_for_children("job", names)
            await harness.settle()
        assert delayed.creates == {("pods", 201): 6, ("services", 201): 6}

        assert delayed.held == DELAYED
        delayed.release.set()
        await harness.wait_until_running("job")
        await harness.settle()
        await harness.wait_for_children("job", names)
        after = await harness.pods("job")
        assert {name: pod["metadata"]["uid"] for name, pod in after.items()} == {
            name: first[name]["metadata"]["uid"] for name in names
        }
        assert delayed.creates == {("pods", 201): 6, ("services", 201): 6}

        await kubelet.finish("job-master-0")
        await harness.wait_for_end("job", "Succeeded")
