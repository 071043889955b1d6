"""Client, reflector and recorder on a real kube-apiserver."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tests.support.background import in_background
from tests.support.kubernetes.controlplane import ControlPlane
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Unauthorized,
    Unreachable,
)
from trainwright.kube.client.sync_client import SyncClient
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.metadata import ObjectMeta, View
from trainwright.objects.resources import CONFIG_MAPS, EVENTS, PODS

pytestmark = pytest.mark.apiserver


class ConfigMap(View, frozen=True):
    metadata: ObjectMeta
    data: Mapping[str, str] | None = None


def config_map(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


async def test_create_read_update_delete(client: Client) -> None:
    created = await client.create(CONFIG_MAPS, config_map("a", x="1"))
    assert await client.get(CONFIG_MAPS, "a") == created
    with pytest.raises(AlreadyExists, match='configmaps "a" already exists'):
        await client.create(CONFIG_MAPS, config_map("a"))
    replaced = await client.replace(CONFIG_MAPS, {**created, "data": {"x": "2"}})
    with pytest.raises(Conflict, match="the object has been modified"):
        await client.replace(CONFIG_MAPS, {**created, "data": {"x": "3"}})
    assert int(replaced["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, "a", uid="another")
    answer = await client.delete(CONFIG_MAPS, "a", uid=created["metadata"]["uid"])
    assert answer["status"] == "Success"
    with pytest.raises(NotFound, match='configmaps "a" not found'):
        await client.get(CONFIG_MAPS, "a")


async def test_errors_have_their_class(client: Client, control_plane: ControlPlane) -> None:
    with pytest.raises(Invalid, match="Invalid value"):
        await client.create(CONFIG_MAPS, config_map("Bad_Name"))
    async with Client(replace(control_plane.config, token="wrong")) as stranger:
        with pytest.raises(Unauthorized):
            await stranger.list(PODS)
    async with Client(replace(control_plane.config, token=None)) as nobody:
        with pytest.raises(Forbidden, match="system:anonymous"):
            await nobody.list(PODS)


async def test_a_list_in_pages_is_the_list_in_one_piece(client: Client, real_namespace: str) -> None:
    await asyncio.gather(*(client.create(CONFIG_MAPS, config_map(f"c{n}")) for n in range(7)))
    whole = await client.list(CONFIG_MAPS, namespace=real_namespace, limit=0)
    paged = await client.list(CONFIG_MAPS, namespace=real_namespace, limit=2)
    assert paged.items == whole.items
    assert {item["kind"] for item in paged.items} == {"ConfigMap"}


async def test_server_with_an_unknown_certificate_is_not_trusted(control_plane: ControlPlane) -> None:
    unknown = replace(control_plane.config, ca_data=None)
    async with Client(unknown) as client:
        with pytest.raises(Unreachable, match=r"cannot trust the certificate of https://127\.0\.0\.1:\d+: self.signed"):
            await client.list(PODS)
    with (
        SyncClient(unknown) as sync,
        pytest.raises(Unreachable, match=r"cannot trust .*: self.signed"),
    ):
        sync.list(PODS)
    async with Client(replace(unknown, insecure=True)) as careless:
        assert (await careless.list(PODS)).resource_version


async def test_certificate_is_checked_for_tls_server_name(control_plane: ControlPlane) -> None:
    right = replace(control_plane.config, tls_server_name="kubernetes.default.svc")
    wrong = replace(control_plane.config, tls_server_name="wrong.example")
    with SyncClient(right) as sync:
        assert sync.list(PODS).resource_version
    with SyncClient(wrong) as sync, pytest.raises(Unreachable, match=r"not valid for 'wrong\.example'"):
        sync.list(PODS)
    async with Client(right) as client:
        assert (await client.list(PODS)).resource_version
    async with Client(wrong) as client:
        with pytest.raises(Unreachable, match=r"not valid for 'wrong\.example'"):
            await client.list(PODS)


async def test_proxy_opens_a_tunnel_for_https(control_plane: ControlPlane) -> None:
    async with tunnelling_proxy() as (url, asked):
        config = replace(control_plane.config, proxy_url=url.replace("//", "//ada:pw@"))
        async with Client(config) as client:
            assert (await client.list(PODS)).resource_version
        with SyncClient(config) as sync:
            assert (await asyncio.to_thread(sync.list, PODS)).resource_version
    target = control_plane.config.server.removeprefix("https://")
    assert [request.partition(" HTTP/")[0] for request in asked] == [f"CONNECT {target}"] * 2
    assert all("Proxy-Authorization: Basic YWRhOnB3" in request for request in asked)


async def test_store_follows_the_server_and_holds_own_writes_first(client: Client, real_namespace: str) -> None:
    await client.create(CONFIG_MAPS, config_map("before"))
    store: Store[ConfigMap] = Store()
    changes: list[tuple[str | None, str | None]] = []

    def changed(before: ConfigMap | None, after: ConfigMap | None) -> None:
        changes.append((_name(before), _name(after)))

    reflector = Reflector(
        client,
        CONFIG_MAPS,
        store,
        convert=ConfigMap,
        namespace=real_namespace,
        field_selector="metadata.name!=kube-root-ca.crt",
        on_change=changed,
    )
    async with in_background(reflector.run()):
        await reflector.wait_for_sync()
        assert changes == [(None, "before")]
        answer = await client.create(CONFIG_MAPS, config_map("ours", x="1"))
        store.remember(ConfigMap(metadata=_metadata(answer), data=answer["data"]))
        ours = store.get(f"{real_namespace}/ours")
        assert ours
        assert ours.data == {"x": "1"}
        await eventually(lambda: (None, "ours") in changes)
        await client.patch(CONFIG_MAPS, "ours", {"data": {"x": "2"}})
        await client.delete(CONFIG_MAPS, "before")
        await eventually(lambda: ("before", None) in changes)
        assert changes == [(None, "before"), (None, "ours"), ("ours", "ours"), ("before", None)]
        assert [item.data for item in store.all()] == [{"x": "2"}]


async def test_pods_are_read_straight_into_views(client: Client, real_namespace: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }
    await client.create(PODS, pod)
    store: Store[Pod] = Store(indexes={"label": lambda pod: pod.metadata.labels.values()})
    reflector = Reflector(client, PODS, store, convert=Pod, namespace=real_namespace, label_selector="a=b")
    async with in_background(reflector.run()):
        await reflector.wait_for_sync()
        [found] = store.by_index("label", "b")
        assert (found.name, found.phase) == ("p", "Pending")
        await client.patch(PODS, "p", {"metadata": {"labels": {"a": None}}})
        await eventually(lambda: len(store) == 0)


async def test_events_are_accepted_and_counted(client: Client, real_namespace: str) -> None:
    about = await client.create(CONFIG_MAPS, config_map("a"))
    recorder = EventRecorder(client, "trainwright-test", "here")
    recorder.record(about, "Normal", "Started", "it began")
    recorder.record(about, "Warning", "Failed", "it failed " + "x" * 2000)
    await eventually(lambda: not recorder.outstanding)
    recorder.record(about, "Normal", "Started", "it began")
    await recorder.close()
    selector = f"involvedObject.uid={about['metadata']['uid']}"
    events = (await client.list(EVENTS, namespace=real_namespace, field_selector=selector)).items
    assert {(event["reason"], event["count"]) for event in events} == {("Started", 2), ("Failed", 1)}
    assert all(event["reportingComponent"] == "trainwright-test" for event in events)


async def test_events_of_a_big_job_are_combined(client: Client, real_namespace: str) -> None:
    about = await client.create(CONFIG_MAPS, config_map("a"))
    recorder = EventRecorder(client, "trainwright-test")
    for number in range(30):
        recorder.record(about, "Normal", "Created", f"Created pod: {number}")
    await eventually(lambda: not recorder.outstanding)
    for number in range(30, 40):
        recorder.record(about, "Normal", "Created", f"Created pod: {number}")
    await recorder.close()
    events = (await client.list(EVENTS, namespace=real_namespace)).items
    counts = {event["message"]: event["count"] for event in events}
    assert counts == {
        **{f"Created pod: {number}": 1 for number in range(10)},
        "(combined from similar events): Created pod: 39": 30,
    }


def test_the_blocking_client_does_the_same(control_plane: ControlPlane, real_namespace: str) -> None:
    with SyncClient(replace(control_plane.config, namespace=real_namespace)) as client:
        created = client.create(CONFIG_MAPS, config_map("a", x="1"))
        listed = client.list(CONFIG_MAPS, namespace=real_namespace, limit=1)
        assert "a" in [item["metadata"]["name"] for item in listed.items]
        client.patch(CONFIG_MAPS, "a", {"data": {"x": "2"}})
        client.delete(CONFIG_MAPS, "a")
        version = created["metadata"]["resourceVersion"]
        events = client.watch(
            CONFIG_MAPS, namespace=real_namespace, field_selector="metadata.name=a", resource_version=version
        )
        assert [next(events).type for _ in range(2)] == ["MODIFIED", "DELETED"]
        events.close()


@asynccontextmanager
async def tunnelling_proxy() -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy that does nothing but CONNECT; with its address come the requests that it got."""
    asked: list[str] = []
    open_writers: list[asyncio.StreamWriter] = []

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(request)
        host, _, port = request.split()[1].partition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        open_writers.extend((writer, far_writer))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer), return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
        for writer in open_writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in open_writers), return_exceptions=True)


def _name(item: ConfigMap | None) -> str | None:
    return item.metadata.name if item else None


def _metadata(obj: Object) -> ObjectMeta:
    metadata = obj["metadata"]
    return ObjectMeta(
        name=metadata["name"], namespace=metadata["namespace"], resource_version=metadata["resourceVersion"]
    )
