"""Plans are applied on a real API server: the order of writes, failures, and names that are taken."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import datetime

import pytest

from tests.support.engine.planning import decide
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.objects.jobs import JobBuilder
from tests.support.servers.scripted_server import answer, scripted_server
from trainwright.api.kinds import KINDS, PYTORCH, Kind
from trainwright.engine import Create, Delete, JobEvent, Observed, Patch, Plan, Replace, Transition
from trainwright.engine.framework import CONFIG_MAP, SERVICE_ACCOUNT, ExtraResource
from trainwright.engine.frameworks.pytorch import AUTOSCALER
from trainwright.engine.plan import PODS_WAVE
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import Conflict, NotFound
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.kube.client.requests import Request, Response
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.kube.controller.outcome import Retry
from trainwright.kube.controller.store import raw_metadata
from trainwright.objects import Object
from trainwright.objects.metadata import controller_reference
from trainwright.objects.resources import (
    AUTOSCALERS,
    CONFIG_MAPS,
    EVENTS,
    NAMESPACES,
    PODS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from trainwright.operator.reconcile.applier import Applier
from trainwright.operator.reconcile.caches import Caches
from trainwright.operator.reconcile.child_errors import InvalidChild
from trainwright.operator.reconcile.event_buffer import EventBuffer
from trainwright.operator.reconcile.observer import Observer

pytestmark = pytest.mark.apiserver

_JOB_FIELD = "spec.pytorchReplicaSpecs[Worker].template"
STATUS: Object = {
    "conditions": [{"type": "Created", "status": "True", "reason": "PyTorchJobCreated", "message": "created"}]
}


class CountingClient(Client):
    """A client that counts its requests in flight."""

    in_flight = 0
    most_in_flight = 0

    async def send(self, request: Request) -> Response:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await super().send(request)
        finally:
            self.in_flight -= 1


class Calls(Observer):
    """An observer that lists its calls."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def transition(self, kind: Kind, job: Object, step: Transition) -> None:
        self.seen.append(f"{job['metadata']['name']} of {kind.name}: {step}")

    def status_written(self, kind: Kind, before: Object, after: Object) -> None:
        self.seen.append(f"{_version(after) > _version(before)}: {after['status'] == STATUS}")

    def pods_created(self, kind: Kind, job: Object) -> None:
        self.seen.append(f"pods of {kind.name} with {len(job['status'] or {})} fields")


@dataclass
class World:
    """A job on the API server and an applier for it."""

    client: CountingClient
    job: Object
    caches: Caches = field(default_factory=lambda: Caches(KINDS))

    def __post_init__(self) -> None:
        self.recorder = EventRecorder(self.client, "pytorchjob-controller")
        self.applier = self.applier_of(48)

    def applier_of(self, parallel_writes: int, observer: Observer | None = None) -> Applier:
        events = EventBuffer(self.record)
        return Applier(self.client, self.caches, events, parallel_writes=parallel_writes, observer=observer)

    def record(self, job: Object, event: JobEvent, at: datetime) -> None:
        self.recorder.record(job, event.type, event.reason, event.message, at=at)

    async def apply(self, **plan: object) -> tuple[str, ...]:
        """Returns the reasons of the writes that failed."""
        plan["creates"] = tuple(map(creation, plan.get("creates", ())))  # type: ignore[call-overload]
        failures = await self.applier.apply(PYTORCH, self.job, Plan(**plan))  # type: ignore[arg-type]  # checked by Plan
        return tuple(failure.reason for failure in failures)

    @property
    def observed(self) -> Observed:
        return self.caches.observe(raw_metadata(self.job), taken_ports=frozenset())

    @property
    def namespace(self) -> str:
        return str(self.job["metadata"]["namespace"])

    async def events(self) -> list[tuple[str, str, str]]:
        await self.recorder.close()
        found = (await self.client.list(EVENTS, namespace=self.namespace)).items
        return sorted((event["type"], event["reason"], event["message"]) for event in found)

    async def pods(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in (await self.client.list(PODS, namespace=self.namespace)).items]

    def pod(self, name: str, **metadata: object) -> Object:
        ours = {
            "namespace": self.namespace,
            "labels": {"training.kubeflow.org/job-name": "job", "training.kubeflow.org/replica-type": "worker"},
            "ownerReferences": [controller_reference(self.job)],
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, **ours, **metadata},
            "spec": {"containers": [{"name": "pytorch", "image": "example.com/train:1"}]},
        }

    def service(self, name: str) -> Object:
        metadata = self.pod(name)["metadata"]
        return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"clusterIP": "None"}}


