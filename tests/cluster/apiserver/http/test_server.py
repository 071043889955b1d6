"""Behaviour of the embedded server that the real one does not share: authentication, limits, expiry of events."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest

from tests.support.cluster.addresses import SERVICES
from tests.support.cluster.embedded_apiserver import TOKEN, Embedded, RecordedLogs, running_embedded
from tests.support.cluster.raw_api import RawApi, raw_api
from tests.support.objects.manifests import bind, config_map, pod
from tests.support.objects.widgets import DEFINITIONS, definition, install, widget
from trainwright.cluster.apiserver.http.routes import ServedCluster
from trainwright.cluster.apiserver.http.server import ApiServer
from trainwright.cluster.apiserver.storage.store import ObjectStore


@pytest.fixture
async def embedded() -> AsyncIterator[Embedded]:
    async with running_embedded() as embedded:
        yield embedded


@pytest.fixture
async def api(embedded: Embedded) -> AsyncIterator[RawApi]:
    async with raw_api(embedded.config, "default") as api:
        yield api


class TestServer:
    @pytest.mark.parametrize("authorization", ["Bearer wrong", "bearer \u00ff", "Bearer a.b.c"])
    async def test_requests_with_a_wrong_token_are_unauthorized(self, embedded: Embedded, authorization: str) -> None:
        connector = aiohttp.TCPConnector(ssl=False)
        async with aiohttp.ClientSession(connector=connector, headers={"Authorization": authorization}) as session:
            for path in ("/api/v1/pods", "/healthz"):
                async with session.get(embedded.config.server + path) as response:
                    assert (response.status, (await response.json())["message"]) == (401, "Unauthorized")

    @pytest.mark.parametrize("authorization", [None, "Basic abc", "Bearer", "Bearer \udcff"])
    async def test_requests_without_a_token_are_anonymous(self, embedded: Embedded, authorization: str | None) -> None:
        headers = {"Authorization": authorization} if authorization else {}
        connector = aiohttp.TCPConnector(ssl=False)
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            async with session.get(f"{embedded.config.server}/api/v1/pods") as response:
                assert response.status == 403
                assert 'User "system:anonymous" cannot list' in (await response.json())["message"]
            for path in ("/healthz", "/livez", "/readyz"):
                async with session.get(embedded.config.server + path) as response:
                    assert (response.status, await response.text()) == (200, "ok")
            async with session.get(f"{embedded.config.server}/version") as response:
                assert (await response.json())["minor"] == "33"

    async def test_kubectl_debug_is_refused_with_what_to_do(self, api: RawApi) -> None:
        await api.post(api.path("pods"), pod())
        containers = {"spec": {"ephemeralContainers": [{"name": "debugger", "image": "busybox"}]}}
        reply = await api.patch(api.path("pods", "p", "ephemeralcontainers"), containers)
        assert reply.code == 400
        assert "ephemeral containers are not supported" in reply.message
        assert "`kubectl exec -it -n default p -- sh`" in reply.message

    async def test_stops_although_watchers_continue_on_their_connection(self) -> None:
        store = ObjectStore(None)
        server = ApiServer(ServedCluster(store, RecordedLogs(), SERVICES), token=TOKEN, tls=None)
        reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
        watch = f"GET /api/v1/namespaces?watch=1 HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        writer.write(watch.encode() * 2)  # the second one begins as soon as the first one ends
        async with asyncio.timeout(60):
            await reader.readuntil(b'"ADDED"')
            await server.stop()
            rest = await reader.read()
        writer.close()
        store.close()
        refusal = rest.partition(b"\r\n0\r\n\r\n")[2]
        assert refusal.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nRetry-After: 1\r\n" in refusal
        assert b"\r\nConnection: close\r\n" in refusal

    async def test_stops_while_clients_reopen_watches(self) -> None:
        store = ObjectStore(None)
        server = ApiServer(ServedCluster(store, RecordedLogs(), SERVICES), token=TOKEN, tls=None)
        port = await server.start()
        watch = f"GET /api/v1/namespaces?watch=1 HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        watching = asyncio.Barrier(21)

        async def follow() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(watch.encode())
            await reader.readuntil(b'"ADDED"')
            await watching.wait()
            await reader.readuntil(b"\r\n0\r\n\r\n")
            writer.write(watch.encode())
            await reader.read()
            writer.close()

        async with asyncio.timeout(60), asyncio.TaskGroup() as clients:
            for _ in range(20):
                clients.create_task(follow())
            await watching.wait()
            await server.stop()
        store.close()

    async def test_deeply_nested_body_is_rejected(self, api: RawApi) -> None:
        depth = 20_000
        text = '{"metadata":{"name":"d"},"data":' + '{"a":' * depth + "1" + "}" * depth + "}"
        reply = await api.send("POST", api.path("configmaps"), text.encode())
        assert (reply.code, reply.message) == (400, "the body is nested too deeply")

    async def test_options_of_the_wrong_type_are_rejected(self, api: RawApi) -> None:
        await api.post(api.path("pods"), pod())
        deleted = await api.delete(api.path("pods", "p"), {"preconditions": [1]})
        bound = await api.post(api.path("pods", "p", "binding"), {"target": "n1"})
        evicted = await api.post(api.path("pods", "p", "eviction"), {"deleteOptions": 5})
        assert [(reply.code, reply.message) for reply in (deleted, bound, evicted)] == [
            (400, "json: cannot unmarshal array into Go struct field DeleteOptions.preconditions"),
            (400, "Binding: target: must be of type object, not str"),
            (400, "Eviction: deleteOptions: must be of type object, not int"),
        ]

    async def test_conversion_webhook_that_would_not_be_called_is_refused(self, api: RawApi) -> None:
        crd = definition()
        crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"]}}
        reply = await api.post(DEFINITIONS, crd)
        assert reply.code == 422
        assert "this server does not call conversion webhooks; use None" in reply.message

    async def test_health_in_detail(self, api: RawApi) -> None:
        assert "readyz check passed" in (await api.get("/readyz?verbose")).body

    async def test_internal_error_is_a_status(
        self, embedded: Embedded, api: RawApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def broken(*_: object) -> None:
            raise RuntimeError("wires crossed")

        monkeypatch.setattr(embedded.store, "get", broken)
        reply = await api.get(api.path("pods", "p"))
        assert (reply.code, reply.body["reason"]) == (500, "InternalError")
        assert reply.message == "Internal error occurred: RuntimeError: wires crossed"
        assert "GET /api/v1/namespaces/default/pods/p failed" in caplog.text

    async def test_objects_survive_a_restart(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        async with running_embedded(path) as first, raw_api(first.config, "default") as api:
            await install(api, definition())
            created = await api.post(api.path("widgets", group="apis/example.com/v1"), widget("kept"))
        async with running_embedded(path) as second, raw_api(second.config, "default") as api:
            again = await api.get(api.path("widgets", "kept", group="apis/example.com/v1"))
            assert again.body == created.body
            names = [one["metadata"]["name"] for one in (await api.get("/api/v1/namespaces")).body["items"]]
            assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]

    async def test_stopping_ends_watches_cleanly(self) -> None:
        server = AsyncExitStack()
        embedded = await server.enter_async_context(running_embedded())
        async with raw_api(embedded.config, "default") as api:
            stream = api.watch(f"{api.path('configmaps')}?watch=true&allowWatchBookmarks=true")
            first = asyncio.create_task(anext(stream))
            await api.post(api.path("configmaps"), config_map())
            assert (await first)["type"] == "ADDED"
            rest = asyncio.create_task(_all(stream))
            await server.aclose()
            assert [event["type"] for event in await rest] == ["BOOKMARK"]


async def _all(stream: AsyncIterator[dict[str, object]]) -> list[dict[str, object]]:
    return [event async for event in stream]


class TestPodSubresources:
    @pytest.mark.parametrize("name", ["exec", "attach", "portforward"])
    async def test_streams_need_a_scheduled_pod_and_a_websocket(self, api: RawApi, name: str) -> None:
        await api.post(api.path("pods"), pod())
        await api.post(api.path("pods"), pod("bound", spec={"nodeName": "local"}))
        waiting = await api.get(f"{api.path('pods', 'p', name)}?stdout=1")
        plain = await api.get(f"{api.path('pods', 'bound', name)}?stdout=1&command=true")
        spdy = await api.send(
            "POST", f"{api.path('pods', 'bound', name)}?stdout=1&command=true", headers={"Upgrade": "SPDY/3.1"}
        )
        assert {reply.code for reply in (waiting, plain, spdy)} == {400}
        assert waiting.message == "pod p does not have a host assigned"
        assert plain.message == f"Upgrade request required: {name} needs a WebSocket"
        assert "use kubectl 1.30 or newer" in spdy.message

    async def test_stream_options_are_checked_before_the_upgrade(self, api: RawApi) -> None:
        await api.post(api.path("pods"), pod("bound", spec={"nodeName": "local"}))
        path = api.path("pods", "bound", "exec")
        nothing = await api.get(f"{path}?command=true")
        container = await api.get(f"{path}?command=true&stdout=true&container=other")
        assert (nothing.code, nothing.message) == (400, "you must specify at least 1 of stdin, stdout, stderr")
        assert (container.code, container.message) == (400, "container other is not valid for pod bound")

    async def test_log_options_reach_the_reader(self, embedded: Embedded, api: RawApi) -> None:
        await api.post(api.path("pods"), pod())
        embedded.logs.texts["default/p/main"] = b"one\ntwo\n"
        query = "container=main&tailLines=1&timestamps=true&limitBytes=9&sinceTime=2026-01-02T03:04:05Z"
        reply = await api.get(f"{api.path('pods', 'p', 'log')}?{query}")
        assert (reply.code, reply.body, reply.content_type) == (200, "two\n", "text/plain; charset=utf-8")
        asked = embedded.logs.asked[-1]
        assert (asked.tail_lines, asked.timestamps, asked.limit_bytes) == (1, True, 9)
        assert asked.since == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        for follow in ("", "&follow=true"):  # the error is returned at once, before any output
            refused = await api.get(f"{api.path('pods', 'p', 'log')}?previous=true{follow}")
            assert refused.code == 400
            assert refused.message == 'previous terminated container "main" in pod "p" not found'
        bad = await api.get(f"{api.path('pods', 'p', 'log')}?sinceTime=yesterday")
        assert (bad.code, "sinceTime" in bad.message) == (400, True)
        assert (await api.get(api.path("pods", "nosuch", "log"))).code == 404
        assert (await api.get(f"{api.path('pods', 'p', 'log')}?sinceSeconds={10**17}")).body == "one\ntwo\n"
        for number in ("-1", "1e3", "%C2%B2", "9" * 5000):
            assert (await api.get(f"{api.path('pods', 'p', 'log')}?tailLines={number}")).code == 400

    async def test_grace_period_is_capped(self, api: RawApi) -> None:
        await api.post(api.path("pods"), pod(spec={"terminationGracePeriodSeconds": 2**62}))
        await bind(api)
        deleted = await api.delete(api.path("pods", "p"))
        assert (deleted.code, deleted.metadata["deletionGracePeriodSeconds"]) == (200, 2**31 - 1)

    async def test_status_update_keeps_the_qos_class(self, api: RawApi) -> None:
        await api.post(api.path("pods"), pod())
        await bind(api)
        stored = (await api.get(api.path("pods", "p"))).body
        reply = await api.put(api.path("pods", "p", "status"), stored | {"status": {"phase": "Running"}})
        assert reply.body["status"] == {"phase": "Running", "qosClass": "BestEffort"}


class TestCustomResourceDefinitions:
    async def test_crd_is_established_at_once(self, api: RawApi) -> None:
        reply = await api.post(DEFINITIONS, definition())
        conditions = {one["type"]: one["status"] for one in reply.body["status"]["conditions"]}
        assert conditions == {"NamesAccepted": "True", "Established": "True"}
        assert reply.body["spec"]["names"]["singular"] == "widget"
        assert (await api.post(api.path("widgets", group="apis/example.com/v1"), widget())).code == 201

    async def test_unenforced_rules_are_warned_about(self, api: RawApi) -> None:
        crd = definition(rules=True)
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schema["properties"]["spec"]["x-kubernetes-validations"] = [{"rule": "self.size > 1"}]
        reply = await api.post(DEFINITIONS, crd)
        assert reply.code == 201
        (warning,) = reply.warnings
        assert "the validation rule 'self.size > 1' at spec is not enforced by this server" in warning

    async def test_deleting_a_crd_deletes_its_objects(self, api: RawApi) -> None:
        path = await install(api, definition())
        await api.post(path, widget("free"))
        held = widget("held")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await api.post(path, held)
        deleted = await api.delete(f"{DEFINITIONS}/widgets.example.com")
        assert deleted.metadata["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
        assert [one["metadata"]["name"] for one in (await api.get(path)).body["items"]] == ["held"]
        refused = await api.post(path, widget("late"))
        assert (refused.code, refused.message) == (
            405, "create not allowed while custom resource definition is terminating",
        )  # fmt: skip
        await api.patch(f"{path}/held", {"metadata": {"finalizers": None}})
        assert (await api.get(f"{DEFINITIONS}/widgets.example.com")).code == 404
        assert (await api.get(path)).code == 404

    async def test_two_versions_share_their_objects(self, api: RawApi) -> None:
        crd = definition()
        old = json.loads(json.dumps(crd["spec"]["versions"][0])) | {"name": "v1beta1", "storage": False}
        crd["spec"]["versions"].append(old | {"deprecated": True})
        path = await install(api, crd)
        beta = path.replace("/v1/", "/v1beta1/")
        written = await api.post(beta, widget("shared") | {"apiVersion": "example.com/v1beta1"})
        assert written.body["apiVersion"] == "example.com/v1beta1"
        assert written.warnings == ['299 - "example.com/v1beta1 Widget is deprecated"']
        assert (await api.get(f"{path}/shared")).body["apiVersion"] == "example.com/v1"
        patched = await api.patch(f"{beta}/shared", {"spec": {"size": 8}})
        assert (patched.code, patched.body["apiVersion"]) == (200, "example.com/v1beta1")
        assert (await api.get(f"{path}/shared")).body["spec"]["size"] == 8


class TestNamespaces:
    async def test_finalize_removes_a_deleted_namespace(self, api: RawApi) -> None:
        await api.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
        await api.delete("/api/v1/namespaces/n")
        refused = await api.post("/api/v1/namespaces/n/configmaps", config_map())
        assert refused.code == 403
        assert refused.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
        stored = (await api.get("/api/v1/namespaces/n")).body
        reply = await api.put("/api/v1/namespaces/n/finalize", stored | {"spec": {"finalizers": []}})
        assert reply.code == 200
        assert (await api.get("/api/v1/namespaces/n")).code == 404


class TestEvents:
    async def test_events_expire_after_an_hour(self) -> None:
        start = datetime(2026, 1, 1, tzinfo=UTC)
        now = [start]
        store = ObjectStore(None)
        served = ServedCluster(store, RecordedLogs(), SERVICES, clock=lambda: now[0])
        server = ApiServer(served, token=TOKEN, tls=None)
        port = await server.start()
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session:
            api = RawApi(session, f"http://127.0.0.1:{port}", "default")
            about = {"namespace": "default", "name": "p"}
            far = {"metadata": {"name": "far"}, "involvedObject": about, "lastTimestamp": "9999-12-31T23:59:59Z"}
            assert (await api.post(api.path("events"), far)).code == 201
            await api.post(api.path("events"), {"metadata": {"name": "old"}, "involvedObject": about})
            now[0] += timedelta(minutes=50)
            await api.post(api.path("events"), {"metadata": {"name": "new"}, "involvedObject": about})
            now[0] += timedelta(minutes=20)
            await server.expire_events()
            left = [one["metadata"]["name"] for one in (await api.get(api.path("events"))).body["items"]]
        await server.stop()
        assert left == ["far", "new"]
