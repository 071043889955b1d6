"""What the operator tells its observer, and what it does before it may write, on the real API server."""

import asyncio
from collections import Counter

import pytest

from tests.support.harness.job_harness import submit
from tests.support.harness.running_operator import running_operator, settled
from tests.support.kubernetes.fake_kubelet import running_kubelet
from tests.support.objects.jobs import JobBuilder
from tests.support.waiting import eventually
from trainwright.api.kinds import KINDS, MULTIKUEUE, PYTORCH, Kind
from trainwright.engine import Transition
from trainwright.kube.client.async_client import Client
from trainwright.kube.controller.outcome import Outcome
from trainwright.objects import Object
from trainwright.objects.resources import PODS
from trainwright.operator import JobController
from trainwright.operator.reconcile.observer import Observer

pytestmark = pytest.mark.apiserver


class Tally(Observer):
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def transition(self, kind: Kind, job: Object, step: Transition) -> None:
        self.counts[step] += 1

    def pods_created(self, kind: Kind, job: Object) -> None:
        self.counts["pods created"] += 1

    def job_deleted(self, kind: Kind, job: Object) -> None:
        self.counts["deleted"] += 1

    def reconciled(self, kind: Kind, outcome: Outcome, seconds: float) -> None:
        assert 0 <= seconds < 20
        self.counts["reconciled"] += 1

    async def of(self, name: str) -> int:
        return self.counts[name]


async def test_a_life_is_told_once_and_never_again_by_the_next_operator(client: Client, real_namespace: str) -> None:
    first, second = Tally(), Tally()
    async with running_kubelet(client, real_namespace) as kubelet:
        async with running_operator(client, namespace=real_namespace, observer=first) as operator:
            await submit(client, JobBuilder("job", namespace=real_namespace).master())
            await eventually(lambda: running(client, real_namespace), bool)
            await kubelet.finish("job-master-0")
            await eventually(lambda: first.of(Transition.SUCCESSFUL), bool)
            await settled(operator)
        async with running_operator(client, namespace=real_namespace, observer=second) as operator:
            await eventually(lambda: second.of("reconciled"), bool)
            await settled(operator)
            await client.delete(PYTORCH.resource, "job", namespace=real_namespace)
            await eventually(lambda: second.of("deleted"), bool)
    counted = {name: count for name, count in first.counts.items() if name != "reconciled"}
    assert counted == {Transition.CREATED: 1, "pods created": 1, Transition.SUCCESSFUL: 1}
    assert {name for name in second.counts if name != "reconciled"} == {"deleted"}
    assert second.counts["deleted"] == 1


async def test_a_job_that_somebody_else_manages_is_not_counted(client: Client, real_namespace: str) -> None:
    tally = Tally()
    async with running_operator(client, namespace=real_namespace, observer=tally):
        theirs = JobBuilder("theirs", namespace=real_namespace).master().run_policy(managedBy=MULTIKUEUE)
        await submit(client, theirs)
        await submit(client, JobBuilder("ours", namespace=real_namespace).master())
        await eventually(lambda: tally.of(Transition.CREATED), bool)
        for name in ("theirs", "ours"):
            await client.delete(PYTORCH.resource, name, namespace=real_namespace)
        await eventually(lambda: tally.of("deleted"), bool)
    assert (tally.counts[Transition.CREATED], tally.counts["deleted"]) == (1, 1)


async def test_nothing_is_written_until_we_lead_and_then_at_once(client: Client, real_namespace: str) -> None:
    lead = asyncio.Event()

    async def acquire() -> None:
        await lead.wait()

    operator = JobController(client, kinds=KINDS, namespace=real_namespace, lead=acquire)
    async with asyncio.TaskGroup() as group:
        group.create_task(operator.run())
        await operator.synced.wait()
        await submit(client, JobBuilder("job", namespace=real_namespace).master())

        async def seen() -> Object | None:
            return operator.caches.jobs["PyTorchJob"].store.get(f"{real_namespace}/job")

        await eventually(seen, bool)
        assert not operator.ready.is_set()
        job = await client.get(PYTORCH.resource, "job", namespace=real_namespace)
        assert "status" not in job
        lead.set()
        await eventually(lambda: pods(client, real_namespace), lambda names: names == ["job-master-0"])
        operator.stop()


async def test_a_standby_does_not_line_up_what_comes_and_goes(client: Client, real_namespace: str) -> None:
    operator = JobController(client, kinds=KINDS, namespace=real_namespace, lead=never)

    async def known() -> int:
        return len(operator.caches.jobs["PyTorchJob"].store)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(operator.run())
        await operator.synced.wait()
        await submit(client, JobBuilder("job", namespace=real_namespace).master())
        await eventually(known, lambda count: count == 1)
        await client.delete(PYTORCH.resource, "job", namespace=real_namespace)
        await eventually(known, lambda count: count == 0)
        assert len(operator.queue) == 0
        operator.stop()


async def test_a_standby_stops_at_once(client: Client, real_namespace: str) -> None:
    operator = JobController(client, kinds=KINDS, namespace=real_namespace, lead=never)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(operator.run())
        await operator.synced.wait()
        operator.stop()
    assert not operator.ready.is_set()


async def never() -> None:
    await asyncio.Event().wait()


async def pods(client: Client, namespace: str) -> list[str]:
    return [pod["metadata"]["name"] for pod in (await client.list(PODS, namespace=namespace)).items]


async def running(client: Client, namespace: str) -> bool:
    job = await client.get(PYTORCH.resource, "job", namespace=namespace)
    return "Running" in {condition["type"] for condition in job.get("status", {}).get("conditions", ())}
