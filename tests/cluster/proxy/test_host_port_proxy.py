"""Host ports of an embedded cluster without a node: the pods are servers of the test."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.proxy.test_service_proxy import answer, create_node, free_port, start_server
from tests.support.cluster.addresses import OWN_ADDRESS as POD
from tests.support.cluster.embedded_cluster import embedded_cluster
from tests.support.waiting import eventually
from trainwright.kube.client.async_client import Client
from trainwright.objects.resources import EVENTS, PODS

LISTEN = """
import socket, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
time.sleep(60)
"""


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with embedded_cluster(tmp_path / "data", with_node=False) as cluster, Client(cluster.config) as client:
        await create_node(client, "n", "True")
        yield client


async def run_pod(client: Client, name: str, port: int, **fields: Any) -> None:
    ports = [{"containerPort": port, **fields}]
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i", "ports": ports}]}
    metadata = {"name": name, "namespace": "default"}
    await client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    await set_status(client, name, phase="Running", podIP=POD, podIPs=[{"ip": POD}])


async def set_status(client: Client, name: str, **status: Any) -> None:
    await client.patch(PODS, name, {"status": status}, namespace="default", subresource="status")


async def wait_for_answer(port: int, expected: str) -> None:
    async def found() -> bool:
        return await answer("127.0.0.1", port) == expected

    await eventually(found, bool)


async def wait_for_event(client: Client, reason: str, text: str) -> None:
    async def found() -> bool:
        events = (await client.list(EVENTS, namespace="default")).items
        return any(event["reason"] == reason and text in event["message"] for event in events)

    await eventually(found, bool)


async def test_a_host_port_is_forwarded_until_the_pod_has_ended(client: Client) -> None:
    server, target = await start_server("pod", POD)
    port = free_port()
    assert await answer("127.0.0.1", port) == "refused"

    await run_pod(client, "web", target, hostPort=port)
    await wait_for_answer(port, "pod")
    await set_status(client, "web", phase="Succeeded")
    await wait_for_answer(port, "refused")
    server.close()


async def test_a_deleted_pod_is_not_listened_for(client: Client) -> None:
    server, target = await start_server("pod", POD)
    port = free_port()
    await run_pod(client, "web", target, hostPort=port)
    await wait_for_answer(port, "pod")

    await client.delete(PODS, "web", namespace="default", grace_period_seconds=0)
    await wait_for_answer(port, "refused")
    server.close()


async def test_the_holder_of_a_host_port_is_named(client: Client) -> None:
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", LISTEN, stdout=asyncio.subprocess.PIPE)
    assert other.stdout is not None
    port = int(await other.stdout.readline())

    await run_pod(client, "web", 80, hostPort=port)
    await wait_for_event(client, "PortNotForwarded", f"cannot listen on 127.0.0.1:{port}: process {other.pid} (python")
    other.kill()
    await other.wait()


async def test_udp_is_a_warning(client: Client) -> None:
    await run_pod(client, "dns", 53, hostPort=free_port(), protocol="UDP")
    await wait_for_event(client, "ProtocolNotForwarded", "/UDP is not forwarded on this cluster")
