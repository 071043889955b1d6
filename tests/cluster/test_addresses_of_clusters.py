"""The addresses of pods and Services on whole clusters: no two clusters of this machine share any."""

import asyncio
import ipaddress
import os
import shutil
import socket
import ssl
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support.cluster.addresses import locked_addresses
from tests.support.cluster.embedded_cluster import embedded_cluster, up_command
from tests.support.cluster.supervised_pods import NOBODY, end_supervisors, users
from tests.support.waiting import eventually
from trainwright.cluster.address_range import AddressRange, parse_range
from trainwright.cluster.data_directory_registry import unregister
from trainwright.cluster.datadir import DataDir
from trainwright.cluster.embedded_cluster import EmbeddedCluster
from trainwright.cluster.facade import running_pods
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object
from trainwright.objects.node_annotations import HOST_IMAGE
from trainwright.objects.resources import NODES, PODS, SERVICES

ROOT = Path(__file__).parents[2]


@pytest.fixture
def data(tmp_path: Path) -> Iterator[DataDir]:
    """Pods that are left are killed."""
    data = DataDir(tmp_path)
    yield data
    end_supervisors(data.node)
    unregister(data)


def addresses_of(data: DataDir) -> AddressRange:
    found = data.remembered_addresses()
    assert found is not None
    return found


async def new_service(client: Client, name: str) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return await client.create(SERVICES, {"metadata": metadata, "spec": {"ports": [{"port": 80}]}})


async def address_of_service(client: Client, name: str) -> str:
    found = await eventually(
        lambda: client.list(SERVICES), lambda found: any(one["metadata"]["name"] == name for one in found.items)
    )
    return next(str(one["spec"]["clusterIP"]) for one in found.items if one["metadata"]["name"] == name)


async def new_pod(client: Client, **spec: Any) -> Object:
    """The running pod `p`."""
    main = {"name": "main", "image": HOST_IMAGE, "command": ["sh", "-c", "echo $KUBERNETES_SERVICE_HOST; sleep 600"]}
    metadata = {"name": "p", "namespace": "default"}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [main], **spec}
    await client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return await running_pod(client)


async def running_pod(client: Client, *, besides: str = "") -> Object:
    """`besides` is an address that it no longer has."""

    def is_running(pod: Object) -> bool:
        status = pod.get("status", {})
        statuses = status.get("containerStatuses") or [{"state": {}}]
        return "running" in statuses[0]["state"] and status["podIP"] != besides

    return await eventually(lambda: client.get(PODS, "p", namespace="default"), is_running)


async def first_line(client: Client) -> str:
    async def read() -> str:
        return (await client.raw("GET", f"{PODS.path('default', 'p')}/log")).decode()

    return (await eventually(read, lambda text: "\n" in text)).splitlines()[0]


def is_in(address: str, network: ipaddress.IPv4Network) -> bool:
    return ipaddress.ip_address(address) in network


async def trusted_at(cluster: EmbeddedCluster, address: str) -> None:
    """A client in a pod connects to the API server by this address of its Service."""
    context = ssl.create_default_context(cadata=(cluster.config.ca_data or b"").decode())
    port = int(cluster.config.server.rpartition(":")[2])

    async def connect() -> bool:
        try:
            _, writer = await asyncio.open_connection(address, port, ssl=context, server_hostname=address)
        except ConnectionRefusedError:
            return False
        writer.close()
        return True

    assert await eventually(connect, bool)


@contextmanager
def squatted(addresses: AddressRange) -> Iterator[None]:
    """A program that heeds no marks has locked the range."""
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(f"\0trainwright-addresses-127.{addresses.number}")
        yield


async def test_two_clusters_have_different_addresses_for_the_same_pod(tmp_path: Path) -> None:
    found = []
    async with embedded_cluster(tmp_path / "one") as one, embedded_cluster(tmp_path / "two") as two:
        for cluster, name in ((one, "one"), (two, "two")):
            addresses = addresses_of(DataDir(tmp_path / name))
            async with Client(cluster.config) as client:
                pod = await new_pod(client)
                service = await new_service(client, "s")
                node = await client.get(NODES, "local")
                assert await address_of_service(client, "kubernetes") == str(addresses.services[1])
            assert is_in(pod["status"]["podIP"], addresses.pods)
            assert is_in(service["spec"]["clusterIP"], addresses.services)
            assert (node["spec"]["podCIDR"], node["spec"]["podCIDRs"]) == (str(addresses.pods), [str(addresses.pods)])
            found.append(addresses)
    assert found[0] != found[1]


async def test_restart_keeps_the_addresses(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, with_node=False) as cluster, Client(cluster.config) as client:
        before = await new_service(client, "s")
        addresses = addresses_of(DataDir(tmp_path))
    async with embedded_cluster(tmp_path, with_node=False) as cluster, Client(cluster.config) as client:
        assert addresses_of(DataDir(tmp_path)) == addresses
        assert await client.get(SERVICES, "s", namespace="default") == before
        assert not any("uses the addresses" in note for note in cluster.notes)


