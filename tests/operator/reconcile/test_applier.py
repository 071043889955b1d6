"""Plans are applied on a real API server: the order of writes, failures, and names that are taken."""

import asyncio

import pytest

from tests.support.engine.planning import decide
from tests.support.harness.applier_harness import ApplierHarness, CountingClient, creation
from tests.support.objects.jobs import JobBuilder
from tests.support.servers.scripted_server import answer, scripted_server
from trainwright.api.kinds import KINDS, PYTORCH, Kind
from trainwright.engine import Delete, JobEvent, Patch, Plan, Transition
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import Conflict, NotFound
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.kube.controller.outcome import Retry
from trainwright.objects import Object
from trainwright.objects.metadata import controller_reference
from trainwright.objects.resources import (
    EVENTS,
    NAMESPACES,
    PODS,
    SERVICES,
)
from trainwright.operator.reconcile.applier import Applier
from trainwright.operator.reconcile.caches import Caches
from trainwright.operator.reconcile.child_write_events import InvalidChild
from trainwright.operator.reconcile.event_buffer import EventBuffer
from trainwright.operator.reconcile.observer import Observer
from trainwright.operator.reconcile.reconcile_context import ReconcileContext

pytestmark = pytest.mark.apiserver

STATUS: Object = {
    "conditions": [{"type": "Created", "status": "True", "reason": "PyTorchJobCreated", "message": "created"}]
}


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


async def test_the_status_is_written_before_children_and_events_after_them(harness: ApplierHarness) -> None:
    succeeded = JobEvent("Normal", "PyTorchJobSucceeded", "PyTorchJob job is successfully completed.")
    failures = await harness.apply(
        status=STATUS, creates=(harness.pod("job-worker-0"), harness.service("job-worker-0")), events=(succeeded,)
    )

    assert failures == ()
    assert await harness.events() == [
        ("Normal", "PyTorchJobSucceeded", "PyTorchJob job is successfully completed."),
        ("Normal", "SuccessfulCreatePod", "Created pod: job-worker-0"),
        ("Normal", "SuccessfulCreateService", "Created service: job-worker-0"),
    ]
    job = await harness.client.get(PYTORCH.resource, "job", namespace=harness.namespace)
    assert job["status"] == STATUS
    children = [await harness.client.get(of, "job-worker-0", namespace=harness.namespace) for of in (PODS, SERVICES)]
    events = (await harness.client.list(EVENTS, namespace=harness.namespace)).items
    assert _version(job) < min(map(_version, children))
    assert max(map(_version, children)) < min(map(_version, events))


async def test_children_of_a_new_job_are_created_first_and_its_status_by_the_next_reconcile(
    harness: ApplierHarness,
) -> None:
    calls = Calls()
    harness.applier = harness.applier_of(1, calls)
    failures = await harness.apply(
        status=STATUS,
        status_follows=True,
        transitions=(Transition.CREATED,),
        creates=(harness.pod("job-worker-0"),),
    )
    assert failures == ()

    assert await harness.pods() == ["job-worker-0"]
    assert "status" not in await harness.client.get(PYTORCH.resource, "job", namespace=harness.namespace)
    assert calls.seen == [f"pods of PyTorchJob with {len(STATUS)} fields"]
    assert await harness.events() == [("Normal", "SuccessfulCreatePod", "Created pod: job-worker-0")]


async def test_new_job_whose_children_are_rejected_gets_its_status_at_once(harness: ApplierHarness) -> None:
    """They may be rejected for hours, by a quota for example."""
    calls = Calls()
    harness.applier = harness.applier_of(1, calls)
    await harness.client.create(PODS, harness.pod("job-worker-0", ownerReferences=[]))
    (failure,) = await harness.apply(
        status=STATUS,
        status_follows=True,
        transitions=(Transition.CREATED,),
        creates=(harness.pod("job-worker-0"),),
    )
    assert "already exists" in failure
    job = await harness.client.get(PYTORCH.resource, "job", namespace=harness.namespace)
    assert job["status"] == STATUS
    assert calls.seen == ["True: True", "job of PyTorchJob: created"]


