import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.cluster.controllers.conftest import ControllerCluster
from tests.support.waiting import eventually
from trainwright.kube.client.errors import NotFound
from trainwright.objects import Object
from trainwright.objects.metadata import controller_reference
from trainwright.objects.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)

_numbers = itertools.count(1)


async def make(
    cluster: ControllerCluster, name: str, *owners: Object, resource: Resource = CONFIG_MAPS, **metadata: Any
) -> Object:
    references = [{**controller_reference(owner), "controller": False} for owner in owners]
    obj: Object = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "namespace": cluster.namespace, "ownerReferences": references, **metadata},
    }
    if resource == SERVICES:
        obj["spec"] = {"clusterIP": "None", "selector": {"a": "b"}}
    if resource == ROLE_BINDINGS:
        obj["roleRef"] = {"kind": "Role", "name": name}
    return await cluster.client.create(resource, obj)


async def exists(cluster: ControllerCluster, obj: Object, resource: Resource = CONFIG_MAPS) -> bool:
    try:
        found = await cluster.client.get(resource, obj["metadata"]["name"], namespace=cluster.namespace)
    except NotFound:
        return False
    return bool(found["metadata"]["uid"] == obj["metadata"]["uid"])


async def gone(cluster: ControllerCluster, obj: Object, resource: Resource = CONFIG_MAPS) -> None:
    await eventually(lambda: exists(cluster, obj, resource), lambda there: not there, seconds=60)


async def delete(
    cluster: ControllerCluster, obj: Object, propagation: str = "Background", resource: Resource = CONFIG_MAPS
) -> None:
    await cluster.client.delete(resource, obj["metadata"]["name"], namespace=cluster.namespace, propagation=propagation)


async def test_dependents_of_all_kinds_and_depths_are_deleted_with_their_owner(cluster: ControllerCluster) -> None:
    owner, bystander = await make(cluster, "owner"), await make(cluster, "bystander")
    secret, service = (
        await make(cluster, "child", owner, resource=SECRETS),
        await make(cluster, "child", owner, resource=SERVICES),
    )
    grandchild = await make(cluster, "grandchild", secret | {"apiVersion": "v1", "kind": "Secret"})
    await delete(cluster, owner)
    await gone(cluster, secret, SECRETS)
    await gone(cluster, service, SERVICES)
    await gone(cluster, grandchild)
    assert await exists(cluster, bystander)


async def test_accounts_and_roles_are_deleted_with_their_owner(cluster: ControllerCluster) -> None:
    owner = await make(cluster, "owner")
    children = [
        (resource, await make(cluster, "child", owner, resource=resource))
        for resource in (SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, CONFIG_MAPS)
    ]

    await delete(cluster, owner)

    for resource, child in children:
        await gone(cluster, child, resource)


async def test_object_with_two_owners_is_deleted_with_the_last(cluster: ControllerCluster) -> None:
    first, second = await make(cluster, "first"), await make(cluster, "second")
    child = await make(cluster, "child", first, second)
    await delete(cluster, first)

    async def owners() -> list[str]:
        found = await cluster.client.get(CONFIG_MAPS, "child", namespace=cluster.namespace)
        return [one["name"] for one in found["metadata"].get("ownerReferences") or ()]

    await eventually(owners, lambda names: names == ["second"], seconds=60)
    await delete(cluster, second)
    await gone(cluster, child)


async def test_an_owner_of_the_same_name_is_not_the_same_owner(cluster: ControllerCluster) -> None:
    old = await make(cluster, "owner")
    await delete(cluster, old)
    await gone(cluster, old)
    new = await make(cluster, "owner")
    stray, child = await make(cluster, "stray", old), await make(cluster, "child", new)
    await gone(cluster, stray)
    assert await exists(cluster, child)
    assert await exists(cluster, new)


async def test_foreground_deletion_keeps_the_owner_until_its_dependents_are_gone(cluster: ControllerCluster) -> None:
    owner = await make(cluster, "owner")
    child = await make(cluster, "child", owner, finalizers=["example.com/busy"])
    await delete(cluster, owner, "Foreground")

    async def going() -> Object:
        found = await cluster.client.get(CONFIG_MAPS, "child", namespace=cluster.namespace)
        return dict(found["metadata"])

    await eventually(going, lambda metadata: "deletionTimestamp" in metadata, seconds=60)
    waiting = await cluster.client.get(CONFIG_MAPS, "owner", namespace=cluster.namespace)
    assert waiting["metadata"]["finalizers"] == ["foregroundDeletion"]
    await cluster.client.patch(CONFIG_MAPS, "child", {"metadata": {"finalizers": None}}, namespace=cluster.namespace)
    await gone(cluster, child)
    await gone(cluster, owner)


