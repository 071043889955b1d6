"""Lists, tables and watches.

Every test here passes unchanged on the embedded server and on the real kube-apiserver.
"""

from contextlib import aclosing
from typing import Any

import pytest

from tests.support.cluster.raw_api import TABLE, RawApi
from tests.support.objects.manifests import bind, config_map, pod


class TestLists:
    async def names(self, api: RawApi, query: str) -> list[str]:
        reply = await api.get(f"{api.path('configmaps')}?{query}")
        assert reply.code == 200, reply.body
        return [
            item["metadata"]["name"] for item in reply.body["items"] if item["metadata"]["name"] != "kube-root-ca.crt"
        ]

    async def fill(self, api: RawApi) -> None:
        for name, labels in (("a", {"x": "1"}), ("b", {"x": "2", "y": "1"}), ("c", {})):
            await api.post(api.path("configmaps"), config_map(name, labels=labels))

    @pytest.mark.parametrize(
        ("selector", "expected"),
        [
            ("x=1", ["a"]),
            ("x==1", ["a"]),
            ("x!=1,x", ["b"]),
            ("x in (1,2)", ["a", "b"]),
            ("x notin (1),x", ["b"]),
            ("!x", ["c"]),
            ("x,y", ["b"]),
        ],
    )
    async def test_label_selectors(self, api: RawApi, selector: str, expected: list[str]) -> None:
        await self.fill(api)
        query = selector.replace(" ", "%20").replace("!", "%21").replace("=", "%3D")
        assert await self.names(api, f"labelSelector={query}") == expected

    async def test_field_selectors(self, api: RawApi) -> None:
        await self.fill(api)
        assert await self.names(api, "fieldSelector=metadata.name%3Db") == ["b"]
        await api.post(api.path("pods"), pod("one"))
        await api.post(api.path("pods"), pod("two"))
        await bind(api, "two")
        for selector, expected in (
            ("spec.nodeName=n1", ["two"]),
            ("spec.nodeName=", ["one"]),
            ("spec.nodeName!=n1,status.phase!=Failed", ["one"]),
            ("status.phase=Pending", ["one", "two"]),
        ):
            query = selector.replace("=", "%3D").replace("!", "%21")
            reply = await api.get(f"{api.path('pods')}?fieldSelector={query}")
            assert [item["metadata"]["name"] for item in reply.body["items"]] == expected
        unknown = await api.get(f"{api.path('pods')}?fieldSelector=spec.x%3D1")
        assert (unknown.code, unknown.message) == (400, "field label not supported: spec.x")

    async def test_pages_are_consistent(self, api: RawApi) -> None:
        for index in range(5):
            await api.post(api.path("secrets"), {"metadata": {"name": f"s{index}"}})
        first = await api.get(f"{api.path('secrets')}?limit=2")
        assert [item["metadata"]["name"] for item in first.body["items"]] == ["s0", "s1"]
        assert first.metadata["remainingItemCount"] == 3
        await api.delete(api.path("secrets", "s3"))
        await api.post(api.path("secrets"), {"metadata": {"name": "s9"}})
        seen = []
        token = first.metadata["continue"]
        while token:
            page = await api.get(f"{api.path('secrets')}?limit=2&continue={token}")
            assert page.metadata["resourceVersion"] == first.metadata["resourceVersion"]
            seen += [item["metadata"]["name"] for item in page.body["items"]]
            token = page.metadata.get("continue")
        assert seen == ["s2", "s3", "s4"]
        bad = await api.get(f"{api.path('secrets')}?limit=2&continue=zzz")
        assert bad.code == 400
        assert "continue key is not valid" in bad.message

    async def test_list_has_kind_and_resource_version(self, api: RawApi) -> None:
        reply = await api.get(api.path("pods"))
        assert (reply.body["kind"], reply.body["apiVersion"], reply.body["items"]) == ("PodList", "v1", [])
        assert reply.metadata["resourceVersion"].isdigit()
        await self.fill(api)
        fields = f"metadata.name%3Da,metadata.namespace%3D{api.namespace}"
        everywhere = await api.get(f"/api/v1/configmaps?fieldSelector={fields}")
        assert [item["metadata"]["namespace"] for item in everywhere.body["items"]] == [api.namespace]

    async def test_future_resource_version_is_rejected(self, api: RawApi) -> None:
        reply = await api.get(f"{api.path('pods')}?resourceVersion=999999999")
        assert (reply.code, reply.body["reason"]) == (504, "Timeout")
        assert "Too large resource version: 999999999" in reply.message

    async def test_tables(self, api: RawApi) -> None:
        await api.post(api.path("pods"), pod())
        reply = await api.get(api.path("pods"), TABLE)
        table = reply.body
        assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        columns = [(column["name"], column["priority"]) for column in table["columnDefinitions"]]
        assert columns == [
            ("Name", 0), ("Ready", 0), ("Status", 0), ("Restarts", 0), ("Age", 0),
            ("IP", 1), ("Node", 1), ("Nominated Node", 1), ("Readiness Gates", 1),
        ]  # fmt: skip
        row = table["rows"][0]
        assert row["cells"][:4] == ["p", "0/1", "Pending", "0"]
        assert row["cells"][5:] == ["<none>"] * 4
        assert row["object"]["kind"] == "PartialObjectMetadata"
        assert row["object"]["metadata"]["name"] == "p"
        one = await api.get(f"{api.path('pods', 'p')}?includeObject=Object", TABLE)
        assert one.body["rows"][0]["object"]["spec"]["containers"][0]["name"] == "main"

    async def test_partial_object_metadata(self, api: RawApi) -> None:
        await api.post(api.path("configmaps"), config_map("only", {"a": "b"}))
        accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        reply = await api.get(api.path("configmaps", "only"), accept)
        assert reply.body["kind"] == "PartialObjectMetadata"
        assert reply.body.keys() == {"kind", "apiVersion", "metadata"}


