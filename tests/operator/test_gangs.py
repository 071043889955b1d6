"""Gangs on a real API server: the group first, then its pods, and nothing written once all is as it should be."""

from dataclasses import replace

import pytest

from tests.support.harness.job_harness import submit
from tests.support.harness.running_operator import running_operator
from tests.support.kubernetes.fake_kubelet import running_kubelet
from tests.support.kubernetes.podgroups import serve_pod_groups
from tests.support.objects.jobs import JobBuilder, pair, template
from tests.support.waiting import eventually
from trainwright.api.kinds import KINDS, PYTORCH
from trainwright.engine import Settings
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import NotFound
from trainwright.objects import Object
from trainwright.objects.kinds.gangs import GangScheduler
from trainwright.objects.resources import EVENTS, NODES, PODS, PRIORITY_CLASSES
from trainwright.operator.options import OperatorError
from trainwright.operator.setup.capabilities import discover_capabilities

pytestmark = pytest.mark.apiserver

VOLCANO, PLUGINS = GangScheduler("volcano"), GangScheduler("scheduler-plugins")
ONE = {"minAvailable": 1}


async def groups(client: Client, gang: GangScheduler, namespace: str) -> list[Object]:
    return (await client.list(gang.resource, namespace=namespace)).items


async def pods(client: Client, namespace: str) -> list[Object]:
    return (await client.list(PODS, namespace=namespace)).items


async def reasons(client: Client, namespace: str) -> set[str]:
    return {event["reason"] for event in (await client.list(EVENTS, namespace=namespace)).items}


async def test_volcano_lets_the_group_in_before_there_are_pods(client: Client, real_namespace: str) -> None:
    await serve_pod_groups(client, VOLCANO)
    builder = JobBuilder("gang", namespace=real_namespace).master().workers(2, pod=template(resources=_asks("2")))
    settings = Settings(gang=VOLCANO)
    async with (
        running_kubelet(client, real_namespace) as kubelet,
        running_operator(
            client, namespace=real_namespace, settings=settings, cluster_resources=[NODES, PRIORITY_CLASSES]
        ),
    ):
        await submit(client, builder.run_policy(schedulingPolicy={"queue": "research"}, cleanPodPolicy="None"))
        (group,) = await eventually(lambda: groups(client, VOLCANO, real_namespace), bool)
        assert group["spec"] == {"minMember": 3, "minResources": {"cpu": "4"}, "queue": "research"}
        assert await pods(client, real_namespace) == []

        await client.patch(
            VOLCANO.resource, "gang", {"status": {"phase": "Inqueue"}}, namespace=real_namespace, subresource="status"
        )
        found = await eventually(lambda: pods(client, real_namespace), lambda seen: len(seen) == 3)
        assert {pod["spec"]["schedulerName"] for pod in found} == {"volcano"}
        assert {pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for pod in found} == {"gang"}

        await eventually(
            lambda: pods(client, real_namespace), lambda seen: {p["status"]["phase"] for p in seen} == {"Running"}
        )
        await kubelet.finish("gang-master-0")
        await eventually(lambda: groups(client, VOLCANO, real_namespace), lambda seen: not seen)
        await eventually(
            lambda: reasons(client, real_namespace), lambda seen: {"JobTerminated", "SuccessfulDeletePodGroup"} <= seen
        )
    assert len(await pods(client, real_namespace)) == 3