@pytest.mark.parametrize("level", ["overlay", "plain"])
async def test_pods_of_a_killed_cluster_keep_its_addresses_from_others(tmp_path: Path, level: str) -> None:
    (tmp_path / "killed").mkdir()
    with up_command(tmp_path / "killed", "--sandbox", level) as up:
        async with Client(up.config) as client:
            before = await new_pod(client)
        addresses = addresses_of(up.data)
        assert up.record.addresses == str(addresses)
        up.kill()

    other = DataDir(tmp_path / "other")
    other.create()
    other.remember_addresses(addresses)
    async with embedded_cluster(other.path, with_node=False) as cluster:
        assert addresses_of(other) != addresses
        assert any(note.startswith(f"another cluster uses the addresses {addresses}: ") for note in cluster.notes)

    with up_command(tmp_path / "killed", "--sandbox", level) as up:
        assert addresses_of(up.data) == addresses
        async with Client(up.config) as client:
            after = await running_pod(client)
            assert after["status"]["podIP"] == before["status"]["podIP"]
            assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]


async def test_clusters_of_two_users_have_different_addresses() -> None:
    user = users()[-1]
    packages = f"{ROOT / 'src'}:{sysconfig.get_path('purelib')}"
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin") if user.prefix else user.python
    assert python is not None
    with TemporaryDirectory(prefix="trainwright-ordinary-") as name, locked_addresses() as lock:
        directory = Path(name)  # those of pytest are closed to others
        data = DataDir(directory / "data")
        data.create()
        data.remember_addresses(lock.addresses)
        for path in (directory, data.path, *data.path.rglob("*")):
            user.own(path)
        environment = {"PYTHONPATH": packages} if user.prefix else {}
        with up_command(directory, python=Path(python), prefix=user.prefix, environment=environment) as up:
            assert data.path.stat().st_uid == (NOBODY if user.prefix else os.getuid())
            assert parse_range(up.record.addresses) not in {None, lock.addresses}
            assert f"another cluster uses the addresses {lock.addresses}" in up.log.read_text()


async def test_services_get_addresses_of_a_new_range(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, with_node=False) as cluster, Client(cluster.config) as client:
        authority = cluster.config.ca_data
        before = await new_service(client, "s")
        await trusted_at(cluster, await address_of_service(client, "kubernetes"))

    with squatted(addresses_of(DataDir(tmp_path))):
        async with embedded_cluster(tmp_path, with_node=False) as cluster, Client(cluster.config) as client:
            services = addresses_of(DataDir(tmp_path)).services
            after = await client.get(SERVICES, "s", namespace="default")
            address = after["spec"]["clusterIP"]
            assert is_in(address, services)
            assert after["spec"] == before["spec"] | {"clusterIP": address, "clusterIPs": [address]}
            assert after["metadata"]["uid"] == before["metadata"]["uid"]
            assert await address_of_service(client, "kubernetes") == str(services[1])
            await trusted_at(cluster, str(services[1]))
            assert cluster.config.ca_data == authority


async def test_running_pods_keep_their_address_and_those_of_services(data: DataDir) -> None:
    """Until a start finds none of them: then pods that are started again get addresses of the new range too."""
    cluster = EmbeddedCluster(data.path)
    await cluster.start()
    async with Client(cluster.config) as client:
        old = await new_pod(client)
        before = await address_of_service(client, "kubernetes")
        assert await first_line(client) == before
    await cluster.stop()

    with squatted(addresses_of(data)):
        cluster = EmbeddedCluster(data.path)
        await cluster.start()
        async with Client(cluster.config) as client:
            assert not is_in(before, addresses_of(data).services)
            pod = await running_pod(client)
            assert pod["status"]["podIP"] == old["status"]["podIP"]
            assert pod["status"]["containerStatuses"] == old["status"]["containerStatuses"]
            assert await address_of_service(client, "kubernetes") == before
            await trusted_at(cluster, before)
        await cluster.stop()
        down = running_pods(data)
        down.stop()
        assert down.wait(60)

        async with embedded_cluster(data.path) as cluster, Client(cluster.config) as client:
            addresses = addresses_of(data)
            pod = await running_pod(client, besides=old["status"]["podIP"])
            assert is_in(pod["status"]["podIP"], addresses.pods)
            assert await address_of_service(client, "kubernetes") == str(addresses.services[1])
            assert await first_line(client) == str(addresses.services[1])


def test_without_a_free_range_the_start_is_refused_with_the_reason(tmp_path: Path) -> None:
    """In a network namespace of its own, because other clusters need theirs."""
    program = """
import os, socket, sys
taken = [socket.socket(socket.AF_UNIX) for _ in range(1, 255)]
for number, one in enumerate(taken, start=1):
    one.bind(f"\\0trainwright-addresses-127.{number}")
    one.set_inheritable(True)
os.execv(sys.executable, [sys.executable, "-m", "trainwright", "up", "--data-dir", sys.argv[1]])
"""
    found = subprocess.run(
        ["unshare", "--map-root-user", "--net", sys.executable, "-c", program, str(tmp_path / "data")],
        env={**os.environ, "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "kubeconfig")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1
    assert "all ranges of addresses (127.1.0.0/16 to 127.254.0.0/16) are in use" in found.stderr
    assert "trainwright down" in found.stderr
    assert "Traceback" not in found.stderr