async def test_launch_is_counted_although_a_service_could_not_be_created(harness: ApplierHarness) -> None:
    """The next plan creates no pod, so it would not count the launch."""
    calls = Calls()
    harness.applier = harness.applier_of(1, calls)
    foreign = harness.service("job-worker-0")
    await harness.client.create(SERVICES, {**foreign, "metadata": {**foreign["metadata"], "ownerReferences": []}})
    (failure,) = await harness.apply(creates=(harness.pod("job-worker-0"), harness.service("job-worker-0")))
    assert "already exists" in failure
    assert calls.seen == ["pods of PyTorchJob with 0 fields"]


async def test_launch_is_not_counted_while_a_pod_is_missing(harness: ApplierHarness) -> None:
    calls = Calls()
    harness.applier = harness.applier_of(1, calls)
    await harness.client.create(PODS, harness.pod("job-worker-0", ownerReferences=[]))
    await harness.apply(creates=(harness.pod("job-worker-0"), harness.pod("job-worker-1")))
    assert calls.seen == []


async def test_events_about_children_of_a_new_job_are_recorded_although_its_status_cannot_be_written(
    harness: ApplierHarness,
) -> None:
    harness.applier = harness.applier_of(1)
    await harness.client.create(PODS, harness.pod("job-worker-1", ownerReferences=[]))
    await harness.client.patch(
        PYTORCH.resource, "job", {"metadata": {"labels": {"a": "b"}}}, namespace=harness.namespace
    )
    with pytest.raises(Conflict):
        await harness.apply(
            status=STATUS, status_follows=True, creates=(harness.pod("job-worker-0"), harness.pod("job-worker-1"))
        )
    assert [(type_, reason) for type_, reason, _ in await harness.events()] == [
        ("Normal", "SuccessfulCreatePod"),
        ("Warning", "ErrResourceExists"),
    ]


async def test_written_objects_are_cached_at_once(harness: ApplierHarness) -> None:
    await harness.apply(status=STATUS, creates=(harness.pod("job-worker-0"),))

    (known,) = harness.observed.pods
    assert known.name == "job-worker-0"
    job = harness.caches.jobs["PyTorchJob"].store.get(f"{harness.namespace}/job")
    assert job is not None
    assert job["status"] == STATUS


async def test_a_status_write_changes_nothing_but_the_status(harness: ApplierHarness) -> None:
    before = harness.job
    harness.job = harness.caches.jobs["PyTorchJob"].read(before)
    assert "managedFields" not in harness.job["metadata"]

    await harness.apply(status=STATUS)
    after = await harness.client.get(PYTORCH.resource, "job", namespace=harness.namespace)
    assert after["spec"] == before["spec"]
    assert before["metadata"]["managedFields"][0] in after["metadata"]["managedFields"]
    for changing in ("managedFields", "resourceVersion"):
        del before["metadata"][changing], after["metadata"][changing]
    assert after["metadata"] == before["metadata"]


async def test_status_that_is_pruned_completely_is_a_failure(harness: ApplierHarness) -> None:
    assert await harness.apply(status=STATUS) == ()
    harness.job = await harness.client.get(PYTORCH.resource, "job", namespace=harness.namespace)

    (failure,) = await harness.apply(status={**STATUS, "undeclared": 1}, creates=(harness.pod("job-worker-0"),))
    assert "CustomResourceDefinition" in failure
    assert await harness.pods() == ["job-worker-0"]


async def test_a_conflict_stops_the_plan_before_any_child_changes(harness: ApplierHarness) -> None:
    await harness.client.patch(
        PYTORCH.resource, "job", {"metadata": {"annotations": {"a": "b"}}}, namespace=harness.namespace
    )
    with pytest.raises(Conflict):
        await harness.apply(status=STATUS, creates=(harness.pod("job-worker-0"),))
    assert await harness.pods() == []
    assert await harness.events() == []


async def test_existing_child_counts_as_created(harness: ApplierHarness) -> None:
    await harness.client.create(PODS, harness.pod("job-worker-0"))

    assert await harness.apply(creates=(harness.pod("job-worker-0"),)) == ()
    (known,) = harness.observed.pods
    assert known.name == "job-worker-0"
    assert await harness.events() == []