class TestWatches:
    async def take(self, api: RawApi, path: str, count: int, accept: str = "application/json") -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        async with aclosing(api.watch(path, accept)) as stream:
            async for event in stream:
                events.append(event)
                if len(events) == count:
                    break
        return events

    async def test_watch_continues_a_list(self, api: RawApi) -> None:
        await api.post(api.path("secrets"), {"metadata": {"name": "before"}})
        version = (await api.get(api.path("secrets"))).metadata["resourceVersion"]
        await api.post(api.path("secrets"), {"metadata": {"name": "s"}})
        await api.patch(api.path("secrets", "s"), {"metadata": {"labels": {"a": "b"}}})
        await api.delete(api.path("secrets", "s"))
        events = await self.take(api, f"{api.path('secrets')}?watch=true&resourceVersion={version}", 3)
        assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
        assert {event["object"]["metadata"]["name"] for event in events} == {"s"}
        versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
        assert versions == sorted(set(versions))
        assert versions[0] > int(version)
        assert events[2]["object"]["metadata"]["labels"] == {"a": "b"}
        assert events[0]["object"]["kind"] == "Secret"

    async def test_object_that_leaves_the_selection_is_deleted_in_its_last_selected_state(self, api: RawApi) -> None:
        created = await api.post(api.path("configmaps"), config_map(data={"a": "old"}, labels={"x": "y"}))
        version = created.metadata["resourceVersion"]
        left = await api.patch(api.path("configmaps", "c"), {"metadata": {"labels": {"x": "z"}}, "data": {"a": "new"}})
        query = f"?watch=1&labelSelector=x%3Dy&resourceVersion={version}"
        (event,) = await self.take(api, api.path("configmaps") + query, 1)
        assert (event["type"], event["object"]["data"]) == ("DELETED", {"a": "old"})
        assert event["object"]["metadata"]["labels"] == {"x": "y"}
        assert event["object"]["metadata"]["resourceVersion"] == left.metadata["resourceVersion"]

    @pytest.mark.parametrize("version", ["", "&resourceVersion=0"])
    async def test_watch_without_a_version_sends_the_initial_state(self, api: RawApi, version: str) -> None:
        for name in ("s1", "s2"):
            await api.post(api.path("secrets"), {"metadata": {"name": name}})
        events = await self.take(api, f"{api.path('secrets')}?watch=1{version}", 2)
        assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [
            ("ADDED", "s1"), ("ADDED", "s2"),
        ]  # fmt: skip

    async def test_initial_events_end_with_a_bookmark(self, api: RawApi) -> None:
        await api.post(api.path("secrets"), {"metadata": {"name": "s"}})
        query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        events = await self.take(api, f"{api.path('secrets')}?{query}", 2)
        assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]
        metadata = events[1]["object"]["metadata"]
        assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(metadata["resourceVersion"]) >= int(events[0]["object"]["metadata"]["resourceVersion"])
        assert events[1]["object"]["kind"] == "Secret"
        refused = await api.get(f"{api.path('secrets')}?watch=true&sendInitialEvents=true")
        assert refused.code == 422
        assert "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan" in refused.message

    async def test_label_changes_add_and_delete_objects(self, api: RawApi) -> None:
        version = (await api.get(api.path("secrets"))).metadata["resourceVersion"]
        await api.post(api.path("secrets"), {"metadata": {"name": "s"}})
        for value in ("yes", "no"):
            await api.patch(api.path("secrets", "s"), {"metadata": {"labels": {"in": value}}})
        await api.delete(api.path("secrets", "s"))
        await api.post(api.path("secrets"), {"metadata": {"name": "t", "labels": {"in": "yes"}}})
        path = f"{api.path('secrets')}?watch=true&labelSelector=in%3Dyes&resourceVersion={version}"
        events = await self.take(api, path, 3)
        assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [
            ("ADDED", "s"), ("DELETED", "s"), ("ADDED", "t"),
        ]  # fmt: skip

    async def test_watch_of_one_name(self, api: RawApi) -> None:
        for name in ("s", "t"):
            await api.post(api.path("secrets"), {"metadata": {"name": name}})
        path = f"{api.path('secrets')}?watch=true&fieldSelector=metadata.name%3Dt&timeoutSeconds=1"
        events = [event async for event in api.watch(path)]
        assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [("ADDED", "t")]

    async def test_table_watch_sends_columns_once(self, api: RawApi) -> None:
        for name in ("p1", "p2"):
            await api.post(api.path("pods"), pod(name))
        events = await self.take(api, f"{api.path('pods')}?watch=true", 2, TABLE)
        first, second = (event["object"] for event in events)
        assert first["kind"] == second["kind"] == "Table"
        assert first["columnDefinitions"][0]["name"] == "Name"
        assert second["columnDefinitions"] is None
        assert [table["rows"][0]["cells"][0] for table in (first, second)] == ["p1", "p2"]
