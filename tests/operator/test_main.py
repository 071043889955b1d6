"""The operator process on the real API server: endpoints, leader election, failures."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.harness.job_harness import submit
from tests.support.kubernetes.controlplane import ControlPlane, free_ports
from tests.support.kubernetes.fake_kubelet import running_kubelet
from tests.support.kubernetes.service_accounts import account, rule
from tests.support.objects.jobs import JobBuilder
from tests.support.objects.manifests import webhook_configuration
from tests.support.waiting import eventually
from trainwright.api.kinds import KINDS, PYTORCH
from trainwright.engine import Settings
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.kubeconfig import ClusterConfig, ConfigError
from trainwright.objects.resources import LEASES, PODS, VALIDATING_WEBHOOK_CONFIGURATIONS
from trainwright.operator import JobController, main
from trainwright.operator.main import Application, connection_limit
from trainwright.operator.options import LeaderElectionOptions, OperatorError, OperatorOptions, WebhookOptions
from trainwright.operator.serving.http_server import Address
from trainwright.operator.setup.capabilities import Capabilities, prepare

pytestmark = pytest.mark.apiserver

LEASE = "lock"


class Process:
    """An application whose endpoints have a port of their own."""

    def __init__(self, plane: ControlPlane, namespace: str, *, elect: bool = False, **options: Any) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        election = LeaderElectionOptions(
            name=LEASE, namespace=namespace, lease_seconds=600, renew_seconds=300, retry_seconds=1
        )
        self.options = OperatorOptions(
            namespace=namespace,
            metrics_bind_address=str(Address("127.0.0.1", port)),
            health_probe_bind_address=str(Address("127.0.0.1", port)),
            leader_election=election if elect else None,
            **options,
        )
        self.config = plane.config
        self.application = Application(plane.config, KINDS, self.options)
        self.stop = asyncio.Event()
        self.prunes_status: frozenset[str] = frozenset()

    async def run(self) -> None:
        async with self.application.serve():
            capabilities = await prepare(self.config, KINDS, self.options)
            await self.application.run(replace(capabilities, prunes_status=self.prunes_status), self.stop)

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
            return answer.status, await answer.text()

    async def ready(self, text: str = "readyz check passed") -> None:
        await eventually(self.readiness, lambda seen: seen[0] == 200 and text in seen[1])

    async def readiness(self) -> tuple[int, str]:
        try:
            return await self.get("/readyz?verbose")
        except aiohttp.ClientError as error:
            return 0, str(error)

    async def metric(self, name: str) -> float:
        """The sum of a metric over all labels."""
        _, text = await self.get("/metrics")
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, flags=re.MULTILINE))


@asynccontextmanager
async def running(process: Process) -> AsyncIterator[Process]:
    task = asyncio.create_task(process.run())
    try:
        yield process
    finally:
        process.stop.set()
        async with asyncio.timeout(10):  # what upstream's Deployment allows
            await task


async def test_health_is_served_before_the_caches_are_synced(control_plane: ControlPlane, real_namespace: str) -> None:
    process = Process(control_plane, real_namespace)
    async with process.application.serve():
        assert await process.get("/healthz") == (200, "ok")
        status, text = await process.get("/readyz")
        assert status == 500
        assert "[-]caches failed: caches of https://127.0.0.1" in text


async def test_a_jobs_life_is_counted_once_over_two_processes(
    control_plane: ControlPlane, client: Client, real_namespace: str
) -> None:
    async with running_kubelet(client, real_namespace) as kubelet:
        async with running(Process(control_plane, real_namespace)) as first:
            await first.ready()
            await submit(client, JobBuilder("job", namespace=real_namespace).master())
            await eventually(lambda: first.metric("trainwright_job_running_seconds_count"), bool)
            await kubelet.finish("job-master-0")
            await eventually(lambda: first.metric("training_operator_jobs_successful_total"), bool)
            assert await first.metric("training_operator_jobs_created_total") == 1
            assert await first.metric("trainwright_job_pods_created_seconds_count") == 1
            assert await first.metric("rest_client_requests_total") > 5
            assert await first.metric("workqueue_adds_total") > 0
            assert await first.metric("workqueue_work_duration_seconds_count") > 0
        async with running(Process(control_plane, real_namespace)) as second:
            await second.ready()
            await eventually(lambda: second.metric("controller_runtime_reconcile_total"), bool)
            await client.delete(PYTORCH.resource, "job", namespace=real_namespace)
            await eventually(lambda: second.metric("training_operator_jobs_deleted_total"), bool)
            for step in ("created", "successful", "failed", "restarted"):
                assert await second.metric(f"training_operator_jobs_{step}_total") == 0


async def test_a_ready_standby_takes_over_as_soon_as_the_leader_has_stopped(
    control_plane: ControlPlane, client: Client, real_namespace: str
) -> None:
    async with running(Process(control_plane, real_namespace, elect=True)) as leader:
        await leader.ready("[+]leader-election ok: leading")
        async with running(Process(control_plane, real_namespace, elect=True)) as standby:
            await standby.ready("[+]leader-election ok: standby, ")
            assert await leader.metric("leader_election_master_status") == 1
            assert await standby.metric("leader_election_master_status") == 0
            await submit(client, JobBuilder("one", namespace=real_namespace).master())
            await eventually(lambda: pods(client, real_namespace), lambda names: names == ["one-master-0"])
            assert await standby.metric("controller_runtime_reconcile_total") == 0

            leader.stop.set()
            await standby.ready("[+]leader-election ok: leading")
            await submit(client, JobBuilder("two", namespace=real_namespace).master())
            await eventually(lambda: pods(client, real_namespace), lambda names: "two-master-0" in names)
            # A new job gets its status after its pods.
            created = await eventually(lambda: standby.metric("training_operator_jobs_created_total"), bool)
            assert created == 1
    assert await lease_holder(client, real_namespace) == ""


async def test_a_leader_that_loses_the_lease_ends_with_an_error(
    control_plane: ControlPlane, client: Client, real_namespace: str
) -> None:
    process = Process(control_plane, real_namespace, elect=True)
    task = asyncio.create_task(process.run())
    await process.ready("leading")
    lease = await client.get(LEASES, LEASE, namespace=real_namespace)
    taken = {**lease["spec"], "holderIdentity": "thief", "renewTime": "2026-11-15T00:00:00.000000Z"}
    await client.patch(LEASES, LEASE, {"spec": taken}, namespace=real_namespace)
    with pytest.raises(OperatorError, match="lost the lease"):
        await task


async def test_a_port_in_use_is_an_error_that_names_the_flag(control_plane: ControlPlane, real_namespace: str) -> None:
    one, other = Process(control_plane, real_namespace), Process(control_plane, real_namespace)
    other.application = Application(control_plane.config, KINDS, one.options)
    async with one.application.serve():
        with pytest.raises(OperatorError, match=r"--metrics-bind-address: cannot listen on 127\.0\.0\.1:"):
            async with other.application.serve():
                pass


async def test_a_crd_that_prunes_status_is_a_detail_of_readiness(
    control_plane: ControlPlane, real_namespace: str
) -> None:
    process = Process(control_plane, real_namespace)
    process.prunes_status = frozenset({"PyTorchJob"})
    async with running(process):
        await process.ready("[+]status-fields ok: the CustomResourceDefinition of pytorchjobs.kubeflow.org does not")
        assert await process.get("/readyz") == (200, "ok")


async def test_a_missing_permission_is_a_reason_not_to_be_ready(
    control_plane: ControlPlane, client: Client, real_namespace: str
) -> None:
    only_jobs = [rule("kubeflow.org", "*", "list watch")]
    config = await account(client, real_namespace, "restricted", only_jobs)
    process = Process(replace(control_plane, config=config), real_namespace)
    async with running(process):
        # The jobs are a reason too until they are listed.
        await eventually(
            process.readiness,
            lambda seen: "pods: pods is forbidden" in check(seen, "caches") and "jobs" not in check(seen, "caches"),
        )
        seen = await eventually(process.readiness, lambda seen: "not allowed" in check(seen, "permissions"))
    assert seen[0] == 500
    assert 'cannot list resource "pods"' in check(seen, "caches")
    permissions = check(seen, "permissions")
    assert permissions.startswith("[+]permissions ok: ")
    assert f"not allowed to create pods in namespace {real_namespace}, which is needed to create, adopt" in permissions
    assert f"not allowed to update pytorchjobs.kubeflow.org/status in namespace {real_namespace}" in permissions
    assert "not allowed to list pytorchjobs" not in permissions


def check(readiness: tuple[int, str], name: str) -> str:
    """The line of one check; empty if the process does not answer yet."""
    return next((line for line in readiness[1].splitlines() if line[3:].startswith(name)), "")


async def test_a_webhook_port_in_use_ends_the_process(
    control_plane: ControlPlane, client: Client, real_namespace: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        names = WebhookOptions(port=taken.getsockname()[1], configuration=f"validator.{real_namespace}")
        await client.create(VALIDATING_WEBHOOK_CONFIGURATIONS, webhook_configuration(names.configuration))
        process = Process(control_plane, real_namespace, webhooks=names)
        with pytest.raises(OperatorError, match="--webhook-server-port: cannot listen on :"):
            await process.run()
    await client.delete(VALIDATING_WEBHOOK_CONFIGURATIONS, names.configuration)


async def test_a_leader_whose_webhooks_fail_ends_its_writes_and_then_releases_the_lease(
    control_plane: ControlPlane, client: Client, real_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    holders: list[str] = []

    class LastWrite(JobController):
        async def run(self) -> None:
            await super().run()
            holders.append(await lease_holder(client, real_namespace))

    monkeypatch.setattr(main, "JobController", LastWrite)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        names = WebhookOptions(port=taken.getsockname()[1], configuration=f"validator.{real_namespace}")
        process = Process(control_plane, real_namespace, elect=True, webhooks=names)
        task = asyncio.create_task(process.run())
        await process.ready("leading")

        await client.create(VALIDATING_WEBHOOK_CONFIGURATIONS, webhook_configuration(names.configuration))
        with pytest.raises(OperatorError, match="--webhook-server-port: cannot listen on :"):
            await task

    assert len(holders) == 1
    assert holders[0]
    assert await lease_holder(client, real_namespace) == ""
    await client.delete(VALIDATING_WEBHOOK_CONFIGURATIONS, names.configuration)


async def test_a_leader_whose_operator_fails_releases_the_lease(
    control_plane: ControlPlane, client: Client, real_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(JobController):
        async def run(self) -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(super().run())
                await self.ready.wait()
                raise RuntimeError("a bug")

    monkeypatch.setattr(main, "JobController", Failing)
    with pytest.raises(ExceptionGroup) as failed:
        await Process(control_plane, real_namespace, elect=True).run()

    assert failed.group_contains(RuntimeError, match="a bug")
    assert await lease_holder(client, real_namespace) == ""


async def lease_holder(client: Client, namespace: str) -> str:
    return str((await client.get(LEASES, LEASE, namespace=namespace))["spec"]["holderIdentity"])


async def pods(client: Client, namespace: str) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in (await client.list(PODS, namespace=namespace)).items)


async def test_unreadable_credentials_end_the_process_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "token").touch()
    config = ClusterConfig(server="http://127.0.0.1:1", token_file=tmp_path / "token")
    with pytest.raises(ConfigError, match=r"^the token file \S+ is empty$"):
        await Application(config, KINDS, OperatorOptions()).run(Capabilities(Settings(), ()), asyncio.Event())


def test_there_are_connections_for_all_parallel_writes_and_the_watches() -> None:
    assert connection_limit(OperatorOptions(parallel_writes=300)) > 300 + len(KINDS) + 10
