import asyncio
import re
import socket
import ssl
import stat
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.embedded_cluster import embedded_cluster
from tests.support.kubernetes.controlplane import free_ports
from tests.support.waiting import eventually
from trainwright.cluster.apiserver.http.server import ApiServer
from trainwright.cluster.apiserver.storage.store import Change, ObjectStore
from trainwright.cluster.controllers.namespace_controller import NamespaceController
from trainwright.cluster.datadir import AlreadyRunningError, ClusterError, DataDir, DataDirError, RememberedPort
from trainwright.cluster.embedded_cluster import DEFAULT_PORT, EmbeddedCluster
from trainwright.cluster.node_settings import NodeSettings
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import Invalid, NotFound, Unauthorized
from trainwright.kube.client.kubeconfig import load_kubeconfig
from trainwright.objects.resources import (
    CONFIG_MAPS,
    CRON_JOBS,
    INGRESSES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    REPLICATION_CONTROLLERS,
    SERVICE_ACCOUNTS,
    STORAGE_CLASSES,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    Resource,
)


def port_of(cluster: EmbeddedCluster) -> int:
    return int(cluster.config.server.rpartition(":")[2])


async def test_a_new_cluster_has_the_default_objects(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, with_node=False) as cluster, Client(cluster.config) as client:
        namespaces = {one["metadata"]["name"] for one in (await client.list(NAMESPACES)).items}
        assert namespaces == {"default", "kube-system", "kube-public", "kube-node-lease"}
        accounts = {
            (one["metadata"]["namespace"], one["metadata"]["name"])
            for one in (await client.list(SERVICE_ACCOUNTS)).items
        }
        assert accounts == {(name, "default") for name in namespaces}
        [storage_class] = (await client.list(STORAGE_CLASSES)).items
        assert storage_class["metadata"]["name"] == "standard"
        assert storage_class["metadata"]["annotations"] == {"storageclass.kubernetes.io/is-default-class": "true"}


async def test_a_new_namespace_gets_its_service_account_each_time(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, with_node=False) as cluster, Client(cluster.config) as client:
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        first = await appearing_account(client, "team")
        await client.delete(SERVICE_ACCOUNTS, "default", namespace="team")
        assert await appearing_account(client, "team") != first


async def appearing_account(client: Client, namespace: str) -> str:
    async with asyncio.timeout(60):
        async for event in client.watch(SERVICE_ACCOUNTS, namespace=namespace, resource_version="0"):
            if event.type == "ADDED":
                return str(event.object["metadata"]["uid"])
    raise AssertionError("the watch ended")


async def test_with_its_node_it_is_ready_for_pods_when_started(tmp_path: Path) -> None:
    [port] = free_ports(1)
    async with embedded_cluster(tmp_path, port=port) as cluster, Client(cluster.config) as client:
        node = await client.get(NODES, "local")
        assert {one["status"] for one in node["status"]["conditions"] if one["type"] == "Ready"} == {"True"}
        assert cluster.sandbox in {"overlay", "plain"}
        assert cluster.notes == []


async def test_files_in_a_claim_outlive_the_pod_and_the_cluster(tmp_path: Path) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "models", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    container = {
        "name": "main",
        "image": "trainwright/host",
        "command": ["sh", "-c", "echo weights > /models/model.pt"],
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trainer", "namespace": "default"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [container],
            "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
        },
    }
    async with embedded_cluster(tmp_path) as cluster, Client(cluster.config) as client:
        await client.create(PODS, pod)
        await client.create(PERSISTENT_VOLUME_CLAIMS, claim)
        await eventually(lambda: client.get(PODS, "trainer"), lambda one: one["status"]["phase"] == "Succeeded")
    [path] = (tmp_path / "volumes").iterdir()
    assert (path / "model.pt").read_text() == "weights\n"


async def test_an_unknown_sandbox_is_refused_and_leaves_nothing_running(tmp_path: Path) -> None:
    cluster = EmbeddedCluster(tmp_path, NodeSettings(sandbox="vault"))
    with pytest.raises(ClusterError, match="vault"):
        await cluster.start()
    async with embedded_cluster(tmp_path, with_node=False) as again:
        assert again.config.server


