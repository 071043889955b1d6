"""Over a definition that drops our status fields, as upstream's does: nothing is forgotten, and all is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.support.cluster.fake_kubelet import running_kubelet
from tests.support.harness.job_harness import submit
from tests.support.harness.running_operator import running_operator, settled
from tests.support.objects.jobs import JobBuilder
from tests.support.servers.scripted_server import ScriptedServer, answer, cut, scripted_server
from tests.support.waiting import eventually
from trainwright.api.crd import render_crd
from trainwright.api.kinds import KINDS, MULTIKUEUE, PYTORCH, Kind
from trainwright.api.pruned_status import ANNOTATION, FIELDS, remembered
from trainwright.engine import Plan, Transition
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import Conflict, NotFound
from trainwright.objects import Object
from trainwright.objects.resources import CUSTOM_RESOURCE_DEFINITIONS, EVENTS, PODS
from trainwright.operator.reconcile.caches import Caches
from trainwright.operator.reconcile.event_buffer import EventBuffer
from trainwright.operator.reconcile.observer import Observer
from trainwright.operator.reconcile.status_writer import StatusWriter
from trainwright.operator.setup.crds import install_crds, kinds_pruning_status


@pytest.fixture
async def kind(client: Client, real_namespace: str) -> AsyncIterator[Kind]:
    """A kind like PyTorchJob, of its own for each test, with a definition like upstream's."""
    number = real_namespace.removeprefix("test-")
    kind = replace(PYTORCH, name=f"Pruning{number}", plural=f"pruning{number}")
    await client.create(CUSTOM_RESOURCE_DEFINITIONS, upstream_definition(kind))
    await eventually(lambda: served(client, kind), bool)
    yield kind
    await client.delete(CUSTOM_RESOURCE_DEFINITIONS, f"{kind.plural}.kubeflow.org")


def upstream_definition(kind: Kind) -> Object:
    """Ours without the fields that upstream does not know."""
    definition = deepcopy(render_crd(kind))
    status = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    for field in FIELDS:
        del status["properties"][field]
    return definition


async def served(client: Client, kind: Kind) -> bool:
    try:
        await client.list(kind.resource)
    except NotFound:
        return False
    return True


@pytest.mark.apiserver
@pytest.mark.timeout(60)
@pytest.mark.parametrize("known_beforehand", [True, False])
async def test_a_memory_outlives_the_operator(
    client: Client, real_namespace: str, kind: Kind, known_beforehand: bool
) -> None:
    options: dict[str, Any] = {"kinds": {kind.name: kind}, "namespace": real_namespace}
    if known_beforehand:
        await eventually(lambda: kinds_pruning_status(client, [kind]), lambda found: found == {kind.name})
        options["prunes_status"] = {kind.name}
    builder = JobBuilder("job", kind=kind, namespace=real_namespace).master(policy="OnFailure")
    builder.workers(2, policy="ExitCode").run_policy(backoffLimit=3, cleanPodPolicy="None")
    async with running_kubelet(client, real_namespace) as kubelet:
        async with running_operator(client, **options) as operator:
            await submit(client, builder)
            await running(client, kind, real_namespace)
            first = (await client.get(PODS, "job-worker-0", namespace=real_namespace))["metadata"]["uid"]
            await kubelet.finish("job-worker-0", exit_code=130)  # replaced, and counted
            await eventually(lambda: uid(client, real_namespace, "job-worker-0"), lambda now: now not in {"", first})
            await kubelet.finish("job-worker-1")
            await eventually(lambda: memory(client, kind, real_namespace), lambda text: '"completedIndexes"' in text)
            await settled(operator)
            assert operator.prunes_status == {kind.name}
        job = await client.get(kind.resource, "job", namespace=real_namespace)
        assert not set(FIELDS) & set(job["status"])
        assert '"restarts":{"Worker":1}' in job["metadata"]["annotations"][ANNOTATION]

        # The finished rank's pod goes, and a new operator has to know that its work is done.
        await client.delete(PODS, "job-worker-1", namespace=real_namespace, grace_period_seconds=0)
        async with running_operator(client, **options) as operator:
            await settled(operator)
            assert await uid(client, real_namespace, "job-worker-1") == ""
            before = await client.get(kind.resource, "job", namespace=real_namespace)
            assert before["metadata"]["resourceVersion"] == job["metadata"]["resourceVersion"]
            (said,) = await told(client, real_namespace)
            assert f"{kind.plural}.kubeflow.org does not declare status." in said