async def test_orphans_are_kept_without_owner_reference(cluster: ControllerCluster) -> None:
    owner = await make(cluster, "owner")
    child = await make(cluster, "child", owner)
    await delete(cluster, owner, "Orphan")
    await gone(cluster, owner)
    left = await cluster.client.get(CONFIG_MAPS, "child", namespace=cluster.namespace)
    assert left["metadata"]["uid"] == child["metadata"]["uid"]
    assert not left["metadata"].get("ownerReferences")


@pytest.fixture
async def widgets(embedded: ControllerCluster) -> AsyncIterator[Resource]:
    """A custom kind that appears while the collector runs. (Upstream's looks for new kinds every 30 s only.)"""
    number = next(_numbers)
    group, plural = f"g{number}.example.com", "widgets"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    await embedded.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    resource = Resource(group, "v1", plural, "Widget")

    async def served() -> bool:
        try:
            await embedded.client.list(resource, namespace=embedded.namespace)
        except NotFound:
            return False
        return True

    await eventually(served, bool)
    yield resource
    await embedded.client.delete(CUSTOM_RESOURCE_DEFINITIONS, f"{plural}.{group}")


async def test_custom_kinds_own_and_are_owned(embedded: ControllerCluster, widgets: Resource) -> None:
    widget = await make(embedded, "owner", resource=widgets)
    part = await make(embedded, "part", widget, resource=widgets)
    child = await make(embedded, "child", part)
    await delete(embedded, widget, resource=widgets)
    await gone(embedded, part, widgets)
    await gone(embedded, child)


async def test_owner_of_an_unknown_kind_is_not_taken_as_deleted(embedded: ControllerCluster) -> None:
    unknown = {"apiVersion": "nobody.example.com/v1", "kind": "Unknown", "metadata": {"name": "x", "uid": "u"}}
    kept = await make(embedded, "kept", unknown)
    absent = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "never-was", "uid": "u2"}}
    canary = await make(embedded, "canary", absent)
    await gone(embedded, canary)  # the collector has been here
    assert await exists(embedded, kept)


async def test_many_dependents_at_once_leave_none_behind(embedded: ControllerCluster) -> None:
    owner = await make(embedded, "owner")
    await asyncio.gather(*(make(embedded, f"child-{number}", owner) for number in range(60)))
    await delete(embedded, owner)

    async def left() -> list[str]:
        found = (await embedded.client.list(CONFIG_MAPS, namespace=embedded.namespace)).items
        return [one["metadata"]["name"] for one in found if one["metadata"]["name"].startswith("child-")]

    await eventually(left, lambda names: not names)


async def test_a_dependent_that_is_seen_before_its_owner_is_not_garbage(embedded: ControllerCluster) -> None:
    async def pair(number: int) -> Object:
        owner = await make(embedded, f"owner-{number}", resource=SECRETS)
        return await make(embedded, f"child-{number}", owner | {"apiVersion": "v1", "kind": "Secret"})

    children = await asyncio.gather(*(pair(number) for number in range(80)))
    absent = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "never-was", "uid": "u"}}
    await gone(embedded, await make(embedded, "canary", absent))  # the collector is through with what came before
    assert all(await asyncio.gather(*(exists(embedded, child) for child in children)))


@pytest.mark.thorough("real")  # which tries again after ten seconds
async def test_content_of_a_deleted_namespace_is_deleted(cluster: ControllerCluster) -> None:
    name = f"{cluster.namespace}-inner"
    await cluster.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    inner = ControllerCluster(cluster.client, name, embedded=cluster.embedded, directory=cluster.directory)
    held = await make(inner, "held", finalizers=["example.com/busy"])
    plain = await make(inner, "plain", resource=SECRETS)
    await cluster.client.delete(NAMESPACES, name)
    await gone(inner, plain, SECRETS)

    async def conditions() -> dict[str, str]:
        found = (await cluster.client.get(NAMESPACES, name))["status"]
        assert found["phase"] == "Terminating"
        return {one["type"]: one["message"] for one in found.get("conditions") or () if one["status"] == "True"}

    said = await eventually(conditions, lambda seen: "NamespaceFinalizersRemaining" in seen)
    assert said["NamespaceContentRemaining"] == "Some resources are remaining: configmaps. has 1 resource instances"
    assert "example.com/busy in 1 resource instances" in said["NamespaceFinalizersRemaining"]

    await cluster.client.patch(CONFIG_MAPS, "held", {"metadata": {"finalizers": None}}, namespace=name)
    await gone(inner, held)

    async def there() -> bool:
        try:
            await cluster.client.get(NAMESPACES, name)
        except NotFound:
            return False
        return True

    await eventually(there, lambda still: not still, seconds=60)