async def test_a_restart_keeps_objects_address_and_credentials(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, with_node=False) as cluster, Client(cluster.config) as client:
        before = cluster.config
        kept = await client.create(CONFIG_MAPS, {"metadata": {"name": "kept", "namespace": "default"}})
    async with embedded_cluster(tmp_path, with_node=False) as cluster:
        assert cluster.config == before
        async with Client(load_kubeconfig(DataDir(tmp_path).kubeconfig)) as client:
            assert await client.get(CONFIG_MAPS, "kept") == kept


async def test_stored_objects_of_kinds_that_are_refused_can_be_read_and_deleted(tmp_path: Path) -> None:
    metadata = {"name": "nightly", "namespace": "team", "uid": "1"}
    cron_job = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": {"schedule": "@daily"}}
    old_set = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {**metadata, "uid": "2"}}
    async with embedded_cluster(tmp_path, with_node=False) as cluster, Client(cluster.config) as client:
        await client.create(NAMESPACES, {"metadata": {"name": "team"}})
    store = ObjectStore(DataDir(tmp_path).store)
    await store.guaranteed_update("cronjobs.batch", "team", "nightly", lambda _old: cron_job)
    await store.guaranteed_update("replicationcontrollers", "team", "nightly", lambda _old: old_set)
    store.close()

    async with embedded_cluster(tmp_path, with_node=False) as cluster, Client(cluster.config) as client:
        assert cluster.notes == [
            "CronJobs that an earlier version stored no longer run: delete them",
            "ReplicationControllers that an earlier version stored no longer run: delete them",
        ]
        assert (await client.get(CRON_JOBS, "nightly", namespace="team"))["spec"] == {"schedule": "@daily"}
        await client.patch(CRON_JOBS, "nightly", {"metadata": {"finalizers": None}}, namespace="team")
        await client.delete(CRON_JOBS, "nightly", namespace="team", propagation="Foreground")
        await client.delete(NAMESPACES, "team")
        await eventually(lambda: is_gone(client, "team"), bool)


@pytest.mark.parametrize(
    ("resource", "instead"),
    [
        (CRON_JOBS, "has no schedules: write a Job"),
        (INGRESSES, "use the Service"),
        (REPLICATION_CONTROLLERS, "write a Deployment"),
    ],
    ids=lambda value: getattr(value, "plural", None),
)
async def test_kinds_without_a_controller_are_refused_and_say_what_to_do(
    tmp_path: Path, resource: Resource, instead: str
) -> None:
    async with embedded_cluster(tmp_path, with_node=False) as cluster, Client(cluster.config) as client:
        with pytest.raises(Invalid, match=instead):
            await client.create(resource, {"metadata": {"name": "x", "namespace": "default"}, "spec": {"a": 1}})
        assert (await client.list(resource)).items == []


async def is_gone(client: Client, namespace: str) -> bool:
    try:
        await client.get(NAMESPACES, namespace)
    except NotFound:
        return True
    return False


async def test_requests_without_the_token_are_refused(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, with_node=False) as cluster:
        stranger = type(cluster.config)(server=cluster.config.server, ca_data=cluster.config.ca_data, token="guess")
        async with Client(stranger) as client:
            with pytest.raises(Unauthorized):
                await client.list(NAMESPACES)
        kubeconfig = DataDir(tmp_path).kubeconfig
        assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600


async def test_a_second_cluster_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, with_node=False) as cluster:
        with pytest.raises(AlreadyRunningError, match=r"already running \(pid \d+\)"):
            await EmbeddedCluster(tmp_path, with_node=False).start()
        async with Client(cluster.config) as client:
            assert (await client.list(NAMESPACES)).items  # the first one is not affected


async def test_two_clusters_side_by_side_get_a_port_each(tmp_path: Path) -> None:
    async with (
        embedded_cluster(tmp_path / "one", with_node=False) as one,
        embedded_cluster(tmp_path / "two", with_node=False) as two,
    ):
        assert port_of(one) != port_of(two)
        # Another cluster of this machine, which has ended meanwhile, may have had it.
        note = rf"port {DEFAULT_PORT} is taken( by .*)?: the cluster listens on {port_of(two)} instead"
        assert re.fullmatch(note, two.notes[0])