@pytest.fixture
async def world(job_plane: ControlPlane, real_namespace: str) -> AsyncIterator[World]:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "example.com/train:1"}]}}
    async with CountingClient(job_plane.config) as client:
        job = await client.create(
            PYTORCH.resource,
            {
                "apiVersion": "kubeflow.org/v1",
                "kind": "PyTorchJob",
                "metadata": {"name": "job", "namespace": real_namespace},
                "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template}}},
            },
        )
        world = World(client, job)
        yield world
        await world.recorder.close()


async def test_the_status_is_written_before_children_and_events_after_them(world: World) -> None:
    succeeded = JobEvent("Normal", "PyTorchJobSucceeded", "PyTorchJob job is successfully completed.")
    failures = await world.apply(
        status=STATUS, creates=(world.pod("job-worker-0"), world.service("job-worker-0")), events=(succeeded,)
    )

    assert failures == ()
    assert await world.events() == [
        ("Normal", "PyTorchJobSucceeded", "PyTorchJob job is successfully completed."),
        ("Normal", "SuccessfulCreatePod", "Created pod: job-worker-0"),
        ("Normal", "SuccessfulCreateService", "Created service: job-worker-0"),
    ]
    job = await world.client.get(PYTORCH.resource, "job", namespace=world.namespace)
    assert job["status"] == STATUS
    children = [await world.client.get(of, "job-worker-0", namespace=world.namespace) for of in (PODS, SERVICES)]
    events = (await world.client.list(EVENTS, namespace=world.namespace)).items
    assert _version(job) < min(map(_version, children))
    assert max(map(_version, children)) < min(map(_version, events))


async def test_children_of_a_new_job_are_created_first_and_its_status_by_the_next_reconcile(world: World) -> None:
    calls = Calls()
    world.applier = world.applier_of(1, calls)
    failures = await world.apply(
        status=STATUS,
        status_follows=True,
        transitions=(Transition.CREATED,),
        creates=(world.pod("job-worker-0"),),
    )
    assert failures == ()

    assert await world.pods() == ["job-worker-0"]
    assert "status" not in await world.client.get(PYTORCH.resource, "job", namespace=world.namespace)
    assert calls.seen == [f"pods of PyTorchJob with {len(STATUS)} fields"]
    assert await world.events() == [("Normal", "SuccessfulCreatePod", "Created pod: job-worker-0")]


async def test_new_job_whose_children_are_rejected_gets_its_status_at_once(world: World) -> None:
    """They may be rejected for hours, by a quota for example."""
    calls = Calls()
    world.applier = world.applier_of(1, calls)
    await world.client.create(PODS, world.pod("job-worker-0", ownerReferences=[]))
    (failure,) = await world.apply(
        status=STATUS,
        status_follows=True,
        transitions=(Transition.CREATED,),
        creates=(world.pod("job-worker-0"),),
    )
    assert "already exists" in failure
    job = await world.client.get(PYTORCH.resource, "job", namespace=world.namespace)
    assert job["status"] == STATUS
    assert calls.seen == ["True: True", "job of PyTorchJob: created"]


async def test_launch_is_counted_although_a_service_could_not_be_created(world: World) -> None:
    """The next plan creates no pod, so it would not count the launch."""
    calls = Calls()
    world.applier = world.applier_of(1, calls)
    foreign = world.service("job-worker-0")
    await world.client.create(SERVICES, {**foreign, "metadata": {**foreign["metadata"], "ownerReferences": []}})
    (failure,) = await world.apply(creates=(world.pod("job-worker-0"), world.service("job-worker-0")))
    assert "already exists" in failure
    assert calls.seen == ["pods of PyTorchJob with 0 fields"]


