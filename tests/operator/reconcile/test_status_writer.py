"""Under a CRD that prunes our status fields, as upstream's does, an annotation keeps them and an event reports it."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.support.harness.job_harness import submit
from tests.support.harness.running_operator import running_operator, settled
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.kubernetes.fake_kubelet import running_kubelet
from tests.support.objects.jobs import JobBuilder
from tests.support.servers.scripted_server import ScriptedServer, answer, cut, scripted_server
from tests.support.waiting import eventually, wait_until
from trainwright.api.crd import render_crd
from trainwright.api.kinds import KINDS, MULTIKUEUE, PYTORCH, Kind
from trainwright.api.kinds.tensorflow import TENSORFLOW
from trainwright.api.pruned_status import ADDITIONAL_FIELDS, ANNOTATION, annotation_value
from trainwright.engine import Plan, Transition
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import Conflict, NotFound
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.resources import CUSTOM_RESOURCE_DEFINITIONS, EVENTS, PODS
from trainwright.operator.reconcile.caches import Caches
from trainwright.operator.reconcile.event_buffer import EventBuffer
from trainwright.operator.reconcile.observer import Observer
from trainwright.operator.reconcile.reconcile_context import ReconcileContext
from trainwright.operator.reconcile.status_writer import StatusWriter
from trainwright.operator.setup.crds import install_crds, kinds_pruning_status

NUMBERS = range(4)
"""Of the tests that need a kind of their own."""


@pytest.fixture(scope="module")
def pruning_kinds(control_plane: ControlPlane) -> Iterator[dict[str, list[Kind]]]:
    """Kinds like others, with CRDs like upstream's. A real server takes five seconds to serve a new one, or many."""
    kinds = {
        like.name: [replace(like, name=f"Pruning{like.name}{n}", plural=f"pruning{like.plural}{n}") for n in NUMBERS]
        for like in (PYTORCH, TENSORFLOW)
    }
    new = list(itertools.chain(*kinds.values()))
    with SyncClient(control_plane.config) as client:
        for kind in new:
            client.create(CUSTOM_RESOURCE_DEFINITIONS, upstream_crd(kind))
        for kind in new:
            wait_until(lambda: served(client, kind))  # noqa: B023 - called at once
        yield kinds
        for kind in new:
            client.delete(CUSTOM_RESOURCE_DEFINITIONS, f"{kind.plural}.kubeflow.org")


@pytest.fixture(params=[PYTORCH, TENSORFLOW], ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest, pruning_kinds: dict[str, list[Kind]]) -> Kind:
    """One for each test, because some change its CRD."""
    return pruning_kinds[request.param.name].pop()


def upstream_crd(kind: Kind) -> Object:
    """Our CRD without the fields that upstream's does not declare."""
    crd = deepcopy(render_crd(kind))
    status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    for field in (*ADDITIONAL_FIELDS, "failure"):
        del status["properties"][field]
    return crd


def served(client: SyncClient, kind: Kind) -> bool:
    try:
        client.list(kind.resource)
    except NotFound:
        return False
    return True


