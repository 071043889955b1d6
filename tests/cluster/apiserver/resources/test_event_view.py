"""events.k8s.io/v1: the same events with other field names.

Every test here passes unchanged on the embedded server and on the real kube-apiserver.
"""

from typing import Any

import pytest

from tests.support.cluster.raw_api import MERGE, STRATEGIC, TABLE, RawApi, Reply

NOW = "2026-01-02T03:04:05.000006Z"


def view(api: RawApi, *rest: str) -> str:
    return api.path("events", *rest, group="apis/events.k8s.io/v1")


def event(api: RawApi, name: str = "e", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "eventTime": NOW,
        "regarding": {"kind": "Pod", "namespace": api.namespace, "name": "p", "apiVersion": "v1"},
        "reportingController": "example.com/tester",
        "reportingInstance": "tester-1",
        "action": "Testing",
        "reason": "Tested",
        "note": "as it should be",
        "type": "Normal",
        **more,
    }


async def create(api: RawApi, **more: Any) -> Reply:
    reply = await api.post(view(api), event(api, **more))
    assert reply.code == 201, reply.body
    return reply


async def test_event_is_shown_in_both_groups(api: RawApi) -> None:
    created = await create(api)
    assert (created.body["apiVersion"], created.body["kind"]) == ("events.k8s.io/v1", "Event")
    assert (created.body["note"], created.body["regarding"]["name"]) == ("as it should be", "p")
    assert created.body["eventTime"] == NOW

    core = (await api.get(api.path("events", "e"))).body
    assert core["apiVersion"] == "v1"
    assert (core["message"], core["involvedObject"]["name"]) == ("as it should be", "p")
    assert (core["reportingComponent"], core["reportingInstance"]) == ("example.com/tester", "tester-1")
    assert core["metadata"]["uid"] == created.metadata["uid"]


async def test_event_of_the_core_group_is_shown_with_deprecated_fields(api: RawApi) -> None:
    about = {"kind": "Pod", "namespace": api.namespace, "name": "p"}
    old: dict[str, Any] = {
        "metadata": {"name": "old"},
        "involvedObject": about,
        "reason": "Old",
        "message": "m",
        "type": "Normal",
    }
    old |= {"count": 3, "source": {"component": "kubelet"}, "lastTimestamp": "2026-01-02T03:04:05Z"}
    assert (await api.post(api.path("events"), old)).code == 201
    shown = (await api.get(view(api, "old"))).body
    assert (shown["note"], shown["deprecatedCount"]) == ("m", 3)
    assert shown["deprecatedSource"] == {"component": "kubelet"}
    assert shown["deprecatedLastTimestamp"] == "2026-01-02T03:04:05Z"
    [listed] = (await api.get(view(api) + "?fieldSelector=regarding.name%3Dp")).body["items"]
    assert listed["metadata"]["name"] == "old"
    assert (await api.get(view(api) + "?fieldSelector=regarding.name%3Dq")).body["items"] == []


@pytest.mark.parametrize("media", [MERGE, STRATEGIC])
async def test_series_is_patched(api: RawApi, media: str) -> None:
    await create(api)
    series = {"series": {"count": 2, "lastObservedTime": NOW}}
    patched = await api.patch(view(api, "e"), series, media)
    assert (patched.code, patched.body["series"]["count"]) == (200, 2)
    assert (await api.get(api.path("events", "e"))).body["series"]["count"] == 2


async def test_incomplete_event_is_refused(api: RawApi) -> None:
    body = event(api)
    del body["reportingController"]
    refused = await api.post(view(api), body)
    assert (refused.code, refused.body["reason"]) == (422, "Invalid")
    assert "reportingController" in refused.message
    refused = await api.post(view(api), event(api, deprecatedCount=3))
    assert refused.code == 422


async def test_list_watch_table_and_delete(api: RawApi) -> None:
    await create(api)
    listed = (await api.get(view(api))).body
    assert (listed["kind"], listed["apiVersion"]) == ("EventList", "events.k8s.io/v1")
    table = (await api.get(view(api), TABLE)).body
    assert [column["name"] for column in table["columnDefinitions"]][:4] == ["Last Seen", "Type", "Reason", "Object"]
    path = view(api) + f"?watch=true&resourceVersion={listed['metadata']['resourceVersion']}"
    stream = api.watch(path)
    assert (await api.delete(view(api, "e"))).code == 200
    deleted = await anext(stream)
    assert (deleted["type"], deleted["object"]["note"]) == ("DELETED", "as it should be")
    await stream.aclose()
    assert (await api.get(api.path("events", "e"))).code == 404