async def test_child_without_job_label_is_reported(harness: ApplierHarness) -> None:
    await harness.client.create(PODS, harness.pod("job-worker-0", labels={}))

    (failure,) = await harness.apply(creates=(harness.pod("job-worker-0"),))
    assert failure == (
        'Error creating: pods "job-worker-0" already exists without the label training.kubeflow.org/job-name: '
        "restore it"
    )
    assert await harness.events() == [("Warning", "FailedCreatePod", failure)]
    assert harness.observed.pods == ()


async def test_object_without_owner_is_left_alone_and_reported(harness: ApplierHarness) -> None:
    foreign = await harness.client.create(PODS, harness.pod("job-worker-0", ownerReferences=[]))

    (failure,) = await harness.apply(creates=(harness.pod("job-worker-0"),))
    message = (
        'Resource "job-worker-0" of Kind "Pod" already exists and is not managed by PyTorchJob job: '
        "delete it, or give the job another name"
    )
    assert failure == message
    assert await harness.events() == [("Warning", "ErrResourceExists", message)]
    assert (await harness.client.get(PODS, "job-worker-0", namespace=harness.namespace))["metadata"] == foreign[
        "metadata"
    ]


async def test_child_of_a_former_job_of_the_same_name_is_retried_without_an_event(harness: ApplierHarness) -> None:
    former = {**controller_reference(harness.job), "uid": "a-former-uid"}
    leftover = harness.pod("job-worker-0", ownerReferences=[former], finalizers=["example.com/hold"])
    await harness.client.create(PODS, leftover)

    (failure,) = await harness.apply(creates=(harness.pod("job-worker-0"),))
    assert failure.endswith("it is being deleted, or belongs to a former PyTorchJob of this name")
    assert await harness.events() == []
    await harness.client.patch(PODS, "job-worker-0", {"metadata": {"finalizers": None}}, namespace=harness.namespace)


async def test_foreign_object_that_is_being_deleted_is_retried_without_an_event(harness: ApplierHarness) -> None:
    terminating = harness.pod("job-worker-0", ownerReferences=[], finalizers=["example.com/hold"])
    await harness.client.create(PODS, terminating)
    await harness.client.delete(PODS, "job-worker-0", namespace=harness.namespace, grace_period_seconds=0)

    (failure,) = await harness.apply(creates=(harness.pod("job-worker-0"),))
    assert failure.endswith("it is being deleted, or belongs to a former PyTorchJob of this name")
    assert await harness.events() == []
    await harness.client.patch(PODS, "job-worker-0", {"metadata": {"finalizers": None}}, namespace=harness.namespace)


async def test_no_event_is_recorded_in_a_terminating_namespace(harness: ApplierHarness) -> None:
    ending = f"{harness.namespace}-ending"
    held = {"name": ending, "finalizers": ["example.com/hold"]}
    await harness.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": held})
    await harness.client.delete(NAMESPACES, ending)

    (failure,) = await harness.apply(creates=(harness.pod("job-worker-0", namespace=ending),))
    assert "because it is being terminated" in failure
    assert await harness.events() == []
    await harness.client.patch(NAMESPACES, ending, {"metadata": {"finalizers": None}})


