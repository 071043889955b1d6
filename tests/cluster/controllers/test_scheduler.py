import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.cluster.controllers.conftest import Arena
from tests.support.background import in_background
from tests.support.waiting import eventually
from trainwright.cluster.controllers.scheduler import Scheduler
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.objects import Object
from trainwright.objects.resources import EVENTS, NODES, PERSISTENT_VOLUME_CLAIMS, PODS
from trainwright.objects.times import format_time

LABEL = "trainwright.dev/test-node"


@pytest.fixture
async def field(arena: Arena) -> AsyncIterator[Arena]:
    """The scheduler is ours on both servers: the real control plane of the tests runs none."""
    if arena.embedded:
        yield arena
        return
    recorder = EventRecorder(arena.client, "default-scheduler")
    async with in_background(Scheduler(arena.client, recorder).run()):
        yield arena
    await recorder.close()


@asynccontextmanager
async def node(field: Arena, **allocatable: str) -> AsyncIterator[str]:
    """A node of the test's own; on the real server there may be others, so pods select it."""
    name = f"node-{field.namespace}"
    made = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {LABEL: name}}}
    await field.client.create(NODES, made)
    await report(field, name, ready=True, **allocatable)
    # The real server's admission keeps pods off new nodes until a controller, which the tests do not run, says so.
    await field.client.patch(NODES, name, {"spec": {"taints": None}})
    yield name
    await field.client.delete(NODES, name)


async def report(field: Arena, name: str, *, ready: bool, **allocatable: str) -> None:
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
    await field.client.patch(NODES, name, {"status": status}, subresource="status")


async def make_pod(
    field: Arena, name: str, node_name: str, *, requests: dict[str, str] | None = None, **spec: Any
) -> None:
    amounts = {
        "requests": requests or {},
        "limits": {key: value for key, value in (requests or {}).items() if "/" in key},
    }
    container = {"name": "main", "image": "trainwright/host", "command": ["true"], "resources": amounts}
    await field.client.create(
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": field.namespace},
            "spec": {"containers": [container], "nodeSelector": {LABEL: node_name}, **spec},
        },
    )


async def pod_that(field: Arena, name: str, is_so: Callable[[Object], object]) -> Object:
    return await eventually(lambda: field.client.get(PODS, name, namespace=field.namespace), is_so)


def placed(pod: Object) -> object:
    return pod["spec"].get("nodeName")


def scheduled(pod: Object) -> Object:
    conditions = pod["status"].get("conditions") or ()
    return next((one for one in conditions if one["type"] == "PodScheduled"), {})


async def events_about(field: Arena, name: str) -> dict[str, Object]:
    found = await field.client.list(EVENTS, namespace=field.namespace, field_selector=f"involvedObject.name={name}")
    return {one["reason"]: one for one in found.items}


async def test_a_pod_is_bound_and_the_event_says_where(field: Arena) -> None:
    async with node(field) as name:
        await make_pod(field, "plain", name)
        pod = await pod_that(field, "plain", placed)
        assert pod["spec"]["nodeName"] == name
        assert scheduled(pod)["status"] == "True"
        events = await eventually(lambda: events_about(field, "plain"), lambda seen: "Scheduled" in seen)
        event = events["Scheduled"]
        assert event["message"] == f"Successfully assigned {field.namespace}/plain to {name}"
        assert event["type"] == "Normal"
        assert event["source"]["component"] == "default-scheduler"


async def test_a_gpu_is_given_to_the_next_pod_when_the_first_has_ended(field: Arena) -> None:
    gpu = {"nvidia.com/gpu": "1"}
    async with node(field, **gpu) as name:
        await make_pod(field, "first", name, requests=gpu)
        await pod_that(field, "first", placed)
        await make_pod(field, "second", name, requests=gpu)
        waiting = await pod_that(field, "second", scheduled)
        assert scheduled(waiting)["status"] == "False"
        assert scheduled(waiting)["reason"] == "Unschedulable"
        assert "1 Insufficient nvidia.com/gpu" in scheduled(waiting)["message"]
        events = await eventually(lambda: events_about(field, "second"), lambda seen: "FailedScheduling" in seen)
        assert events["FailedScheduling"]["type"] == "Warning"
        assert events["FailedScheduling"]["message"] == scheduled(waiting)["message"]

        done = {"status": {"phase": "Succeeded"}}
        await field.client.patch(PODS, "first", done, namespace=field.namespace, subresource="status")
        await pod_that(field, "second", placed)


async def test_pods_that_come_together_share_cpus_but_never_a_gpu(embedded: Arena) -> None:
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


async def test_a_node_that_becomes_ready_or_uncordoned_gets_what_waited(embedded: Arena) -> None:
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


async def test_a_pod_waits_for_its_claim_and_goes_when_it_is_bound(embedded: Arena) -> None:
    async with node(embedded) as name:
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
        await make_pod(embedded, "user", name, volumes=[volume])
        waiting = await pod_that(embedded, "user", scheduled)
        assert 'persistentvolumeclaim "data" not found' in scheduled(waiting)["message"]
        await embedded.client.create(PERSISTENT_VOLUME_CLAIMS, claim())
        await pod_that(embedded, "user", placed)


async def test_claim_that_is_created_with_its_pod_causes_no_event(embedded: Arena) -> None:
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


async def test_gates_are_respected_and_another_scheduler_is_named(embedded: Arena) -> None:
    async with node(embedded) as name:
        await make_pod(embedded, "gated", name, schedulingGates=[{"name": "quota"}])
        await make_pod(embedded, "gang", name, schedulerName="volcano")
        await pod_that(embedded, "gang", placed)
        events = await eventually(lambda: events_about(embedded, "gang"), lambda seen: "UnknownScheduler" in seen)
        assert '"volcano"' in events["UnknownScheduler"]["message"]
        gated = await pod_that(embedded, "gated", scheduled)
        assert scheduled(gated)["reason"] == "SchedulingGated"
        assert not placed(gated)