async def test_launch_is_not_counted_while_a_pod_is_missing(world: World) -> None:
    calls = Calls()
    world.applier = world.applier_of(1, calls)
    await world.client.create(PODS, world.pod("job-worker-0", ownerReferences=[]))
    await world.apply(creates=(world.pod("job-worker-0"), world.pod("job-worker-1")))
    assert calls.seen == []


async def test_events_about_children_of_a_new_job_are_recorded_although_its_status_cannot_be_written(
    world: World,
) -> None:
    world.applier = world.applier_of(1)
    await world.client.create(PODS, world.pod("job-worker-1", ownerReferences=[]))
    await world.client.patch(PYTORCH.resource, "job", {"metadata": {"labels": {"a": "b"}}}, namespace=world.namespace)
    with pytest.raises(Conflict):
        await world.apply(
            status=STATUS, status_follows=True, creates=(world.pod("job-worker-0"), world.pod("job-worker-1"))
        )
    assert [(type_, reason) for type_, reason, _ in await world.events()] == [
        ("Normal", "SuccessfulCreatePod"),
        ("Warning", "ErrResourceExists"),
    ]


async def test_written_objects_are_cached_at_once(world: World) -> None:
    await world.apply(status=STATUS, creates=(world.pod("job-worker-0"),))

    (known,) = world.observed.pods
    assert known.name == "job-worker-0"
    job = world.caches.jobs["PyTorchJob"].store.get(f"{world.namespace}/job")
    assert job is not None
    assert job["status"] == STATUS


async def test_a_status_write_changes_nothing_but_the_status(world: World) -> None:
    before = world.job
    world.job = world.caches.jobs["PyTorchJob"].read(before)
    assert "managedFields" not in world.job["metadata"]

    await world.apply(status=STATUS)
    after = await world.client.get(PYTORCH.resource, "job", namespace=world.namespace)
    assert after["spec"] == before["spec"]
    assert before["metadata"]["managedFields"][0] in after["metadata"]["managedFields"]
    for changing in ("managedFields", "resourceVersion"):
        del before["metadata"][changing], after["metadata"][changing]
    assert after["metadata"] == before["metadata"]


async def test_status_that_is_pruned_completely_is_a_failure(world: World) -> None:
    assert await world.apply(status=STATUS) == ()
    world.job = await world.client.get(PYTORCH.resource, "job", namespace=world.namespace)

    (failure,) = await world.apply(status={**STATUS, "undeclared": 1}, creates=(world.pod("job-worker-0"),))
    assert "CustomResourceDefinition" in failure
    assert await world.pods() == ["job-worker-0"]


async def test_a_conflict_stops_the_plan_before_any_child_changes(world: World) -> None:
    await world.client.patch(
        PYTORCH.resource, "job", {"metadata": {"annotations": {"a": "b"}}}, namespace=world.namespace
    )
    with pytest.raises(Conflict):
        await world.apply(status=STATUS, creates=(world.pod("job-worker-0"),))
    assert await world.pods() == []
    assert await world.events() == []


async def test_existing_child_counts_as_created(world: World) -> None:
    await world.client.create(PODS, world.pod("job-worker-0"))

    assert await world.apply(creates=(world.pod("job-worker-0"),)) == ()
    (known,) = world.observed.pods
    assert known.name == "job-worker-0"
    assert await world.events() == []


async def test_child_without_job_label_is_reported(world: World) -> None:
    await world.client.create(PODS, world.pod("job-worker-0", labels={}))

    (failure,) = await world.apply(creates=(world.pod("job-worker-0"),))
    assert failure == (
        'Error creating: pods "job-worker-0" already exists without the label training.kubeflow.org/job-name: '
        "restore it"
    )
    assert await world.events() == [("Warning", "FailedCreatePod", failure)]
    assert world.observed.pods == ()


async def test_object_without_owner_is_left_alone_and_reported(world: World) -> None:
    foreign = await world.client.create(PODS, world.pod("job-worker-0", ownerReferences=[]))

    (failure,) = await world.apply(creates=(world.pod("job-worker-0"),))
    message = (
        'Resource "job-worker-0" of Kind "Pod" already exists and is not managed by PyTorchJob job: '
        "delete it, or give the job another name"
    )
    assert failure == message
    assert await world.events() == [("Warning", "ErrResourceExists", message)]
    assert (await world.client.get(PODS, "job-worker-0", namespace=world.namespace))["metadata"] == foreign["metadata"]


