"""Deployments of extensions/v1beta1, which current servers do not serve any more and old manifests contain."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.cluster.embedded_apiserver import running_embedded
from tests.support.cluster.raw_api import TABLE, RawApi, raw_api
from tests.support.objects.manifests import deployment

LEGACY, APPS = "apis/extensions/v1beta1", "apis/apps/v1"
NEVER = 2**31 - 1


@pytest.fixture
async def api() -> AsyncIterator[RawApi]:
    async with running_embedded() as embedded, raw_api(embedded.config, "default") as api:
        yield api


def legacy(**spec: Any) -> dict[str, Any]:
    body = deployment(**spec) | {"apiVersion": "extensions/v1beta1"}
    del body["spec"]["selector"]
    return body


async def test_old_defaults_apply(api: RawApi) -> None:
    reply = await api.post(api.path("deployments", group=LEGACY), legacy())
    assert (reply.code, reply.body["apiVersion"]) == (201, "extensions/v1beta1")
    spec = reply.body["spec"]
    assert spec["selector"] == {"matchLabels": {"app": "web"}}
    assert reply.metadata["labels"] == {"app": "web"}
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 1}
    assert (spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (NEVER, NEVER)
    assert reply.warnings == [
        '299 - "extensions/v1beta1 Deployment is deprecated in v1.8+, unavailable in v1.16+; use apps/v1 Deployment"'
    ]


async def test_both_versions_show_the_same_object(api: RawApi) -> None:
    created = await api.post(api.path("deployments", group=LEGACY), legacy())
    current = await api.get(api.path("deployments", "web", group=APPS))
    assert (current.body["apiVersion"], current.metadata["uid"]) == ("apps/v1", created.metadata["uid"])
    listed = await api.get(api.path("deployments", group=LEGACY))
    assert [one["apiVersion"] for one in listed.body["items"]] == ["extensions/v1beta1"]
    scaled = await api.patch(api.path("deployments", "web", "scale", group=LEGACY), {"spec": {"replicas": 5}})
    assert scaled.code == 200
    assert (await api.get(api.path("deployments", "web", group=APPS))).body["spec"]["replicas"] == 5
    table = await api.get(api.path("deployments", group=LEGACY), accept=TABLE)
    assert table.body["rows"][0]["cells"][1] == "0/5"
    await api.delete(api.path("deployments", "web", group=LEGACY))
    assert (await api.get(api.path("deployments", "web", group=APPS))).code == 404


async def test_objects_of_apps_can_be_updated_by_old_clients(api: RawApi) -> None:
    await api.post(api.path("deployments", group=APPS), deployment())
    old = (await api.get(api.path("deployments", "web", group=LEGACY))).body
    old["spec"]["replicas"] = 4
    reply = await api.put(api.path("deployments", "web", group=LEGACY), old)
    assert (reply.code, reply.body["spec"]["replicas"]) == (200, 4)
    assert reply.body["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": "25%", "maxUnavailable": "25%"}


async def test_watch_shows_the_version_that_was_asked_for(api: RawApi) -> None:
    await api.post(api.path("deployments", group=APPS), deployment())
    async for event in api.watch(f"{api.path('deployments', group=LEGACY)}?watch=true&resourceVersion=0"):
        assert (event["type"], event["object"]["apiVersion"]) == ("ADDED", "extensions/v1beta1")
        break


async def test_kubectl_prefers_apps(api: RawApi) -> None:
    groups = [one["name"] for one in (await api.get("/apis")).body["groups"]]
    assert groups.index("apps") < groups.index("extensions")
    resources = (await api.get("/apis/extensions/v1beta1")).body["resources"]
    assert all("categories" not in one for one in resources), "`kubectl get all` would list them twice"
