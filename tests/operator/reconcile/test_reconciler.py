"""Reconciles jobs on a real API server: the four outcomes. No watch runs, so the caches have only what a test adds."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.harness.job_harness import submit
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.objects.jobs import JobBuilder, template
from tests.support.servers.scripted_server import answer, scripted_server
from trainwright.api.kinds import KINDS, PYTORCH
from trainwright.engine import EMBEDDED, JobEvent, Settings
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.kube.controller.outcome import Done, Outcome, RequeueAfter, Retry, Terminal
from trainwright.objects import Object
from trainwright.objects.resources import NODES, PODS, SERVICES, Resource
from trainwright.operator.reconcile.applier import Applier
from trainwright.operator.reconcile.caches import Caches
from trainwright.operator.reconcile.event_buffer import EventBuffer
from trainwright.operator.reconcile.reconcile_context import ReconcileContext
from trainwright.operator.reconcile.reconciler import Reconciler
from trainwright.operator.reconcile.status_write_pacer import INTERVAL, StatusWritePacer

pytestmark = pytest.mark.apiserver

START = datetime(2026, 11, 15, 4, 0, tzinfo=UTC)


class Bench:
    """A reconciler with the submitted jobs in its caches."""

    def __init__(self, client: Client, settings: Settings = Settings()) -> None:  # noqa: B008 (a frozen value)
        self.client = client
        self.caches = Caches(KINDS, cluster_resources=[NODES])
        self.now = START
        self.events: list[JobEvent] = []
        self.seconds = 0.0
        self.pacer = StatusWritePacer(burst=1, clock=lambda: self.seconds)
        events = EventBuffer(lambda _, event, __: self.events.append(event))
        self._reconciler = Reconciler(
            kinds=KINDS,
            settings=settings,
            caches=self.caches,
            applier=Applier(ReconcileContext(client, self.caches, events), parallel_writes=8),
            clock=lambda: self.now,
            pacer=self.pacer,
        )

    async def submit(self, builder: JobBuilder) -> Object:
        job = await submit(self.client, builder)
        self.caches.jobs[PYTORCH.name].store.remember(job)
        return job

    async def reconcile(self, job: Object) -> Outcome:
        metadata = job["metadata"]
        return await self._reconciler.reconcile(ObjectKey(PYTORCH.name, metadata["namespace"], metadata["name"]))

    async def reconcile_until_settled(self, job: Object) -> Outcome:
        while (outcome := await self.reconcile(job)) == RequeueAfter(0):
            pass
        return outcome

    async def start_pod(self, name: str, namespace: str) -> None:
        running = {"status": {"phase": "Running"}}
        self.caches.pods.remember(
            await self.client.patch(PODS, name, running, namespace=namespace, subresource="status")
        )

    async def counts(self, name: str, namespace: str) -> dict[str, dict[str, int]]:
        """The numbers of pods in the stored status."""
        job = await self.client.get(PYTORCH.resource, name, namespace=namespace)
        return {
            role: {state: number for state, number in one.items() if state != "selector"}
            for role, one in job["status"]["replicaStatuses"].items()
        }


async def test_deleted_or_terminating_job_gets_no_children(client: Client, real_namespace: str) -> None:
    bench = Bench(client)
    unknown = {"metadata": {"namespace": real_namespace, "name": "unknown"}}
    assert await bench.reconcile(unknown) == Done()

    terminating = (
        JobBuilder("terminating", namespace=real_namespace).metadata(deletionTimestamp="2026-11-15T04:00:00Z").raw()
    )
    bench.caches.jobs[PYTORCH.name].store.remember(terminating)
    assert await bench.reconcile(terminating) == Done()
    assert (await client.list(PODS, namespace=real_namespace)).items == []


async def test_standing_events_of_a_deleted_job_are_forgotten(client: Client, real_namespace: str) -> None:
    bench = Bench(client)
    builder = JobBuilder("wrong", namespace=real_namespace).master()
    job = await bench.submit(builder.annotation("trainwright.dev/restart-scope", "galaxy"))
    await bench.reconcile_until_settled(job)
    await bench.reconcile(job)
    assert [event.reason for event in bench.events if event.standing] == ["InvalidAnnotation"]

    jobs = bench.caches.jobs[PYTORCH.name].store
    stored = await client.get(PYTORCH.resource, "wrong", namespace=real_namespace)
    version = stored["metadata"]["resourceVersion"]
    jobs.replace([], version)
    assert await bench.reconcile(job) == Done()
    jobs.replace([stored], version)
    await bench.reconcile(job)
    assert [event.reason for event in bench.events if event.standing] == ["InvalidAnnotation"] * 2


async def test_no_child_is_created_twice_without_a_watch(client: Client, real_namespace: str) -> None:
    bench = Bench(client)
    job = await bench.submit(JobBuilder("blind", namespace=real_namespace).master().workers(3))
    assert await bench.reconcile_until_settled(job) == Done()

    created = (await client.list(PODS, namespace=real_namespace)).items
    assert [pod["metadata"]["name"] for pod in created] == [
        "blind-master-0",
        "blind-worker-0",
        "blind-worker-1",
        "blind-worker-2",
    ]
    assert len((await client.list(SERVICES, namespace=real_namespace)).items) == 4
    assert await bench.reconcile(job) == Done()
    assert len(bench.caches.pods.store.all()) == 4


async def test_job_with_a_deadline_is_requeued_for_it(client: Client, real_namespace: str) -> None:
    bench = Bench(client)
    builder = JobBuilder("due", namespace=real_namespace).master().run_policy(activeDeadlineSeconds=60)
    job = await bench.submit(builder)
    assert await bench.reconcile_until_settled(job) == RequeueAfter(60)

    bench.now += timedelta(seconds=45)
    assert await bench.reconcile(job) == RequeueAfter(15)

    bench.now += timedelta(seconds=15)
    await bench.reconcile_until_settled(job)
    failed = await client.get(PYTORCH.resource, "due", namespace=real_namespace)
    assert failed["status"]["conditions"][-1]["message"] == (
        "Job due has failed because it was active longer than specified deadline"
    )


async def test_numbers_of_pods_wait_while_many_jobs_change_and_conditions_do_not(
    client: Client, real_namespace: str
) -> None:
    bench = Bench(client)
    builder = JobBuilder("job", namespace=real_namespace).master().workers(2).run_policy(activeDeadlineSeconds=60)
    job = await bench.submit(builder)
    await bench.reconcile_until_settled(job)
    bench.pacer.delay(ObjectKey(PYTORCH.name, "team", "other"))

    await bench.start_pod("job-worker-0", real_namespace)
    assert await bench.reconcile(job) == RequeueAfter(INTERVAL)
    assert await bench.counts("job", real_namespace) == {"Master": {}, "Worker": {}}

    await bench.start_pod("job-master-0", real_namespace)
    assert await bench.reconcile_until_settled(job) == RequeueAfter(60), "Running is written at once"
    assert await bench.counts("job", real_namespace) == {"Master": {"active": 1}, "Worker": {"active": 1}}

    await bench.start_pod("job-worker-1", real_namespace)
    assert await bench.reconcile(job) == RequeueAfter(2 * INTERVAL)
    bench.seconds += 2 * INTERVAL
    assert await bench.reconcile_until_settled(job) == RequeueAfter(60)
    assert await bench.counts("job", real_namespace) == {"Master": {"active": 1}, "Worker": {"active": 2}}


async def test_numbers_of_a_deleted_job_get_a_new_time(client: Client, real_namespace: str) -> None:
    bench = Bench(client)
    job = await bench.submit(JobBuilder("job", namespace=real_namespace).master().workers(1))
    await bench.reconcile_until_settled(job)
    bench.pacer.delay(ObjectKey(PYTORCH.name, "team", "other"))
    await bench.start_pod("job-worker-0", real_namespace)
    assert await bench.reconcile(job) == RequeueAfter(INTERVAL)

    version = (await client.get(PYTORCH.resource, "job", namespace=real_namespace))["metadata"]["resourceVersion"]
    bench.caches.jobs[PYTORCH.name].store.replace([], version)
    assert await bench.reconcile(job) == Done()

    assert bench.pacer.delay(ObjectKey(PYTORCH.name, real_namespace, "job")) == 2 * INTERVAL


async def test_numbers_of_pods_that_could_not_be_written_are_written_with_the_next_try(
    control_plane: ControlPlane, real_namespace: str
) -> None:
    async with ContestedClient(control_plane.config) as client:
        client.contested = False
        bench = Bench(client)
        job = await bench.submit(JobBuilder("job", namespace=real_namespace).master().workers(1))
        await bench.reconcile_until_settled(job)
        await bench.start_pod("job-worker-0", real_namespace)
        client.contested = True
        assert await bench.reconcile(job) == RequeueAfter(1.0)

        client.contested = False
        assert await bench.reconcile_until_settled(job) == Done()

        assert await bench.counts("job", real_namespace) == {"Master": {}, "Worker": {"active": 1}}


async def test_conflict_is_resolved_when_the_watch_has_caught_up(client: Client, real_namespace: str) -> None:
    bench = Bench(client)
    job = await bench.submit(JobBuilder("busy", namespace=real_namespace).master())
    assert await bench.reconcile(job) == RequeueAfter(0), "the pods of a new job do not wait for its status"
    newer = await client.patch(PYTORCH.resource, "busy", {"metadata": {"labels": {"a": "b"}}}, namespace=real_namespace)

    assert await bench.reconcile(job) == RequeueAfter(1.0)
    assert "status" not in await client.get(PYTORCH.resource, "busy", namespace=real_namespace)

    bench.caches.jobs[PYTORCH.name].store.remember(newer)
    assert await bench.reconcile_until_settled(job) == Done()


class ContestedClient(Client):
    """Another client changes the job before each status write."""

    contested = True

    async def replace(self, resource: Resource, obj: Object, **options: Any) -> Object:
        if self.contested:
            metadata = obj["metadata"]
            label = {"metadata": {"labels": {"version": metadata["resourceVersion"]}}}
            await self.patch(resource, metadata["name"], label, namespace=metadata["namespace"])
        return await super().replace(resource, obj, **options)


async def test_conflicts_in_a_row_back_off_and_are_logged_once(
    control_plane: ControlPlane, real_namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with ContestedClient(control_plane.config) as client:
        bench = Bench(client)
        job = await bench.submit(JobBuilder("contested", namespace=real_namespace).master())
        await bench.reconcile(job)

        outcomes = [await bench.reconcile(job) for _ in range(8)]

        assert outcomes == [RequeueAfter(seconds) for seconds in (1, 2, 4, 8, 16, 32, 60, 60)]
        (warning,) = caplog.messages
        assert warning.startswith(f"PyTorchJob/{real_namespace}/contested: 5 conflicts in a row")

        client.contested = False
        assert await bench.reconcile_until_settled(job) == Done()


async def test_invalid_job_fails_terminally_and_reports_it_once(client: Client, real_namespace: str) -> None:
    bench = Bench(client)
    job = await bench.submit(JobBuilder("bad", namespace=real_namespace).workers(1, pod=template(name="other")))

    assert isinstance(await bench.reconcile_until_settled(job), Terminal)
    refused = await client.get(PYTORCH.resource, "bad", namespace=real_namespace)
    assert refused["status"]["conditions"][-1]["type"] == "Failed"

    outcome = await bench.reconcile(job)
    assert isinstance(outcome, Terminal)
    assert "spec.pytorchReplicaSpecs[Worker].template.spec.containers" in outcome.reason
    again = await client.get(PYTORCH.resource, "bad", namespace=real_namespace)
    assert again["metadata"]["resourceVersion"] == refused["metadata"]["resourceVersion"]
    assert [event.reason for event in bench.events] == ["PyTorchJobFailedValidation"]


async def test_unreachable_api_server_is_retried(unused_tcp_port: int) -> None:
    config = ClusterConfig(server=f"http://127.0.0.1:{unused_tcp_port}")
    async with Client(config, retries=False) as unreachable:
        bench = Bench(unreachable)
        job = JobBuilder("lost").master().raw()
        bench.caches.jobs[PYTORCH.name].store.remember(job)

        outcome = await bench.reconcile(job)
    assert isinstance(outcome, Retry)
    assert config.server in outcome.reason


async def test_retry_after_of_the_api_server_is_honoured() -> None:
    status = {"kind": "Status", "code": 429, "message": "slow down"}
    async with scripted_server() as server, Client(server.config) as client:
        server.will(*[answer(status, status=429, headers={"Retry-After": "45"})] * 3)
        bench = Bench(client)
        job = JobBuilder("patient").master().suspend().raw()
        bench.caches.jobs[PYTORCH.name].store.remember(job)
        assert await bench.reconcile(job) == Retry("failed to write the status: slow down", seconds=45)
        # The result of the status write has to be known first.
        assert await bench.reconcile(job) == Retry("failed to read back the status: slow down", seconds=45)
    assert [seen.method for seen in server.seen] == ["PUT", "GET", "GET"]


@pytest.mark.parametrize("settings", [Settings(), EMBEDDED], ids=["any cluster", "one machine"])
async def test_one_reconcile_creates_all_pods_of_a_new_job(
    client: Client, real_namespace: str, settings: Settings
) -> None:
    bench = Bench(client, settings)
    bench.now = datetime.now(UTC)
    job = await bench.submit(JobBuilder("fresh", namespace=real_namespace).master().workers(2))

    await bench.reconcile(job)

    pods = (await client.list(PODS, namespace=real_namespace)).items
    assert sorted(pod["metadata"]["name"] for pod in pods) == ["fresh-master-0", "fresh-worker-0", "fresh-worker-1"]