async def test_child_of_a_former_job_of_the_same_name_is_retried_without_an_event(world: World) -> None:
    former = {**controller_reference(world.job), "uid": "a-former-uid"}
    leftover = world.pod("job-worker-0", ownerReferences=[former], finalizers=["example.com/hold"])
    await world.client.create(PODS, leftover)

    (failure,) = await world.apply(creates=(world.pod("job-worker-0"),))
    assert failure.endswith("it is being deleted, or belongs to a former PyTorchJob of this name")
    assert await world.events() == []
    await world.client.patch(PODS, "job-worker-0", {"metadata": {"finalizers": None}}, namespace=world.namespace)


async def test_foreign_object_that_is_being_deleted_is_retried_without_an_event(world: World) -> None:
    terminating = world.pod("job-worker-0", ownerReferences=[], finalizers=["example.com/hold"])
    await world.client.create(PODS, terminating)
    await world.client.delete(PODS, "job-worker-0", namespace=world.namespace, grace_period_seconds=0)

    (failure,) = await world.apply(creates=(world.pod("job-worker-0"),))
    assert failure.endswith("it is being deleted, or belongs to a former PyTorchJob of this name")
    assert await world.events() == []
    await world.client.patch(PODS, "job-worker-0", {"metadata": {"finalizers": None}}, namespace=world.namespace)


async def test_no_event_is_recorded_in_a_terminating_namespace(world: World) -> None:
    ending = f"{world.namespace}-ending"
    held = {"name": ending, "finalizers": ["example.com/hold"]}
    await world.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": held})
    await world.client.delete(NAMESPACES, ending)

    (failure,) = await world.apply(creates=(world.pod("job-worker-0", namespace=ending),))
    assert "because it is being terminated" in failure
    assert await world.events() == []
    await world.client.patch(NAMESPACES, ending, {"metadata": {"finalizers": None}})


async def test_rejected_child_stops_further_creates(world: World) -> None:
    world.applier = world.applier_of(1)
    broken = world.pod("job-master-0")
    broken["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}

    with pytest.raises(InvalidChild, match=r"template: .*spec\.containers\[0\]\.resources\.requests: Invalid value"):
        await world.apply(creates=(broken, world.pod("job-worker-0")))
    assert await world.pods() == []
    ((kind, reason, message),) = await world.events()
    assert (kind, reason) == ("Warning", "FailedCreatePod")
    assert message.startswith('Error creating: Pod "job-master-0" is invalid: ')


async def test_delete_has_the_uid_as_precondition(world: World) -> None:
    await world.client.create(PODS, world.pod("job-worker-0"))

    (failure,) = await world.apply(deletes=(Delete(PODS, "job-worker-0", "another-uid"),))
    assert "uid" in failure.lower()
    assert await world.pods() == ["job-worker-0"]
    assert await world.events() == []


async def test_deletions_are_cached_at_once(world: World) -> None:
    await world.apply(creates=(world.pod("job-worker-0"), world.service("job-worker-0")))
    deletes = []
    for resource in (PODS, SERVICES):
        stored = await world.client.get(resource, "job-worker-0", namespace=world.namespace)
        deletes.append(Delete(resource, "job-worker-0", stored["metadata"]["uid"]))

    assert await world.apply(deletes=tuple(deletes)) == ()
    observed = world.observed
    assert observed.services == ()
    assert all(pod.metadata.terminating for pod in observed.pods)
    assert ("Normal", "SuccessfulDeletePod", "Deleted pod: job-worker-0") in await world.events()
    assert ("Normal", "SuccessfulDeleteService", "Deleted service: job-worker-0") in await world.events()


async def test_delete_of_a_deleted_object_records_no_event(world: World) -> None:
    assert await world.apply(deletes=(Delete(PODS, "job-worker-0", "gone"),)) == ()
    assert await world.events() == []


async def test_expired_job_is_deleted(world: World) -> None:
    assert await world.apply(delete_job=True) == ()
    with pytest.raises(NotFound):
        await world.client.get(PYTORCH.resource, "job", namespace=world.namespace)
    assert await world.events() == [("Normal", "SuccessfulDeletePod", "Deleted job: job")]


def extra_object(world: World, resource: Resource, name: str, **content: object) -> Object:
    labels = {"training.kubeflow.org/job-name": "job"}
    metadata: Object = {"name": name, "namespace": world.namespace, "labels": labels}
    metadata["ownerReferences"] = [controller_reference(world.job)]
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **content}


