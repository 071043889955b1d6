"""ResourceQuotas on values: what a write adds is compared with what is left."""

import asyncio
from typing import Any

import pytest

from tests.support.cluster.object_stores import put, store_with
from tests.support.objects.manifests import config_map, pod
from trainwright.cluster.apiserver.admission.plugins.resource_quota import QuotaLocks, admit_quota
from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.resources.registry import Registry
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.objects import Object
from trainwright.objects.resources import (
    CONFIG_MAPS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_QUOTAS,
    SERVICES,
    Resource,
)

TYPES = Registry()


def quota(*, namespace: str = "default", scopes: list[str] | None = None, **hard: str) -> tuple[Resource, Object]:
    spec: Object = {"hard": {name.replace("_", "."): amount for name, amount in hard.items()} or None}
    return RESOURCE_QUOTAS, {"metadata": {"name": "q", "namespace": namespace}, "spec": spec | {"scopes": scopes}}


def stored(resource: Resource, obj: Object) -> tuple[Resource, Object]:
    return resource, obj | {"metadata": {"namespace": "default", **obj["metadata"]}}


def service(kind: str, *ports: int) -> Object:
    return {"metadata": {"name": "web"}, "spec": {"type": kind, "ports": [{"port": port} for port in ports]}}


def claim(size: str) -> Object:
    return {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": size}}}}


def problem(store: ObjectStore, resource: Resource, new: Object, old: Object | None = None) -> str | None:
    """Why the object, or its update, is refused."""
    try:
        admit_quota(store, TYPES.of(resource), "default", new, old)
    except StatusError as error:
        return error.message.partition(" is forbidden: ")[2]
    return None


async def test_object_that_exceeds_the_quota_is_forbidden() -> None:
    store = await store_with(quota(configmaps="2"), stored(CONFIG_MAPS, config_map("one")))
    assert problem(store, CONFIG_MAPS, config_map("two")) is None
    await put(store, *stored(CONFIG_MAPS, config_map("two")))
    assert problem(store, CONFIG_MAPS, config_map("three")) == (
        "exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2"
    )


async def test_pod_must_state_what_the_quota_limits() -> None:
    store = await store_with(quota(limits_memory="1Gi"))
    assert problem(store, PODS, pod()) == "failed quota: q: must specify limits.memory for: main"
    assert problem(store, PODS, pod(resources={"limits": {"memory": "1Gi"}})) is None


@pytest.mark.parametrize(
    ("limited", "resource", "body"),
    [
        (quota(namespace="other", pods="0"), PODS, pod()),
        (quota(configmaps="0"), SERVICES, service("ClusterIP", 80)),
        (quota(), PODS, pod()),
        (quota(pods="0", scopes=["Terminating"]), PODS, pod()),
        (quota(configmaps="0", scopes=["Terminating"]), CONFIG_MAPS, config_map("c")),
        (quota(resourcequotas="0"), RESOURCE_QUOTAS, quota()[1]),
    ],
)
async def test_quota_of_something_else_concerns_no_object(
    limited: tuple[Resource, Object], resource: Resource, body: Object
) -> None:
    assert problem(await store_with(limited), resource, body) is None


async def test_namespace_without_quotas_has_no_limits() -> None:
    assert problem(await store_with(), PODS, pod()) is None


@pytest.mark.parametrize(
    ("new", "requested"),
    [
        (service("NodePort", 80), None),
        (service("NodePort", 80, 81), "services.nodeports=1, used: services.nodeports=1"),
        (service("LoadBalancer", 80), "services.loadbalancers=1, used: services.loadbalancers=0"),
        (service("ClusterIP", 80, 81, 82), None),
    ],
)
async def test_update_of_a_service_counts_what_it_adds(new: Object, requested: str | None) -> None:
    old = service("NodePort", 80)
    limits = quota(services="1", services_nodeports="1", services_loadbalancers="0")
    found = problem(await store_with(limits, stored(SERVICES, old)), SERVICES, new, old)
    assert (found is None) if requested is None else (requested in (found or ""))


@pytest.mark.parametrize(("size", "allowed"), [("1Gi", True), ("3Gi", True), ("4Gi", False)])
async def test_update_of_a_claim_counts_what_it_adds(size: str, allowed: bool) -> None:
    old = claim("2Gi")
    store = await store_with(quota(requests_storage="3Gi"), stored(PERSISTENT_VOLUME_CLAIMS, old))
    found = problem(store, PERSISTENT_VOLUME_CLAIMS, claim(size), old)
    assert found == (
        None
        if allowed
        else "exceeded quota: q, requested: requests.storage=2Gi, used: requests.storage=2Gi, limited: "
        "requests.storage=3Gi"
    )


async def test_update_is_allowed_although_the_quota_is_exceeded_already() -> None:
    store = await store_with(quota(requests_storage="1Gi"), stored(PERSISTENT_VOLUME_CLAIMS, claim("2Gi")))
    assert problem(store, PERSISTENT_VOLUME_CLAIMS, claim("2Gi"), claim("2Gi")) is None


async def test_pod_that_enters_a_scope_counts_as_a_whole() -> None:
    store = await store_with(quota(pods="0", scopes=["Terminating"]), stored(PODS, pod()))
    ending = pod(spec={"activeDeadlineSeconds": 60})
    assert problem(store, PODS, ending, pod()) == "exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0"
    assert problem(store, PODS, ending, ending) is None


@pytest.mark.parametrize(("namespace", "follow"), [("default", True), ("other", False)])
async def test_writes_follow_each_other_in_a_namespace_with_quotas(namespace: str, follow: bool) -> None:
    locks = QuotaLocks(await store_with(quota(pods="1")))
    running = most = 0

    async def write(*_: Any) -> None:
        nonlocal running, most
        async with locks.hold(namespace):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(write(), write())

    assert most == (1 if follow else 2)
