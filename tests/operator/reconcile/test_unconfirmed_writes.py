"""Status writes whose response is lost: if the write was carried out, its transitions and events count all the same."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from tests.support.harness.job_harness import submit
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.objects.jobs import JobBuilder
from trainwright.api.kinds import KINDS, PYTORCH, Kind
from trainwright.engine import JobEvent, Plan, Transition
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import Conflict, Unreachable
from trainwright.kube.client.requests import Request, Response
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.kube.controller.outcome import Retry
from trainwright.objects import Object
from trainwright.operator.reconcile.applier import Applier
from trainwright.operator.reconcile.caches import Caches
from trainwright.operator.reconcile.event_buffer import EventBuffer
from trainwright.operator.reconcile.observer import Observer
from trainwright.operator.reconcile.reconcile_context import ReconcileContext
from trainwright.operator.reconcile.status_writer import UnconfirmedWrite

EVENT = JobEvent("Normal", "PyTorchJobCreated", "PyTorchJob digits is created.")
STATUS: Object = {
    "conditions": [{"type": "Created", "status": "True", "reason": "PyTorchJobCreated", "message": "created"}],
    "restarts": {"Worker": 1},
}


class LossyClient(Client):
    """Writes are carried out, but their responses are lost, or `instead` is returned. The next `failing_reads` reads
    fail."""

    sends = 1
    instead: Response | None = None
    failing_reads = 0

    async def send(self, request: Request) -> Response:
        if request.method == "GET":
            if self.failing_reads:
                self.failing_reads -= 1
                raise Unreachable("no response")
            return await super().send(request)
        for _ in range(self.sends):
            response = await super().send(request)
        if self.sends > 1:
            return response  # as when the client itself has retried
        if self.instead is not None:
            return self.instead
        raise Unreachable("the response is incomplete")


@dataclass
class ObservedApplier(Observer):
    """An applier whose client loses responses; keeps the events and transitions that it reports."""

    client: LossyClient
    job: Object
    counted: list[Transition] = field(default_factory=list)
    recorded: list[JobEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        events = EventBuffer(lambda _, event, __: self.recorded.append(event))
        self.caches = Caches(KINDS)
        self.applier = Applier(ReconcileContext(self.client, self.caches, events, self), parallel_writes=4)

    def transition(self, kind: Kind, job: Object, step: Transition) -> None:
        self.counted.append(step)

    @property
    def key(self) -> ObjectKey:
        return ObjectKey.of(self.job)

    async def apply(self) -> tuple[Retry, ...]:
        plan = Plan(status=STATUS, transitions=(Transition.CREATED,), events=(EVENT,))
        return await self.applier.apply(PYTORCH, self.job, plan)


@pytest.fixture
async def observed(client: Client, control_plane: ControlPlane, real_namespace: str) -> AsyncIterator[ObservedApplier]:
    job = await submit(client, JobBuilder(namespace=real_namespace).master())
    async with LossyClient(control_plane.config) as lossy:
        yield ObservedApplier(lossy, job)


@pytest.mark.apiserver
async def test_write_that_was_carried_out_counts_although_its_response_is_lost(observed: ObservedApplier) -> None:
    assert await observed.apply() == ()
    assert (observed.counted, observed.recorded) == ([Transition.CREATED], [EVENT])
    known = observed.caches.jobs["PyTorchJob"].store.get(observed.key.namespaced_name)
    assert known
    assert known["status"] == STATUS


@pytest.mark.apiserver
async def test_conflict_with_the_own_first_try_is_no_failure(observed: ObservedApplier) -> None:
    observed.client.sends = 2
    assert await observed.apply() == ()
    assert (observed.counted, observed.recorded) == ([Transition.CREATED], [EVENT])


@pytest.mark.apiserver
async def test_first_try_may_have_been_carried_out_although_the_last_one_fails(observed: ObservedApplier) -> None:
    observed.client.instead = Response(429, {}, b"too many requests")
    assert await observed.apply() == ()
    assert (observed.counted, observed.recorded) == ([Transition.CREATED], [EVENT])


@pytest.mark.apiserver
async def test_conflict_with_another_client_is_raised(
    observed: ObservedApplier, client: Client, real_namespace: str
) -> None:
    await client.patch(PYTORCH.resource, "digits", {"metadata": {"labels": {"a": "b"}}}, namespace=real_namespace)
    observed.client.sends = 2
    with pytest.raises(Conflict):
        await observed.apply()
    assert (observed.counted, observed.recorded) == ([], [])


@pytest.mark.apiserver
async def test_write_stays_unconfirmed_until_the_job_can_be_read(observed: ObservedApplier) -> None:
    observed.client.failing_reads = 2
    with pytest.raises(Unreachable, match="incomplete"):
        await observed.apply()
    assert (observed.counted, observed.recorded) == ([], [])

    with pytest.raises(Unreachable, match="no response"):
        await observed.applier.status_writer.confirm(PYTORCH, observed.key)
    await observed.applier.status_writer.confirm(PYTORCH, observed.key)
    assert (observed.counted, observed.recorded) == ([Transition.CREATED], [EVENT])
    await observed.applier.status_writer.confirm(PYTORCH, observed.key)
    assert (observed.counted, observed.recorded) == ([Transition.CREATED], [EVENT])


@pytest.mark.apiserver
async def test_write_to_a_deleted_job_does_not_count(
    observed: ObservedApplier, client: Client, real_namespace: str
) -> None:
    observed.client.failing_reads = 1
    with pytest.raises(Unreachable):
        await observed.apply()
    await client.delete(PYTORCH.resource, "digits", namespace=real_namespace)
    await observed.applier.status_writer.confirm(PYTORCH, observed.key)
    assert (observed.counted, observed.recorded) == ([], [])


def job(version: str, status: Object | None, uid: str = "u") -> Object:
    return {"metadata": {"uid": uid, "resourceVersion": version}, **({"status": status} if status else {})}


def test_write_is_stored_only_if_the_same_job_has_the_same_status() -> None:
    write = UnconfirmedWrite(job("1", {"startTime": "then"}), STATUS, Plan())
    assert write.is_stored(job("2", STATUS))
    assert not write.is_stored(write.job)
    assert not write.is_stored(job("2", None))
    assert not write.is_stored(job("2", {"startTime": "then"}))
    assert not write.is_stored(job("2", {**STATUS, "startTime": "then"}))
    assert not write.is_stored(job("2", STATUS, uid="another"))


def test_write_is_stored_although_the_crd_has_pruned_our_fields() -> None:
    pruned = {"conditions": STATUS["conditions"]}
    assert UnconfirmedWrite(job("1", None), STATUS, Plan()).is_stored(job("2", pruned))
    assert not UnconfirmedWrite(job("2", pruned), STATUS, Plan()).is_stored(job("2", pruned))