async def watching(world: World, *extras: ExtraResource) -> None:
    world.caches = Caches(KINDS, extras=extras)
    world.applier = world.applier_of(1)


@pytest.mark.parametrize("extra", [AUTOSCALER, CONFIG_MAP, SERVICE_ACCOUNT])
@pytest.mark.parametrize("labelled", [True, False])
async def test_existing_extra_object_of_the_job_is_cached_and_labelled(
    world: World, extra: ExtraResource, labelled: bool
) -> None:
    await watching(world, extra)
    target = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "job"}
    content = {"spec": {"scaleTargetRef": target, "maxReplicas": 2}} if extra is AUTOSCALER else {}
    wanted = extra_object(world, extra.resource, "job", **content)
    present = extra_object(world, extra.resource, "job", **content)
    if not labelled:
        del present["metadata"]["labels"]
    await world.client.create(extra.resource, present)
    assert await world.apply(creates=(wanted,)) == ()
    assert [one.metadata.name for one in world.observed.extras] == ["job"]
    stored = await world.client.get(extra.resource, "job", namespace=world.namespace)
    assert bool(stored["metadata"].get("labels")) is (labelled or extra is not SERVICE_ACCOUNT)


async def test_extra_object_without_owner_is_never_changed(world: World) -> None:
    await watching(world, CONFIG_MAP)
    present = extra_object(world, CONFIG_MAPS, "job-config", data={"mine": "1"})
    del present["metadata"]["ownerReferences"]
    await world.client.create(CONFIG_MAPS, present)
    wanted = extra_object(world, CONFIG_MAPS, "job-config", data={"ours": "1"})
    (failure,) = await world.apply(creates=(wanted,))
    assert failure.startswith(
        'Resource "job-config" of Kind "ConfigMap" already exists and is not managed by PyTorchJob'
    )
    (kind, reason, _), *_ = await world.events()
    assert (kind, reason) == ("Warning", "ErrResourceExists")
    kept = await world.client.get(CONFIG_MAPS, "job-config", namespace=world.namespace)
    assert kept["data"] == {"mine": "1"}


async def test_pods_wait_for_the_objects_that_they_need(world: World) -> None:
    await watching(world, CONFIG_MAP)
    broken = extra_object(world, CONFIG_MAPS, "job-config", data={"not a key": "1"})
    first = replace(creation(broken), wave=0, job_field="spec.pytorchReplicaSpecs[Master]")
    plan = Plan(creates=(first, creation(world.pod("job-worker-0"))))
    with pytest.raises(InvalidChild, match=r"spec.pytorchReplicaSpecs\[Master\]: ConfigMap \"job-config\" is invalid"):
        await world.applier.apply(PYTORCH, world.job, plan)
    assert await world.pods() == []


async def test_name_conflict_of_an_object_that_pods_do_not_need_stops_no_create(world: World) -> None:
    await watching(world, CONFIG_MAP)
    foreign = extra_object(world, CONFIG_MAPS, "job-config")
    del foreign["metadata"]["ownerReferences"]
    await world.client.create(CONFIG_MAPS, foreign)
    wanted = replace(creation(extra_object(world, CONFIG_MAPS, "job-config")), needed=False)
    failures = await world.applier.apply(
        PYTORCH, world.job, Plan(creates=(wanted, creation(world.pod("job-worker-0"))))
    )
    assert len(failures) == 1
    assert await world.pods() == ["job-worker-0"]


