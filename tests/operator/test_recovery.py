"""What a job survives on a real API server: a failed collective, a lost node, a namespace with restricted pods."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.background import in_background
from tests.support.harness.job_harness import JobHarness
from tests.support.harness.running_operator import running_operator
from tests.support.kubernetes.fake_kubelet import FakeKubelet, running_kubelet
from tests.support.objects.jobs import JobBuilder, template
from tests.support.waiting import eventually
from trainwright.engine import Settings
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import Forbidden
from trainwright.objects import Object
from trainwright.objects.resources import NAMESPACES, NODES, PODS

pytestmark = pytest.mark.apiserver

PODS_OF_JOB = ["digits-master-0", "digits-worker-0", "digits-worker-1"]


def job() -> JobBuilder:
    return JobBuilder().master().workers(2)


@asynccontextmanager
async def running_harness(
    client: Client, namespace: str, settings: Settings | None = None
) -> AsyncIterator[JobHarness]:
    async with running_operator(client, namespace=namespace, settings=settings, cluster_resources=[NODES]) as operator:
        yield JobHarness(client, namespace, operator)


class CreatedPods:
    """For every pod of a namespace, by uid: the pods that existed when it was created."""

    def __init__(self) -> None:
        self.present: set[str] = set()
        self.existed: dict[str, set[str]] = {}

    def note(self, kind: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if kind == "DELETED":
            self.present.discard(uid)
        elif uid not in self.existed:
            self.existed[uid] = set(self.present)
            self.present.add(uid)

    async def wait_for(self, uids: Sequence[str]) -> set[str]:
        """Waits until the watch has shown these pods; returns all that existed when one of them was created."""

        async def shown() -> dict[str, set[str]]:
            return self.existed

        found = await eventually(shown, lambda existed: existed.keys() >= set(uids))
        return set().union(*(found[uid] for uid in uids))

    @asynccontextmanager
    async def watched(self, client: Client, namespace: str) -> AsyncIterator["CreatedPods"]:
        version = (await client.list(PODS, namespace=namespace)).resource_version

        async def follow() -> None:
            async for event in client.watch(PODS, namespace=namespace, resource_version=version):
                self.note(event.type, event.object)

        async with in_background(follow()):
            yield self


async def test_group_restart_replaces_all_pods_and_counts_once(client: Client, real_namespace: str) -> None:
    builder = job().run_policy(backoffLimit=2).annotation("trainwright.dev/restart-scope", "group")
    async with (
        running_kubelet(client, real_namespace) as kubelet,
        running_harness(client, real_namespace) as harness,
        CreatedPods().watched(client, real_namespace) as created,
    ):
        await harness.submit(builder)
        await harness.wait_until_running("digits")
        old = {pod["metadata"]["uid"] for pod in (await harness.pods("digits")).values()}
        # All fail one after the other, as the ranks of a collective do when one of them has failed.
        for name in reversed(PODS_OF_JOB):
            await kubelet.finish(name, exit_code=1)
        new = await eventually(
            lambda: harness.pods("digits"),
            lambda pods: (
                pods.keys() == set(PODS_OF_JOB) and not old & {pod["metadata"]["uid"] for pod in pods.values()}
            ),
        )
        await harness.wait_until_running("digits")
        assert sum((await harness.status("digits"))["restarts"].values()) == 1
        assert "replacedPods" not in await harness.status("digits")
        existed = await created.wait_for([pod["metadata"]["uid"] for pod in new.values()])
        assert not existed & old, "a pod was created beside one of the old group"
        assert {pod["spec"]["restartPolicy"] for pod in new.values()} == {"Never"}
        for name in PODS_OF_JOB:
            await kubelet.finish(name, exit_code=0)
        await harness.wait_for_end("digits", "Succeeded")


class Nodes:
    """Two nodes of this test alone: `far` is lost later."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.near = FakeKubelet(client, namespace=namespace, node=f"near-{namespace}")
        self.far = FakeKubelet(client, namespace=namespace, node=f"far-{namespace}")

    async def run_pods(self, harness: JobHarness) -> dict[str, Object]:
        """The first worker runs on `far`, the others on `near`; returns the pods as they were created."""
        await self.near.register()
        await self.far.register()
        pods = await eventually(lambda: harness.pods("digits"), lambda pods: pods.keys() == set(PODS_OF_JOB))
        for name in pods:
            node = self.far if name == "digits-worker-0" else self.near
            await node.bind(name)
            await node.start(name)
        await harness.wait_until_running("digits")
        return pods