async def test_a_requested_port_has_no_substitute(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = holder.getsockname()[1]
        with pytest.raises(ClusterError, match=rf"port {taken} is taken by process \d+ .*--port"):
            await EmbeddedCluster(tmp_path, port=taken, with_node=False).start()
    async with embedded_cluster(tmp_path, port=taken, with_node=False) as cluster:
        assert port_of(cluster) == taken
    # It was chosen once, so it is not given up silently later.
    with socket.create_server(("127.0.0.1", taken)), pytest.raises(ClusterError, match=f"port {taken} is taken"):
        await EmbeddedCluster(tmp_path, with_node=False).start()


async def test_a_default_port_in_use_is_replaced_with_a_note(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    data.create()
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = holder.getsockname()[1]
        data.remember_port(RememberedPort(taken, requested=False))
        async with embedded_cluster(tmp_path, with_node=False) as cluster:
            assert port_of(cluster) != taken
            assert f"port {taken} is taken by process" in cluster.notes[0]
            assert load_kubeconfig(data.kubeconfig).server == cluster.config.server


async def test_a_taken_port_leaves_one_server_with_one_set_of_subscriptions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers: list[list[str]] = []
    subscriptions: list[str] = []
    start, subscribe = ApiServer.start, ObjectStore.subscribe

    def started(self: ApiServer, listeners: list[socket.socket]) -> Coroutine[Any, Any, int]:
        servers.append(list(subscriptions))
        return start(self, listeners)

    def subscribed(self: ObjectStore, resource: str, notify: Callable[[Change], None]) -> Callable[[], None]:
        subscriptions.append(resource)
        return subscribe(self, resource, notify)

    monkeypatch.setattr(ApiServer, "start", started)
    monkeypatch.setattr(ObjectStore, "subscribe", subscribed)
    data = DataDir(tmp_path)
    data.create()
    with socket.create_server(("127.0.0.1", 0)) as holder:
        data.remember_port(RememberedPort(holder.getsockname()[1], requested=False))
        async with embedded_cluster(tmp_path, with_node=False):
            [before_start] = servers
    assert before_start.count(VALIDATING_WEBHOOK_CONFIGURATIONS.qualified_plural) == 1


async def test_a_directory_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "format").write_text("99\n")
    with pytest.raises(DataDirError, match="newer version"):
        await EmbeddedCluster(tmp_path).start()
    assert [path.name for path in tmp_path.iterdir()] == ["format"]


async def test_a_damaged_store_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    DataDir(tmp_path).create()
    (tmp_path / "store.db").write_text("this is no database\n" * 100)
    with pytest.raises(ClusterError, match=r"store\.db: .*--data-dir"):
        await EmbeddedCluster(tmp_path, with_node=False).start()
    assert (tmp_path / "store.db").read_text().startswith("this is no database")
    DataDir(tmp_path).lock().release()  # nothing is left running that would hold it


async def test_the_record_is_there_while_it_is_announced(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    async with embedded_cluster(tmp_path, with_node=False) as cluster:
        assert data.running() is None
        cluster.announce(Path("/home/me/.kube/config"))
        record = data.running()
        assert record is not None
        assert (record.server, record.kubeconfig) == (cluster.config.server, "/home/me/.kube/config")
    assert data.running() is None
    assert not (tmp_path / "cluster.json").exists()


def ask_readiness(cluster: EmbeddedCluster) -> tuple[int, str]:
    context = ssl.create_default_context(cadata=(cluster.config.ca_data or b"").decode())
    try:
        with urllib.request.urlopen(f"{cluster.config.server}/readyz?verbose", context=context, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def test_a_crashed_component_is_shown_in_readiness_and_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy, crashes = NamespaceController.__init__, 0

    def crash_once(self: NamespaceController, client: Client) -> None:
        nonlocal crashes
        crashes += 1
        if crashes == 1:
            raise OSError("disk on fire")
        healthy(self, client)

    monkeypatch.setattr(NamespaceController, "__init__", crash_once)
    async with embedded_cluster(tmp_path, with_node=False) as cluster, Client(cluster.config) as client:
        code, text = await asyncio.to_thread(ask_readiness, cluster)
        assert code == 500
        assert "[-]namespaces failed" in text
        assert cluster.failures == {"namespaces": "OSError: disk on fire"}
        # The other components were not affected, and the failed one works again.
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "brief"}})
        await client.delete(NAMESPACES, "brief")
        async with asyncio.timeout(60):
            async for event in client.watch(NAMESPACES, field_selector="metadata.name=brief", resource_version="0"):
                if event.type == "DELETED":
                    break
            else:
                raise AssertionError("the watch ended")