@pytest.mark.apiserver
@pytest.mark.timeout(60)
async def test_when_the_definition_keeps_our_fields_the_annotation_goes(
    client: Client, real_namespace: str, kind: Kind
) -> None:
    options: dict[str, Any] = {"kinds": {kind.name: kind}, "namespace": real_namespace, "prunes_status": {kind.name}}
    builder = JobBuilder("job", kind=kind, namespace=real_namespace).master().workers(1)
    async with running_kubelet(client, real_namespace) as kubelet:
        async with running_operator(client, **options) as operator:
            await submit(client, builder)
            await running(client, kind, real_namespace)
            await kubelet.finish("job-worker-0")
            await eventually(lambda: memory(client, kind, real_namespace), bool)
            await settled(operator)
        await install_crds(client, [kind])
        await eventually(lambda: keeps(client, kind, real_namespace), bool)
        async with running_operator(client, **(options | {"prunes_status": ()})) as operator:
            await eventually(lambda: memory(client, kind, real_namespace), lambda text: text == "")
            await settled(operator)
            job = await client.get(kind.resource, "job", namespace=real_namespace)
            assert job["status"]["completedIndexes"] == {"Worker": "0"}


@pytest.mark.apiserver
@pytest.mark.timeout(60)
async def test_which_definitions_drop_fields_is_read_from_the_published_schema(
    client: Client, real_namespace: str, kind: Kind
) -> None:
    absent = replace(PYTORCH, name="Absent", plural="absents")
    found = await eventually(
        lambda: kinds_pruning_status(client, [PYTORCH, kind, absent]), lambda found: kind.name in found
    )
    assert found == {kind.name}


# In front of a server whose answers are written down


VISIBLE: Object = {"conditions": [], "replicaStatuses": {"Worker": {"active": 1}}}
STATUS: Object = {**VISIBLE, "restarts": {"Worker": 1}}
CONFLICT = answer({"kind": "Status", "code": 409, "reason": "Conflict", "message": "changed"}, status=409)


class Steps(Observer):
    def __init__(self) -> None:
        self.seen: list[Transition] = []

    def transition(self, kind: Kind, job: Object, step: Transition) -> None:
        self.seen.append(step)


def job_at(version: int, status: Object, *, annotated: bool = False) -> Object:
    builder = JobBuilder().master().status(status).metadata(resourceVersion=str(version))
    if annotated:
        builder.annotation(ANNOTATION, remembered(STATUS, builder.raw()["metadata"]["uid"]) or "")
    return builder.raw()


@asynccontextmanager
async def writing(steps: Steps) -> AsyncIterator[tuple[ScriptedServer, StatusWriter]]:
    async with scripted_server() as server, Client(server.config) as client:
        caches, events = Caches(KINDS), EventBuffer(lambda _, __, ___: None)
        yield (
            server,
            StatusWriter(client, caches, events, steps, asyncio.Semaphore(1), prunes_status={PYTORCH.name}),
        )


async def test_a_memory_whose_answer_was_lost_is_found_and_counts_once() -> None:
    steps = Steps()
    plan = Plan(status=STATUS, transitions=(Transition.RESTARTED,))
    async with writing(steps) as (server, writer):
        # The client asks again when the connection breaks, and is refused because of its own first try.
        server.will(cut, CONFLICT, answer(job_at(2, VISIBLE, annotated=True)))
        result = await writer.write(PYTORCH, job_at(1, VISIBLE), STATUS, plan)
        assert [seen.method for seen in server.seen] == ["PATCH", "PATCH", "GET"]
    assert result.failure is None
    assert result.event
    assert result.event.reason == "StatusFieldsDropped"
    assert steps.seen == [Transition.RESTARTED]