@pytest.mark.parametrize("gang", [VOLCANO, PLUGINS], ids=lambda gang: gang.name)
async def test_jobs_of_all_kinds_are_gangs(client: Client, real_namespace: str, gang: GangScheduler) -> None:
    """Of two pods one is enough, and the worker has the higher priority."""
    await serve_pod_groups(client, gang)
    priority = f"priority-of-{real_namespace}"
    head = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": PRIORITY_CLASSES.kind}
    await client.create(PRIORITY_CLASSES, {**head, "metadata": {"name": priority}, "value": 1000})
    async with (
        running_kubelet(client, real_namespace) as kubelet,
        running_operator(
            client,
            namespace=real_namespace,
            settings=Settings(gang=gang),
            cluster_resources=[NODES, PRIORITY_CLASSES],
        ),
    ):
        for kind in KINDS.values():
            builder = pair(kind.framework, kind, pod=template(name=kind.container or "main", resources=_asks("1")))
            preferred = template(name=kind.container or "main", resources=_asks("4"))
            preferred["spec"]["priorityClassName"] = priority
            builder.workers(2 if kind.roles[0].name == "Worker" else 1, pod=preferred)
            await submit(client, builder.metadata(namespace=real_namespace).run_policy(schedulingPolicy=ONE))
        found = await eventually(lambda: groups(client, gang, real_namespace), lambda seen: len(seen) == len(KINDS))
        for group in found:
            assert (group["spec"]["minMember"], group["spec"]["minResources"]) == (1, {"cpu": "4"})
            name = group["metadata"]["name"]
            assert group["metadata"]["ownerReferences"][0]["kind"] in {
                kind.name for kind in KINDS.values() if kind.framework == name
            }
            if gang.is_volcano:
                inqueue = {"status": {"phase": "Inqueue"}}
                await client.patch(gang.resource, name, inqueue, namespace=real_namespace, subresource="status")
        running = await eventually(
            lambda: pods(client, real_namespace),
            lambda seen: [pod["status"]["phase"] for pod in seen] == ["Running"] * 2 * len(KINDS),
        )
        for pod in running:
            owner = pod["metadata"]["ownerReferences"][0]["name"]
            assert pod["spec"]["schedulerName"] == gang.scheduler
            if gang.is_volcano:
                role = pod["metadata"]["labels"]["training.kubeflow.org/replica-type"]
                annotations = {"scheduling.k8s.io/group-name": owner, "volcano.sh/task-spec": role}
                assert annotations.items() <= pod["metadata"]["annotations"].items()
            else:
                assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == owner
            await kubelet.finish(pod["metadata"]["name"])
        await eventually(lambda: groups(client, gang, real_namespace), lambda seen: not seen)
    await client.delete(PRIORITY_CLASSES, priority)


async def test_the_group_of_scheduler_plugins_follows_the_scale_of_its_job(client: Client, real_namespace: str) -> None:
    await serve_pod_groups(client, PLUGINS)
    async with running_operator(client, namespace=real_namespace, settings=Settings(gang=PLUGINS)):
        await submit(client, JobBuilder("gang", namespace=real_namespace).workers(2))
        found = await eventually(lambda: pods(client, real_namespace), lambda seen: len(seen) == 2)
        assert {pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] for pod in found} == {"gang"}
        (before,) = await groups(client, PLUGINS, real_namespace)

        scale = {"spec": {"replicas": 3}}
        await client.patch(PYTORCH.resource, "gang", scale, namespace=real_namespace, subresource="scale")
        (after,) = await eventually(
            lambda: groups(client, PLUGINS, real_namespace), lambda seen: seen[0]["spec"]["minMember"] == 3
        )
        await eventually(lambda: pods(client, real_namespace), lambda seen: len(seen) == 3)
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        (last,) = await groups(client, PLUGINS, real_namespace)
        assert last["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


async def test_a_gang_scheduler_that_is_not_installed_is_an_error_at_the_start(client: Client) -> None:
    absent = replace(Settings(), gang=GangScheduler("volcano"))
    try:
        await client.list(VOLCANO.resource)
    except NotFound:
        with pytest.raises(OperatorError, match=r"--gang-scheduler-name volcano: the cluster serves no podgroups"):
            await discover_capabilities(client, absent)
        await serve_pod_groups(client, VOLCANO)
    assert (await eventually(lambda: _cluster_resources(client, absent), bool)) == [NODES, PRIORITY_CLASSES]


async def _cluster_resources(client: Client, settings: Settings) -> list[object]:
    try:
        return list((await discover_capabilities(client, settings)).cluster_resources)
    except OperatorError:
        return []


def _asks(cpu: str) -> Object:
    return {"requests": {"cpu": cpu}}
