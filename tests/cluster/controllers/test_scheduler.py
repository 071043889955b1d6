import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.cluster.controllers.conftest import ControllerCluster
from tests.support.background import in_background
from tests.support.waiting import eventually
from trainwright.cluster.controllers.scheduler import Scheduler
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.objects import Object
from trainwright.objects.resources import EVENTS, NODES, PERSISTENT_VOLUME_CLAIMS, PODS
from trainwright.objects.times import format_time

LABEL = "trainwright.dev/test-node"


@pytest.fixture
async def cluster(cluster: ControllerCluster) -> AsyncIterator[ControllerCluster]:
    """The scheduler is ours on both servers: the real control plane of the tests runs none."""
    if cluster.embedded:
        yield cluster
        return
    recorder = EventRecorder(cluster.client, "default-scheduler")
    async with in_background(Scheduler(cluster.client, recorder).controller.run()):
        yield cluster
    await recorder.close()


@asynccontextmanager
async def node(cluster: ControllerCluster, **allocatable: str) -> AsyncIterator[str]:
    """A node of the test's own; on the real server there may be others, so pods select it."""
    name = f"node-{cluster.namespace}"
    made = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {LABEL: name}}}
    await cluster.client.create(NODES, made)
    await report(cluster, name, ready=True, **allocatable)
    # The real server's admission keeps pods off new nodes until a controller, which the tests do not run, says so.
    await cluster.client.patch(NODES, name, {"spec": {"taints": None}})
    yield name
    await cluster.client.delete(NODES, name)


async def report(cluster: ControllerCluster, name: str, *, ready: bool, **allocatable: str) -> None:
    amounts = {"cpu": "2", "memory": "4Gi", "pods": "110", **allocatable}
    now = format_time(datetime.now(UTC))
    condition = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
        "reason": "Test",
        "message": "",
    }
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [condition]}
    await cluster.client.patch(NODES, name, {"status": status}, subresource="status")


async def make_pod(
    cluster: ControllerCluster, name: str, node_name: str, *, requests: dict[str, str] | None = None, **spec: Any
) -> None:
    amounts = {
        "requests": requests or {},
        "limits": {key: value for key, value in (requests or {}).items() if "/" in key},
    }
    container = {"name": "main", "image": "trainwright/host", "command": ["true"], "resources": amounts}
    await cluster.client.create(
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": cluster.namespace},
            "spec": {"containers": [container], "nodeSelector": {LABEL: node_name}, **spec},
        },
    )


async def pod_that(cluster: ControllerCluster, name: str, is_so: Callable[[Object], object]) -> Object:
    return await eventually(lambda: cluster.client.get(PODS, name, namespace=cluster.namespace), is_so)


def placed(pod: Object) -> object:
    return pod["spec"].get("nodeName")


def scheduled(pod: Object) -> Object:
    conditions = pod["status"].get("conditions") or ()
    return next((one for one in conditions if one["type"] == "PodScheduled"), {})


async def events_about(cluster: ControllerCluster, name: str) -> dict[str, Object]:
    found = await cluster.client.list(EVENTS, namespace=cluster.namespace, field_selector=f"involvedObject.name={name}")
    return {one["reason"]: one for one in found.items}


async def test_a_pod_is_bound_and_the_event_says_where(cluster: ControllerCluster) -> None:
    async with node(cluster) as name:
        await make_pod(cluster, "plain", name)
        pod = await pod_that(cluster, "plain", placed)
        assert pod["spec"]["nodeName"] == name
        assert scheduled(pod)["status"] == "True"
        events = await eventually(lambda: events_about(cluster, "plain"), lambda seen: "Scheduled" in seen)
        event = events["Scheduled"]
        assert event["message"] == f"Successfully assigned {cluster.namespace}/plain to {name}"
        assert event["type"] == "Normal"
        assert event["source"]["component"] == "default-scheduler"


async def test_a_gpu_is_given_to_the_next_pod_when_the_first_has_ended(cluster: ControllerCluster) -> None:
    gpu = {"nvidia.com/gpu": "1"}
    async with node(cluster, **gpu) as name:
        await make_pod(cluster, "first", name, requests=gpu)
        await pod_that(cluster, "first", placed)
        await make_pod(cluster, "second", name, requests=gpu)
        waiting = await pod_that(cluster, "second", scheduled)
        assert scheduled(waiting)["status"] == "False"
        assert scheduled(waiting)["reason"] == "Unschedulable"
        assert "1 Insufficient nvidia.com/gpu" in scheduled(waiting)["message"]
        events = await eventually(lambda: events_about(cluster, "second"), lambda seen: "FailedScheduling" in seen)
        assert events["FailedScheduling"]["type"] == "Warning"
        assert events["FailedScheduling"]["message"] == scheduled(waiting)["message"]

        done = {"status": {"phase": "Succeeded"}}
        await cluster.client.patch(PODS, "first", done, namespace=cluster.namespace, subresource="status")
        await pod_that(cluster, "second", placed)


