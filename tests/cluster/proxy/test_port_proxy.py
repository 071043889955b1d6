"""Services and host ports of an embedded cluster without a node: endpoints and pods are servers of the test."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.addresses import OWN_ADDRESS as POD
from tests.support.cluster.embedded_cluster import embedded_cluster
from tests.support.waiting import eventually
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object
from trainwright.objects.kinds.nodes import OWN_PORTS
from trainwright.objects.resources import ENDPOINT_SLICES, ENDPOINTS, EVENTS, NODES, PODS, SERVICES

LISTEN = """
import socket, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
time.sleep(60)
"""


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with embedded_cluster(tmp_path / "data", with_node=False) as cluster, Client(cluster.config) as client:
        yield client


async def new_service(client: Client, name: str, port: int, **spec: Any) -> Object:
    obj = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"}}
    created = await client.create(SERVICES, obj | {"spec": {"ports": [{"port": port}], **spec}})
    return dict(created["spec"])


async def set_endpoints(client: Client, name: str, address: str, port: int, *, node: str = "") -> None:
    where = {"nodeName": node} if node else {}
    subsets = [{"addresses": [{"ip": address, **where}], "ports": [{"port": port}]}]
    metadata = {"name": name, "namespace": "default"}
    await client.create(ENDPOINTS, {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets})


async def answer(address: str, port: int) -> str:
    try:
        reader, writer = await asyncio.open_connection(address, port)
    except ConnectionRefusedError:
        return "refused"
    writer.write_eof()
    try:
        return (await reader.read()).decode()
    except ConnectionResetError:
        return "reset"
    finally:
        writer.close()


async def start_server(text: str, address: str, port: int = 0) -> tuple[asyncio.Server, int]:
    async def handler(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text.encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handler, address, port)
    return server, server.sockets[0].getsockname()[1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_a_service_forwards_while_it_has_ready_endpoints(client: Client) -> None:
    server, target = await start_server("pod", POD)
    spec = await new_service(client, "web", 8123, type="NodePort")
    assert await answer(spec["clusterIP"], 8123) == "refused"

    await set_endpoints(client, "web", POD, target)

    async def forwarded() -> bool:
        node_port = spec["ports"][0]["nodePort"]
        return [await answer(spec["clusterIP"], 8123), await answer("127.0.0.1", node_port)] == ["pod", "pod"]

    await eventually(forwarded, bool)
    await client.delete(ENDPOINTS, "web", namespace="default")

    async def refused() -> bool:
        return await answer(spec["clusterIP"], 8123) == "refused"

    await eventually(refused, bool)
    server.close()


async def test_a_deleted_service_is_not_listened_on(client: Client) -> None:
    server, target = await start_server("pod", POD)
    spec = await new_service(client, "web", 8124)
    await set_endpoints(client, "web", POD, target)

    async def forwarded() -> bool:
        return await answer(spec["clusterIP"], 8124) == "pod"

    await eventually(forwarded, bool)
    await client.delete(SERVICES, "web", namespace="default")

    async def refused() -> bool:
        return await answer(spec["clusterIP"], 8124) == "refused"

    await eventually(refused, bool)
    server.close()


async def create_node(client: Client, name: str, own_ports: str) -> None:
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    status = {"conditions": [{"type": OWN_PORTS, "status": own_ports}]}
    await client.patch(NODES, name, {"status": status}, subresource="status")


async def test_a_pod_with_the_ports_of_the_machine_may_listen_on_all_addresses(client: Client) -> None:
    """The proxy lets it listen first; the pod then answers at the address of the Service itself."""
    await create_node(client, "n", "False")
    port = free_port()
    spec = await new_service(client, "web", port)
    await set_endpoints(client, "web", POD, port, node="n")
    slices = f"{SLICE_LABEL}=web"

    async def sliced() -> bool:
        return bool((await client.list(ENDPOINT_SLICES, namespace="default", label_selector=slices)).items)

    await eventually(sliced, bool)
    assert await answer(spec["clusterIP"], port) == "refused"
    server, _ = await start_server("pod", "0.0.0.0", port)  # noqa: S104
    assert await answer(spec["clusterIP"], port) == "pod"
    server.close()


@pytest.mark.parametrize("own_ports", ["True", "False"])
async def test_a_pod_that_listens_on_its_own_address_is_forwarded_to(client: Client, own_ports: str) -> None:
    await create_node(client, "n", own_ports)
    server, port = await start_server("pod", POD)
    spec = await new_service(client, "web", port)
    await set_endpoints(client, "web", POD, port, node="n")

    async def forwarded() -> bool:
        return await answer(spec["clusterIP"], port) == "pod"

    await eventually(forwarded, bool)
    server.close()


async def test_the_port_of_a_pod_with_its_own_ports_is_listened_on_before_the_pod_listens(client: Client) -> None:
    await create_node(client, "n", "True")
    port = free_port()
    spec = await new_service(client, "web", port)
    await set_endpoints(client, "web", POD, port, node="n")

    async def reset() -> bool:
        return await answer(spec["clusterIP"], port) == "reset"

    await eventually(reset, bool)


async def test_a_port_that_another_process_has_is_an_event(client: Client) -> None:
    other, port = await start_server("other", "0.0.0.0")  # noqa: S104 - in the process of the cluster
    server, target = await start_server("pod", POD)
    await new_service(client, "web", port)
    await set_endpoints(client, "web", POD, target)

    async def told() -> bool:
        events = (await client.list(EVENTS, namespace="default")).items
        return any(
            event["reason"] == "PortNotForwarded"
            and "another Service or pod of this cluster listens on this port" in event["message"]
            for event in events
        )

    await eventually(told, bool)
    other.close()
    server.close()


async def test_the_service_kubernetes_reaches_the_api_server(client: Client) -> None:
    async def found() -> Object | None:
        services = (await client.list(SERVICES, namespace="default")).items
        return next((one["spec"] for one in services if one["metadata"]["name"] == "kubernetes"), None)

    spec = await eventually(found, bool)
    assert spec is not None
    address, port = spec["clusterIP"], spec["ports"][0]["port"]

    async def connected() -> bool:
        try:
            _, writer = await asyncio.open_connection(address, port)
        except ConnectionRefusedError:
            return False
        writer.close()
        return True

    await eventually(connected, bool)


SLICE_LABEL = "kubernetes.io/service-name"


# Host ports


async def run_pod(client: Client, name: str, port: int, **fields: Any) -> None:
    await create_node(client, "n", "True")
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