async def test_invalid_object_stops_creates_even_if_pods_do_not_need_it(world: World) -> None:
    await watching(world, CONFIG_MAP)
    broken = replace(creation(extra_object(world, CONFIG_MAPS, "job-config", data={"not a key": "1"})), needed=False)
    plan = Plan(creates=(broken, creation(world.pod("job-worker-0"))))
    with pytest.raises(InvalidChild):
        await world.applier.apply(PYTORCH, world.job, plan)
    assert await world.pods() == []


async def test_update_that_changes_nothing_is_a_failure(world: World) -> None:
    await watching(world, CONFIG_MAP)
    stored = await world.client.create(CONFIG_MAPS, extra_object(world, CONFIG_MAPS, "job-config", data={"a": "1"}))
    (failure,) = await world.apply(replaces=(Replace(CONFIG_MAPS, "job-config", stored),))
    assert failure == "ConfigMap job-config: the API server ignored the update"


async def test_update_replaces_an_object_only_in_the_observed_version(world: World) -> None:
    await watching(world, CONFIG_MAP)
    stored = await world.client.create(CONFIG_MAPS, extra_object(world, CONFIG_MAPS, "job-config", data={"a": "1"}))
    changed = Replace(CONFIG_MAPS, "job-config", {**stored, "data": {"a": "2"}})
    assert await world.apply(replaces=(changed,)) == ()
    assert world.observed.extras[0].content == {"data": {"a": "2"}}
    (failure,) = await world.apply(replaces=(changed,))
    assert "the object has been modified" in failure
    assert await world.events() == []


async def test_a_failed_patch_or_delete_stops_no_create(world: World) -> None:
    missing = Patch(PODS, "job-worker-7", "uid", {"metadata": {"annotations": {"a": "1"}}})
    failures = await world.apply(patches=(missing,), creates=(world.pod("job-worker-0"),))
    assert len(failures) == 1
    assert await world.pods() == ["job-worker-0"]


async def test_every_failed_write_records_an_event(world: World, unused_tcp_port: int) -> None:
    config = ClusterConfig(server=f"http://127.0.0.1:{unused_tcp_port}")
    async with CountingClient(config, retries=False) as unreachable:
        recorded: list[JobEvent] = []
        events = EventBuffer(lambda _, event, __: recorded.append(event))
        applier = Applier(unreachable, world.caches, events, parallel_writes=8)
        plan = Plan(deletes=(Delete(PODS, "a", "uid"), Delete(SERVICES, "b", "uid")), delete_job=True)
        failures = await applier.apply(PYTORCH, world.job, plan)

    assert [event.reason for event in recorded] == ["FailedDeletePod", "FailedDeleteService", "FailedDeletePod"]
    assert {event.type for event in recorded} == {"Warning"}
    assert [failure.reason for failure in failures] == [event.message for event in recorded]
    assert all(f"Error deleting: cannot connect to {config.server}" in failure.reason for failure in failures)


async def test_retry_after_of_the_api_server_is_honoured() -> None:
    status = {"kind": "Status", "code": 429, "message": "slow down"}
    async with scripted_server() as server, Client(server.config) as client:
        server.will(answer(status, status=429, headers={"Retry-After": "45"}))  # longer than the client would wait
        applier = Applier(client, Caches(KINDS), EventBuffer(lambda _, __, ___: None), parallel_writes=1)
        plan = Plan(deletes=(Delete(PODS, "a", "uid"),))
        assert await applier.apply(PYTORCH, JobBuilder().master().raw(), plan) == (
            Retry("Error deleting: slow down", seconds=45),
        )


async def test_status_of_a_new_job_is_not_written_while_the_api_server_asks_for_a_pause() -> None:
    status = {"kind": "Status", "code": 429, "message": "slow down"}
    async with scripted_server() as server, Client(server.config) as client:
        server.will(answer(status, status=429, headers={"Retry-After": "45"}))
        applier = Applier(client, Caches(KINDS), EventBuffer(lambda _, __, ___: None), parallel_writes=1)
        job = JobBuilder().master()
        plan = decide(job)
        assert plan.status_follows
        failures = await applier.apply(PYTORCH, job.raw(), plan)
        assert failures == (Retry("Error creating: slow down", seconds=45),)
    assert [seen.method for seen in server.seen] == ["POST"]


