"""The answer to a status write is lost: if it was carried out, what it made true is counted and told all the same."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from tests.support.cluster.controlplane import ControlPlane
from tests.support.harness.job_harness import submit
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
from trainwright.operator.reconcile.unconfirmed_writes import carried_out

NEWS = JobEvent("Normal", "PyTorchJobCreated", "PyTorchJob digits is created.")
STATUS: Object = {
    "conditions": [{"type": "Created", "status": "True", "reason": "PyTorchJobCreated", "message": "created"}],
    "restarts": {"Worker": 1},
}


class LossyClient(Client):
    """Writes are carried out, but their answers are lost, or `instead` comes. So many reads as `blind` says fail."""

    sends = 1
    instead: Response | None = None
    blind = 0

    async def send(self, request: Request) -> Response:
        if request.method == "GET":
            if self.blind:
                self.blind -= 1
                raise Unreachable("no answer")
            return await super().send(request)
        for _ in range(self.sends):
            answer = await super().send(request)
        if self.sends > 1:
            return answer  # as when the client itself has asked again
        if self.instead is not None:
            return self.instead
        raise Unreachable("the response is incomplete")


@dataclass
class Witness(Observer):
    client: LossyClient
    job: Object
    counted: list[Transition] = field(default_factory=list)
    told: list[JobEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        events = EventBuffer(lambda _, event, __: self.told.append(event))
        self.caches = Caches(KINDS)
        self.applier = Applier(self.client, self.caches, events, parallel_writes=4, observer=self)

    def transition(self, kind: Kind, job: Object, step: Transition) -> None:
        self.counted.append(step)

    @property
    def key(self) -> ObjectKey:
        return ObjectKey.of(self.job)

    async def apply(self) -> tuple[Retry, ...]:
        plan = Plan(status=STATUS, transitions=(Transition.CREATED,), events=(NEWS,))
        return await self.applier.apply(PYTORCH, self.job, plan)


@pytest.fixture
async def witness(client: Client, control_plane: ControlPlane, real_namespace: str) -> AsyncIterator[Witness]:
    job = await submit(client, JobBuilder(namespace=real_namespace).master())
    async with LossyClient(control_plane.config) as lossy:
        yield Witness(lossy, job)


@pytest.mark.apiserver
async def test_a_write_that_was_carried_out_counts_though_its_answer_is_lost(witness: Witness) -> None:
    assert await witness.apply() == ()
    assert (witness.counted, witness.told) == ([Transition.CREATED], [NEWS])
    known = witness.caches.jobs["PyTorchJob"].store.get(witness.key.namespaced_name)
    assert known
    assert known["status"] == STATUS


@pytest.mark.apiserver
async def test_a_conflict_with_our_own_write_is_none(witness: Witness) -> None:
    witness.client.sends = 2
    assert await witness.apply() == ()
    assert (witness.counted, witness.told) == ([Transition.CREATED], [NEWS])


@pytest.mark.apiserver
async def test_whatever_the_last_try_says_an_earlier_one_may_have_been_carried_out(witness: Witness) -> None:
    witness.client.instead = Response(429, {}, b"too many requests")
    assert await witness.apply() == ()
    assert (witness.counted, witness.told) == ([Transition.CREATED], [NEWS])


@pytest.mark.apiserver
async def test_a_conflict_with_somebody_else_stays_one(witness: Witness, client: Client, real_namespace: str) -> None:
    await client.patch(PYTORCH.resource, "digits", {"metadata": {"labels": {"a": "b"}}}, namespace=real_namespace)
    witness.client.sends = 2
    with pytest.raises(Conflict):
        await witness.apply()
    assert (witness.counted, witness.told) == ([], [])


@pytest.mark.apiserver
async def test_while_the_server_cannot_be_asked_the_doubt_stays(witness: Witness) -> None:
    witness.client.blind = 2
    with pytest.raises(Unreachable, match="incomplete"):
        await witness.apply()
    assert (witness.counted, witness.told) == ([], [])

    with pytest.raises(Unreachable, match="no answer"):
        await witness.applier.statuses.clear_doubt(PYTORCH, witness.key)
    await witness.applier.statuses.clear_doubt(PYTORCH, witness.key)
    assert (witness.counted, witness.told) == ([Transition.CREATED], [NEWS])
    await witness.applier.statuses.clear_doubt(PYTORCH, witness.key)
    assert (witness.counted, witness.told) == ([Transition.CREATED], [NEWS])


@pytest.mark.apiserver
async def test_a_job_that_is_gone_leaves_no_doubt(witness: Witness, client: Client, real_namespace: str) -> None:
    witness.client.blind = 1
    with pytest.raises(Unreachable):
        await witness.apply()
    await client.delete(PYTORCH.resource, "digits", namespace=real_namespace)
    await witness.applier.statuses.clear_doubt(PYTORCH, witness.key)
    assert (witness.counted, witness.told) == ([], [])


def job(version: str, status: Object | None, uid: str = "u") -> Object:
    return {"metadata": {"uid": uid, "resourceVersion": version}, **({"status": status} if status else {})}


def test_only_the_very_status_on_the_very_job_shows_that_it_was_carried_out() -> None:
    before = job("1", {"startTime": "then"})
    assert carried_out(before, STATUS, job("2", STATUS))
    assert not carried_out(before, STATUS, before)
    assert not carried_out(before, STATUS, job("2", None))
    assert not carried_out(before, STATUS, job("2", {"startTime": "then"}))
    assert not carried_out(before, STATUS, job("2", {**STATUS, "startTime": "then"}))
    assert not carried_out(before, STATUS, job("2", STATUS, uid="another"))


def test_a_server_that_keeps_no_field_of_ours_has_carried_it_out_too() -> None:
    kept = {"conditions": STATUS["conditions"]}
    assert carried_out(job("1", None), STATUS, job("2", kept))
    assert not carried_out(job("2", kept), STATUS, job("2", kept))
