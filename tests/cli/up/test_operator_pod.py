"""The mirror pod of the operator on an embedded cluster."""

import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.support.background import in_background
from tests.support.cluster.embedded_cluster import embedded_cluster
from tests.support.waiting import eventually
from trainwright.cli.logging import console_formatter
from trainwright.cli.up.operator_pod import NAME, NAMESPACE, OperatorLog, OperatorPod, create_operator_objects
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import NotFound
from trainwright.objects import Object
from trainwright.objects.kinds.pod_subresources import LogOptions
from trainwright.objects.resources import NAMESPACES, PODS, SERVICE_ACCOUNTS


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with embedded_cluster(tmp_path / "data", with_node=False) as cluster, Client(cluster.config) as client:
        await create_operator_objects(client)
        async with in_background(OperatorPod(client).run()):
            yield client


async def running(client: Client, *, other_than: str = "") -> Object:
    async def read() -> Object:
        try:
            return await client.get(PODS, NAME, namespace=NAMESPACE)
        except NotFound:
            return {"metadata": {"uid": other_than}, "status": {}}

    def done(pod: Object) -> bool:
        return bool(pod["metadata"]["uid"] != other_than and pod["status"].get("phase") == "Running")

    return await eventually(read, done)


async def test_namespaces_and_account_exist_from_the_start(client: Client) -> None:
    names = {one["metadata"]["name"] for one in (await client.list(NAMESPACES)).items}
    assert names >= {"kubeflow", "mpi-operator"}
    await client.get(SERVICE_ACCOUNTS, "pytorch-operator", namespace="kubeflow")
    await create_operator_objects(client)  # at the next start


async def test_pod_runs_and_is_found_by_the_labels_of_old_and_new_operators(client: Client) -> None:
    pod = await running(client)
    assert pod["status"]["containerStatuses"][0]["ready"] is True
    for selector in ("name=tf-job-operator", "control-plane=kubeflow-training-operator"):
        found = (await client.list(PODS, namespace=NAMESPACE, label_selector=selector)).items
        assert [one["metadata"]["name"] for one in found] == [NAME]


async def test_deleted_pod_comes_back(client: Client) -> None:
    first = await running(client)
    await client.delete(PODS, NAME, namespace=NAMESPACE)
    again = await running(client, other_than=first["metadata"]["uid"])
    assert again["status"]["phase"] == "Running"


class TestLog:
    def record(self, log: OperatorLog, message: str, *, created: float = 0.0) -> None:
        record = logging.LogRecord("trainwright.operator", logging.INFO, "", 0, message, None, None)
        record.created = created
        log.handle(record)

    async def read(self, log: OperatorLog, **options: object) -> list[str]:
        chunks = log.read({}, "training-operator", LogOptions(**options))  # type: ignore[arg-type]
        return [chunk.decode() async for chunk in chunks]

    async def test_lines_are_those_of_the_operator(self) -> None:
        log = OperatorLog(console_formatter())
        for number in range(3):
            self.record(log, f"line {number}", created=number)
        assert (await self.read(log))[0] == "1970-01-01T00:00:00.000Z INFO trainwright.operator: line 0\n"
        assert len(await self.read(log, tail_lines=2)) == 2
        assert await self.read(log, tail_lines=0) == []
        assert (await self.read(log, timestamps=True, tail_lines=1))[0].startswith("1970-01-01T00:00:02.000000Z ")
        assert "".join(await self.read(log, limit_bytes=4)) == "1970"

    async def test_following_shows_new_lines(self) -> None:
        log = OperatorLog(console_formatter())
        self.record(log, "first")
        async with aclosing(log.read({}, "", LogOptions(follow=True))) as lines:
            assert b"first" in await anext(lines)
            self.record(log, "second")
            assert b"second" in await anext(lines)