async def test_concurrent_writes_of_all_plans_together_are_bounded(world: World) -> None:
    world.applier = world.applier_of(3)
    plans = [[world.pod(f"job-worker-{plan}{number}") for number in range(6)] for plan in range(3)]

    await asyncio.gather(*(world.apply(creates=tuple(pods)) for pods in plans))
    assert len(await world.pods()) == 18
    senders_of_events = 4
    assert 3 <= world.client.most_in_flight <= 3 + senders_of_events


async def test_a_standing_event_is_recorded_once(world: World) -> None:
    warning = JobEvent("Warning", "ErrImagePull", "Error pod job-worker-0 container pytorch waiting message: no image")
    for _ in range(3):
        await world.apply(standing_events=(warning,))
    await world.recorder.close()
    (event,) = (await world.client.list(EVENTS, namespace=world.namespace)).items
    assert (event["reason"], event["count"]) == ("ErrImagePull", 1)


async def test_child_of_an_earlier_operator_gets_the_current_labels(world: World) -> None:
    earlier = {"job-name": "job", "replica-type": "worker", "replica-index": "0", "group-name": "kubeflow.org"}
    await world.client.create(PODS, world.pod("job-worker-0", labels=earlier))
    assert await world.apply(creates=(world.pod("job-worker-0"),)) == ()

    (known,) = world.observed.pods
    assert known.metadata.labels == {
        **earlier,
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/job-name": "job",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "0",
    }


async def test_patch_has_the_uid_as_precondition(world: World) -> None:
    pod = await world.client.create(PODS, world.pod("job-worker-0"))
    body = {"metadata": {"labels": {"seen": "yes"}}}
    (failure,) = await world.apply(patches=(Patch(PODS, "job-worker-0", "another-uid", body),))
    assert "metadata.uid" in failure
    (gone,) = await world.apply(patches=(Patch(PODS, "job-worker-9", pod["metadata"]["uid"], body),))
    assert "not found" in gone

    assert await world.apply(patches=(Patch(PODS, "job-worker-0", pod["metadata"]["uid"], body),)) == ()
    (known,) = world.observed.pods
    assert known.metadata.labels["seen"] == "yes"
    assert await world.events() == []


async def test_rejected_patch_records_an_event(world: World) -> None:
    pod = await world.client.create(PODS, world.pod("job-worker-0"))
    nonsense = Patch(PODS, "job-worker-0", pod["metadata"]["uid"], {"metadata": {"labels": {"not a key": ""}}})
    (failure,) = await world.apply(patches=(nonsense,))
    assert failure.startswith("Error updating job-worker-0: ")
    ((kind, reason, _),) = await world.events()
    assert (kind, reason) == ("Warning", "FailedUpdatePod")


async def test_forced_delete_does_not_wait_for_the_node(world: World) -> None:
    bound = world.pod("job-worker-0")
    bound["spec"]["nodeName"] = "gone"
    pod = await world.client.create(PODS, bound)
    await world.apply(deletes=(Delete(PODS, "job-worker-0", pod["metadata"]["uid"], force=True),))
    assert await world.pods() == []
    assert world.observed.pods == ()


async def test_transitions_are_counted_once_their_status_is_written(world: World) -> None:
    calls = Calls()
    applier = world.applier_of(1, calls)
    pod = world.pod("job-worker-0")
    plan = Plan(status=STATUS, transitions=(Transition.CREATED,), creates=(creation(pod),))
    await applier.apply(PYTORCH, world.job, plan)
    with pytest.raises(Conflict):
        await applier.apply(
            PYTORCH, world.job, Plan(status={}, transitions=(Transition.FAILED,), creates=(creation(pod),))
        )
    assert calls.seen == ["True: True", "job of PyTorchJob: created", f"pods of PyTorchJob with {len(STATUS)} fields"]


def creation(child: Object) -> Create:
    resources = (PODS, SERVICES, AUTOSCALERS, CONFIG_MAPS, SERVICE_ACCOUNTS)
    resource = next(one for one in resources if one.kind == child["kind"])
    with_event = resource in {PODS, SERVICES}
    return Create(resource, child["metadata"]["name"], _JOB_FIELD, lambda: child, PODS_WAVE, with_event=with_event)


def _version(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])