async def test_a_memory_that_somebody_else_prevented_is_a_conflict() -> None:
    steps = Steps()
    async with writing(steps) as (server, writer):
        server.will(CONFLICT, answer(job_at(2, VISIBLE)))
        with pytest.raises(Conflict):
            await writer.write(PYTORCH, job_at(1, VISIBLE), STATUS, Plan(status=STATUS))
    assert steps.seen == []


async def test_the_memory_is_written_before_the_status_and_goes_once_the_status_keeps_it() -> None:
    async with writing(Steps()) as (server, writer):
        stored = job_at(3, STATUS, annotated=True)
        server.will(answer(job_at(2, {}, annotated=True)), answer(stored))
        await writer.write(PYTORCH, job_at(1, {}), STATUS, Plan(status=STATUS))
        patch, put = server.seen
        assert (patch.method, put.method) == ("PATCH", "PUT")
        assert msgspec.json.decode(patch.body)["metadata"]["resourceVersion"] == "1"
        assert msgspec.json.decode(put.body)["metadata"]["resourceVersion"] == "2"
        assert writer.prunes_status == set()

        assert writer.is_outdated(PYTORCH, stored)
        server.will(answer(stored), answer(job_at(4, STATUS)))
        await writer.move_memory(PYTORCH, stored)
        assert msgspec.json.decode(server.seen[-1].body)["metadata"]["annotations"] == {ANNOTATION: None}
        assert not writer.is_outdated(PYTORCH, job_at(4, STATUS))


async def test_a_cluster_that_shows_no_schema_is_taken_to_keep_everything() -> None:
    async with scripted_server() as server, Client(server.config, retries=False) as client:
        server.will(answer({"kind": "Status", "code": 403, "message": "no"}, status=403), answer(b"<html>"))
        assert await kinds_pruning_status(client, KINDS.values()) == frozenset()
        assert await kinds_pruning_status(client, KINDS.values()) == frozenset()


async def running(client: Client, kind: Kind, namespace: str) -> None:
    async def active() -> int:
        job = await client.get(kind.resource, "job", namespace=namespace)
        return sum(one.get("active", 0) for one in job.get("status", {}).get("replicaStatuses", {}).values())

    job = await client.get(kind.resource, "job", namespace=namespace)
    wanted = sum(one["replicas"] for one in job["spec"][kind.replicas_field].values())
    await eventually(active, lambda count: count == wanted)


async def memory(client: Client, kind: Kind, namespace: str) -> str:
    job = await client.get(kind.resource, "job", namespace=namespace)
    return str((job["metadata"].get("annotations") or {}).get(ANNOTATION, ""))


async def keeps(client: Client, kind: Kind, namespace: str) -> bool:
    """Whether the server serves the new definition by now: tried on a job of its own."""
    name = "probe"
    try:
        probe = await client.get(kind.resource, name, namespace=namespace)
    except NotFound:
        probe = await submit(client, JobBuilder(name, kind=kind, namespace=namespace).master().suspend())
    status = {"conditions": [], "replicaStatuses": {}, "restarts": {"Master": 1}}
    written = await client.replace(kind.resource, {**probe, "status": status}, subresource="status")
    if not written["status"].get("restarts"):
        return False
    await client.delete(kind.resource, name, namespace=namespace)
    return True


async def uid(client: Client, namespace: str, pod: str) -> str:
    try:
        return str((await client.get(PODS, pod, namespace=namespace))["metadata"]["uid"])
    except NotFound:
        return ""


async def told(client: Client, namespace: str) -> list[str]:
    found = (await client.list(EVENTS, namespace=namespace)).items
    return [event["message"] for event in found if event["reason"] == "StatusFieldsDropped"]


async def test_the_memory_of_a_job_that_somebody_else_manages_is_not_ours_to_move() -> None:
    builder = JobBuilder().master().annotation(ANNOTATION, "{}")
    async with writing(Steps()) as (_, writer):
        writer.prunes_status.clear()
        assert writer.is_outdated(PYTORCH, builder.raw())
        assert not writer.is_outdated(PYTORCH, builder.run_policy(managedBy=MULTIKUEUE).raw())