async def test_rejected_child_stops_further_creates(harness: ApplierHarness) -> None:
    harness.applier = harness.applier_of(1)
    broken = harness.pod("job-master-0")
    broken["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}

    with pytest.raises(InvalidChild, match=r"template: .*spec\.containers\[0\]\.resources\.requests: Invalid value"):
        await harness.apply(creates=(broken, harness.pod("job-worker-0")))
    assert await harness.pods() == []
    ((kind, reason, message),) = await harness.events()
    assert (kind, reason) == ("Warning", "FailedCreatePod")
    assert message.startswith('Error creating: Pod "job-master-0" is invalid: ')


async def test_delete_has_the_uid_as_precondition(harness: ApplierHarness) -> None:
    await harness.client.create(PODS, harness.pod("job-worker-0"))

    (failure,) = await harness.apply(deletes=(Delete(PODS, "job-worker-0", "another-uid"),))
    assert "uid" in failure.lower()
    assert await harness.pods() == ["job-worker-0"]
    assert await harness.events() == []


async def test_deletions_are_cached_at_once(harness: ApplierHarness) -> None:
    await harness.apply(creates=(harness.pod("job-worker-0"), harness.service("job-worker-0")))
    deletes = []
    for resource in (PODS, SERVICES):
        stored = await harness.client.get(resource, "job-worker-0", namespace=harness.namespace)
        deletes.append(Delete(resource, "job-worker-0", stored["metadata"]["uid"]))

    assert await harness.apply(deletes=tuple(deletes)) == ()
    observed = harness.observed
    assert observed.services == ()
    assert all(pod.metadata.terminating for pod in observed.pods)
    assert ("Normal", "SuccessfulDeletePod", "Deleted pod: job-worker-0") in await harness.events()
    assert ("Normal", "SuccessfulDeleteService", "Deleted service: job-worker-0") in await harness.events()


async def test_delete_of_a_deleted_object_records_no_event(harness: ApplierHarness) -> None:
    assert await harness.apply(deletes=(Delete(PODS, "job-worker-0", "gone"),)) == ()
    assert await harness.events() == []


async def test_expired_job_is_deleted(harness: ApplierHarness) -> None:
    assert await harness.apply(delete_job=True) == ()
    with pytest.raises(NotFound):
        await harness.client.get(PYTORCH.resource, "job", namespace=harness.namespace)
    assert await harness.events() == [("Normal", "SuccessfulDeletePod", "Deleted job: job")]


async def test_a_failed_patch_or_delete_stops_no_create(harness: ApplierHarness) -> None:
    missing = Patch(PODS, "job-worker-7", "uid", {"metadata": {"annotations": {"a": "1"}}})
    failures = await harness.apply(patches=(missing,), creates=(harness.pod("job-worker-0"),))
    assert len(failures) == 1
    assert await harness.pods() == ["job-worker-0"]


async def test_every_failed_write_records_an_event(harness: ApplierHarness, unused_tcp_port: int) -> None:
    config = ClusterConfig(server=f"http://127.0.0.1:{unused_tcp_port}")
    async with CountingClient(config, retries=False) as unreachable:
        recorded: list[JobEvent] = []
        events = EventBuffer(lambda _, event, __: recorded.append(event))
        applier = Applier(ReconcileContext(unreachable, harness.caches, events), parallel_writes=8)
        plan = Plan(deletes=(Delete(PODS, "a", "uid"), Delete(SERVICES, "b", "uid")), delete_job=True)
        failures = await applier.apply(PYTORCH, harness.job, plan)

    assert [event.reason for event in recorded] == ["FailedDeletePod", "FailedDeleteService", "FailedDeletePod"]
    assert {event.type for event in recorded} == {"Warning"}
    assert [failure.reason for failure in failures] == [event.message for event in recorded]
    assert all(f"Error deleting: cannot connect to {config.server}" in failure.reason for failure in failures)


async def test_retry_after_of_the_api_server_is_honoured() -> None:
    status = {"kind": "Status", "code": 429, "message": "slow down"}
    async with scripted_server() as server, Client(server.config) as client:
        server.will(answer(status, status=429, headers={"Retry-After": "45"}))  # longer than the client would wait
        context = ReconcileContext(client, Caches(KINDS), EventBuffer(lambda _, __, ___: None))
        applier = Applier(context, parallel_writes=1)
        plan = Plan(deletes=(Delete(PODS, "a", "uid"),))
        assert await applier.apply(PYTORCH, JobBuilder().master().raw(), plan) == (
            Retry("Error deleting: slow down", seconds=45),
        )


async def test_status_of_a_new_job_is_not_written_while_the_api_server_asks_for_a_pause() -> None:
    status = {"kind": "Status", "code": 429, "message": "slow down"}
    async with scripted_server() as server, Client(server.config) as client:
        server.will(answer(status, status=429, headers={"Retry-After": "45"}))
        context = ReconcileContext(client, Caches(KINDS), EventBuffer(lambda _, __, ___: None))
        applier = Applier(context, parallel_writes=1)
        job = JobBuilder().master()
        plan = decide(job)
        assert plan.status_follows
        failures = await applier.apply(PYTORCH, job.raw(), plan)
        assert failures == (Retry("Error creating: slow down", seconds=45),)
    assert [seen.method for seen in server.seen] == ["POST"]


async def test_concurrent_writes_of_all_plans_together_are_bounded(harness: ApplierHarness) -> None:
    harness.applier = harness.applier_of(3)
    plans = [[harness.pod(f"job-worker-{plan}{number}") for number in range(6)] for plan in range(3)]

    await asyncio.gather(*(harness.apply(creates=tuple(pods)) for pods in plans))
    assert len(await harness.pods()) == 18
    senders_of_events = 4
    assert 3 <= harness.client.most_in_flight <= 3 + senders_of_events


async def test_a_standing_event_is_recorded_once(harness: ApplierHarness) -> None:
    warning = JobEvent("Warning", "ErrImagePull", "Error pod job-worker-0 container pytorch waiting message: no image")
    for _ in range(3):
        await harness.apply(standing_events=(warning,))
    await harness.recorder.close()
    (event,) = (await harness.client.list(EVENTS, namespace=harness.namespace)).items
    assert (event["reason"], event["count"]) == ("ErrImagePull", 1)


async def test_child_of_an_earlier_operator_gets_the_current_labels(harness: ApplierHarness) -> None:
    earlier = {"job-name": "job", "replica-type": "worker", "replica-index": "0", "group-name": "kubeflow.org"}
    await harness.client.create(PODS, harness.pod("job-worker-0", labels=earlier))
    assert await harness.apply(creates=(harness.pod("job-worker-0"),)) == ()

    (known,) = harness.observed.pods
    assert known.metadata.labels == {
        **earlier,
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/job-name": "job",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "0",
    }


async def test_patch_has_the_uid_as_precondition(harness: ApplierHarness) -> None:
    pod = await harness.client.create(PODS, harness.pod("job-worker-0"))
    body = {"metadata": {"labels": {"seen": "yes"}}}
    (failure,) = await harness.apply(patches=(Patch(PODS, "job-worker-0", "another-uid", body),))
    assert "metadata.uid" in failure
    (gone,) = await harness.apply(patches=(Patch(PODS, "job-worker-9", pod["metadata"]["uid"], body),))
    assert "not found" in gone

    assert await harness.apply(patches=(Patch(PODS, "job-worker-0", pod["metadata"]["uid"], body),)) == ()
    (known,) = harness.observed.pods
    assert known.metadata.labels["seen"] == "yes"
    assert await harness.events() == []


async def test_rejected_patch_records_an_event(harness: ApplierHarness) -> None:
    pod = await harness.client.create(PODS, harness.pod("job-worker-0"))
    nonsense = Patch(PODS, "job-worker-0", pod["metadata"]["uid"], {"metadata": {"labels": {"not a key": ""}}})
    (failure,) = await harness.apply(patches=(nonsense,))
    assert failure.startswith("Error updating job-worker-0: ")
    ((kind, reason, _),) = await harness.events()
    assert (kind, reason) == ("Warning", "FailedUpdatePod")


async def test_forced_delete_does_not_wait_for_the_node(harness: ApplierHarness) -> None:
    bound = harness.pod("job-worker-0")
    bound["spec"]["nodeName"] = "gone"
    pod = await harness.client.create(PODS, bound)
    await harness.apply(deletes=(Delete(PODS, "job-worker-0", pod["metadata"]["uid"], force=True),))
    assert await harness.pods() == []
    assert harness.observed.pods == ()


async def test_transitions_are_counted_once_their_status_is_written(harness: ApplierHarness) -> None:
    calls = Calls()
    applier = harness.applier_of(1, calls)
    pod = harness.pod("job-worker-0")
    plan = Plan(status=STATUS, transitions=(Transition.CREATED,), creates=(creation(pod),))
    await applier.apply(PYTORCH, harness.job, plan)
    with pytest.raises(Conflict):
        await applier.apply(
            PYTORCH, harness.job, Plan(status={}, transitions=(Transition.FAILED,), creates=(creation(pod),))
        )
    assert calls.seen == ["True: True", "job of PyTorchJob: created", f"pods of PyTorchJob with {len(STATUS)} fields"]


def _version(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])