async def test_a_port_of_the_machine_is_given_to_the_next_pod_when_the_first_has_ended(
    cluster: ControllerCluster,
) -> None:
    """hostNetwork makes a containerPort a hostPort, on both servers."""
    container = {"name": "main", "image": "trainwright/host", "ports": [{"containerPort": 8080}]}
    async with node(cluster) as name:
        await make_pod(cluster, "first", name, containers=[container], hostNetwork=True)
        await pod_that(cluster, "first", placed)
        await make_pod(cluster, "second", name, containers=[container], hostNetwork=True)
        waiting = await pod_that(cluster, "second", scheduled)
        assert "1 node(s) didn't have free ports for the requested pod ports" in scheduled(waiting)["message"]

        done = {"status": {"phase": "Succeeded"}}
        await cluster.client.patch(PODS, "first", done, namespace=cluster.namespace, subresource="status")
        await pod_that(cluster, "second", placed)


async def test_pods_that_come_together_share_cpus_but_never_a_gpu(embedded: ControllerCluster) -> None:
    async with node(embedded, **{"nvidia.com/gpu": "3"}) as name:
        wanted = {"cpu": "1", "nvidia.com/gpu": "1"}
        await asyncio.gather(*(make_pod(embedded, f"p{number}", name, requests=wanted) for number in range(8)))

        async def pods() -> list[Object]:
            return (await embedded.client.list(PODS, namespace=embedded.namespace)).items

        settled = await eventually(
            pods, lambda seen: sum(map(bool, map(placed, seen))) == 3 and all(map(scheduled, seen))
        )
        crowded = [one["metadata"]["name"] for one in settled if placed(one)]

        async def overcommitted() -> list[str]:
            return [one for one in crowded if "Overcommitted" in await events_about(embedded, one)]

        await eventually(overcommitted, lambda names: len(names) == 1)  # the third CPU of two


async def test_a_node_that_becomes_ready_or_uncordoned_gets_what_waited(embedded: ControllerCluster) -> None:
    await make_pod(embedded, "early", "node-default")
    waiting = await pod_that(embedded, "early", scheduled)
    assert scheduled(waiting)["message"] == "no nodes available to schedule pods"
    async with node(embedded) as name:
        await pod_that(embedded, "early", placed)

        await embedded.client.patch(NODES, name, {"spec": {"unschedulable": True}})
        await make_pod(embedded, "cordoned", name)
        waiting = await pod_that(embedded, "cordoned", scheduled)
        assert "1 node(s) were unschedulable" in scheduled(waiting)["message"]
        await embedded.client.patch(NODES, name, {"spec": {"unschedulable": None}})
        await pod_that(embedded, "cordoned", placed)

        await report(embedded, name, ready=False)
        await make_pod(embedded, "late", name)
        waiting = await pod_that(embedded, "late", scheduled)
        assert "untolerated taint {node.kubernetes.io/not-ready: }" in scheduled(waiting)["message"]
        await report(embedded, name, ready=True)
        await pod_that(embedded, "late", placed)


async def test_a_pod_waits_for_its_claim_and_goes_when_it_is_bound(embedded: ControllerCluster) -> None:
    async with node(embedded) as name:
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
        await make_pod(embedded, "user", name, volumes=[volume])
        waiting = await pod_that(embedded, "user", scheduled)
        assert 'persistentvolumeclaim "data" not found' in scheduled(waiting)["message"]
        await embedded.client.create(PERSISTENT_VOLUME_CLAIMS, claim())
        await pod_that(embedded, "user", placed)


async def test_claim_that_is_created_with_its_pod_causes_no_event(embedded: ControllerCluster) -> None:
    async with node(embedded) as name:
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
        await make_pod(embedded, "user", name, volumes=[volume])
        await embedded.client.create(PERSISTENT_VOLUME_CLAIMS, claim())
        await pod_that(embedded, "user", placed)
        # Events about one pod arrive in their order: a complaint would be there before this one.
        events = await eventually(lambda: events_about(embedded, "user"), lambda seen: "Scheduled" in seen)
        assert events.keys() == {"Scheduled"}


def claim() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }


async def test_gates_are_respected_and_another_scheduler_is_named(embedded: ControllerCluster) -> None:
    async with node(embedded) as name:
        await make_pod(embedded, "gated", name, schedulingGates=[{"name": "quota"}])
        await make_pod(embedded, "gang", name, schedulerName="volcano")
        await pod_that(embedded, "gang", placed)
        events = await eventually(lambda: events_about(embedded, "gang"), lambda seen: "UnknownScheduler" in seen)
        assert '"volcano"' in events["UnknownScheduler"]["message"]
        gated = await pod_that(embedded, "gated", scheduled)
        assert scheduled(gated)["reason"] == "SchedulingGated"
        assert not placed(gated)