@pytest.mark.apiserver
@pytest.mark.thorough("PyTorchJob-False", "TFJob-True")
@pytest.mark.parametrize("known_beforehand", [True, False])
async def test_pruned_fields_outlive_the_operator(
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
            await eventually(
                lambda: annotation(client, kind, real_namespace), lambda text: '"completedIndexes"' in text
            )
            await settled(operator)
            assert operator.prunes_status == {kind.name}
        job = await client.get(kind.resource, "job", namespace=real_namespace)
        assert not set(ADDITIONAL_FIELDS) & set(job["status"])
        assert '"restarts":{"Worker":1}' in job["metadata"]["annotations"][ANNOTATION]

        # The pod of the finished rank is deleted. A new operator must not create it again.
        await client.delete(PODS, "job-worker-1", namespace=real_namespace, grace_period_seconds=0)
        async with running_operator(client, **options) as operator:
            await settled(operator)
            assert await uid(client, real_namespace, "job-worker-1") == ""
            before = await client.get(kind.resource, "job", namespace=real_namespace)
            assert before["metadata"]["resourceVersion"] == job["metadata"]["resourceVersion"]
            (message,) = await messages(client, real_namespace)
            assert f"{kind.plural}.kubeflow.org does not declare status." in message


@pytest.mark.apiserver
async def test_annotation_is_removed_when_the_crd_declares_our_fields(
    client: Client, real_namespace: str, kind: Kind
) -> None:
    options: dict[str, Any] = {"kinds": {kind.name: kind}, "namespace": real_namespace, "prunes_status": {kind.name}}
    builder = JobBuilder("job", kind=kind, namespace=real_namespace).master().workers(1)
    async with running_kubelet(client, real_namespace) as kubelet:
        async with running_operator(client, **options) as operator:
            await submit(client, builder)
            await running(client, kind, real_namespace)
            await kubelet.finish("job-worker-0")
            await eventually(lambda: annotation(client, kind, real_namespace), bool)
            await settled(operator)
        await install_crds(client, [kind])
        await eventually(lambda: declares_our_fields(client, kind, real_namespace), bool)
        async with running_operator(client, **(options | {"prunes_status": ()})) as operator:
            await eventually(lambda: annotation(client, kind, real_namespace), lambda text: text == "")
            await settled(operator)
            job = await client.get(kind.resource, "job", namespace=real_namespace)
            assert job["status"]["completedIndexes"] == {"Worker": "0"}


@pytest.mark.apiserver
async def test_kinds_pruning_status_are_read_from_the_published_schema(
    client: Client, real_namespace: str, kind: Kind
) -> None:
    absent = replace(PYTORCH, name="Absent", plural="absents")
    found = await eventually(
        lambda: kinds_pruning_status(client, [PYTORCH, kind, absent]), lambda found: kind.name in found
    )
    assert found == {kind.name}


# With a scripted server


VISIBLE: Object = {"conditions": [], "replicaStatuses": {"Worker": {"active": 1}}}
STATUS: Object = {**VISIBLE, "restarts": {"Worker": 1}}
CONFLICT = answer({"kind": "Status", "code": 409, "reason": "Conflict", "message": "changed"}, status=409)


class Transitions(Observer):
    def __init__(self) -> None:
        self.seen: list[Transition] = []

    def transition(self, kind: Kind, job: Object, step: Transition) -> None:
        self.seen.append(step)


def job_at(version: int, status: Object, *, annotated: bool = False) -> Object:
    builder = JobBuilder().master().status(status).metadata(resourceVersion=str(version))
    if annotated:
        builder.annotation(ANNOTATION, annotation_value(STATUS, builder.raw()["metadata"]["uid"]) or "")
    return builder.raw()


@asynccontextmanager
async def writing(transitions: Transitions) -> AsyncIterator[tuple[ScriptedServer, StatusWriter]]:
    async with scripted_server() as server, Client(server.config) as client:
        caches, events = Caches(KINDS), EventBuffer(lambda _, __, ___: None)
        context = ReconcileContext(client, caches, events, transitions, {PYTORCH.name})
        yield server, StatusWriter(context, asyncio.Semaphore(1))


async def test_annotation_whose_response_was_lost_is_read_back_and_counts_once() -> None:
    transitions = Transitions()
    plan = Plan(status=STATUS, transitions=(Transition.RESTARTED,))
    async with writing(transitions) as (server, writer):
        # The client retries when the connection breaks, and conflicts with its own first try.
        server.will(cut, CONFLICT, answer(job_at(2, VISIBLE, annotated=True)))
        result = await writer.write(PYTORCH, job_at(1, VISIBLE), STATUS, plan)
        assert [seen.method for seen in server.seen] == ["PATCH", "PATCH", "GET"]
    assert result.failure is None
    assert result.event
    assert result.event.reason == "StatusFieldsDropped"
    assert transitions.seen == [Transition.RESTARTED]


async def test_annotation_that_conflicts_with_another_client_raises() -> None:
    transitions = Transitions()
    async with writing(transitions) as (server, writer):
        server.will(CONFLICT, answer(job_at(2, VISIBLE)))
        with pytest.raises(Conflict):
            await writer.write(PYTORCH, job_at(1, VISIBLE), STATUS, Plan(status=STATUS))
    assert transitions.seen == []


async def test_annotation_is_written_before_the_status_and_removed_once_the_status_has_its_fields() -> None:
    async with writing(Transitions()) as (server, writer):
        stored = job_at(3, STATUS, annotated=True)
        server.will(answer(job_at(2, {}, annotated=True)), answer(stored))
        await writer.write(PYTORCH, job_at(1, {}), STATUS, Plan(status=STATUS))
        patch, put = server.seen
        assert (patch.method, put.method) == ("PATCH", "PUT")
        assert msgspec.json.decode(patch.body)["metadata"]["resourceVersion"] == "1"
        assert msgspec.json.decode(put.body)["metadata"]["resourceVersion"] == "2"
        assert writer.prunes_status == set()

        assert writer.has_outdated_annotation(PYTORCH, stored)
        server.will(answer(stored), answer(job_at(4, STATUS)))
        await writer.move_annotation_to_status(PYTORCH, stored)
        assert msgspec.json.decode(server.seen[-1].body)["metadata"]["annotations"] == {ANNOTATION: None}
        assert not writer.has_outdated_annotation(PYTORCH, job_at(4, STATUS))


async def test_cluster_without_published_schema_is_assumed_to_prune_nothing() -> None:
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


async def annotation(client: Client, kind: Kind, namespace: str) -> str:
    job = await client.get(kind.resource, "job", namespace=namespace)
    return str((job["metadata"].get("annotations") or {}).get(ANNOTATION, ""))


async def declares_our_fields(client: Client, kind: Kind, namespace: str) -> bool:
    """True if the API server uses the new CRD by now: tried on another job."""
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


async def messages(client: Client, namespace: str) -> list[str]:
    found = (await client.list(EVENTS, namespace=namespace)).items
    return [event["message"] for event in found if event["reason"] == "StatusFieldsDropped"]


async def test_annotation_of_a_job_that_another_controller_manages_is_not_moved() -> None:
    builder = JobBuilder().master().annotation(ANNOTATION, "{}")
    async with writing(Transitions()) as (_, writer):
        writer.prunes_status.clear()
        assert writer.has_outdated_annotation(PYTORCH, builder.raw())
        assert not writer.has_outdated_annotation(PYTORCH, builder.run_policy(managedBy=MULTIKUEUE).raw())