async def test_pods_of_a_node_that_is_not_ready_are_replaced(client: Client, real_namespace: str) -> None:
    nodes = Nodes(client, real_namespace)
    async with running_harness(client, real_namespace, Settings(dead_node_seconds=60)) as harness:
        await harness.submit(job().run_policy(backoffLimit=0))
        pods = await nodes.run_pods(harness)
        await nodes.far.fall_silent(since=datetime.now(UTC) - timedelta(minutes=5))
        await harness.wait_for_replacement("digits", pods["digits-worker-0"])
        await nodes.near.bind("digits-worker-0")
        await nodes.near.start("digits-worker-0")
        status = (await harness.wait_until_running("digits"))["status"]
        assert "restarts" not in status

        async def messages() -> list[str]:
            return [message for _, reason, message in await harness.events("digits") if reason == "DeadNode"]

        (message,) = await eventually(messages, bool)
        assert f"because its node far-{real_namespace} has not been ready since" in message
        after = await harness.pods("digits")
        for name in ("digits-master-0", "digits-worker-1"):
            assert after[name]["metadata"]["uid"] == pods[name]["metadata"]["uid"], "its node is ready"


async def test_pods_that_cannot_end_because_their_node_does_not_exist_are_replaced(
    client: Client, real_namespace: str
) -> None:
    nodes = Nodes(client, real_namespace)
    async with running_harness(client, real_namespace) as harness:
        await harness.submit(job().annotation("trainwright.dev/dead-node-seconds", "1"))
        pods = await nodes.run_pods(harness)
        await client.delete(PODS, "digits-worker-0", namespace=real_namespace)
        await nodes.far.leave()
        await harness.wait_for_replacement("digits", pods["digits-worker-0"])
        text = f"Pod digits-worker-0 is force-deleted because its node far-{real_namespace} was deleted"
        await harness.wait_for_events("digits", ("Warning", "DeadNode", text))


async def test_by_default_pods_of_dead_nodes_are_not_replaced(client: Client, real_namespace: str) -> None:
    nodes = Nodes(client, real_namespace)
    async with running_harness(client, real_namespace) as harness:
        await harness.submit(job())
        pods = await nodes.run_pods(harness)
        await nodes.far.leave()
        await harness.settle()
        after = (await harness.pods("digits"))["digits-worker-0"]
        assert after["metadata"]["uid"] == pods["digits-worker-0"]["metadata"]["uid"]
        assert (
            after["metadata"]["resourceVersion"]
            == (await harness.pods("digits"))["digits-worker-0"]["metadata"]["resourceVersion"]
        )


RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
POD_WIDE = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


async def test_workers_wait_in_a_namespace_of_restricted_pods_too(client: Client, real_namespace: str) -> None:
    rule = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await client.patch(NAMESPACES, real_namespace, rule)
    pod = template(securityContext=RESTRICTED)
    pod["spec"]["securityContext"] = POD_WIDE
    async with running_harness(client, real_namespace) as harness:
        await harness.submit(JobBuilder().master(pod=pod).workers(1, pod=pod))
        pods = await eventually(lambda: harness.pods("digits"), lambda pods: len(pods) == 2)
    (waiting,) = pods["digits-worker-0"]["spec"]["initContainers"]
    assert waiting["securityContext"] == {**RESTRICTED, "runAsUser": 65534}
    # The rule is in force: the same pod without what our container promises is refused.
    careless = {key: waiting[key] for key in ("name", "image", "command")}
    spec = {**pod["spec"], "initContainers": [careless]}
    metadata = {"name": "careless", "namespace": real_namespace}
    with pytest.raises(Forbidden, match="init-pytorch"):
        await client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
