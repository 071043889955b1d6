"""ResourceQuotas on the embedded cluster and on a real control plane."""

import asyncio
from typing import Any

import pytest

from tests.cluster.controllers.conftest import ControllerCluster
from tests.support.objects.manifests import config_map, pod, replica_set
from tests.support.waiting import eventually
from trainwright.kube.client.errors import ApiError, Forbidden
from trainwright.objects import Object
from trainwright.objects.conditions import find_condition
from trainwright.objects.resources import (
    CONFIG_MAPS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    SERVICES,
    STORAGE_CLASSES,
    Resource,
)


async def limit(cluster: ControllerCluster, **spec: Any) -> None:
    """Creates the quota and waits until it is enforced."""
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": spec}
    await cluster.client.create(RESOURCE_QUOTAS, body, namespace=cluster.namespace)
    await used(cluster, dict.fromkeys(spec["hard"], "0") if "configmaps" not in spec["hard"] else {})


async def used(cluster: ControllerCluster, amounts: dict[str, str]) -> Object:
    async def status() -> Object:
        found = await cluster.client.get(RESOURCE_QUOTAS, "q", namespace=cluster.namespace)
        return found.get("status") or {}

    return await eventually(status, lambda found: "hard" in found and amounts.items() <= found["used"].items())


async def refusal(cluster: ControllerCluster, body: dict[str, Any]) -> str:
    with pytest.raises(ApiError) as failure:
        await cluster.client.create(PODS, body, namespace=cluster.namespace)
    return str(failure.value)


async def refused_change(cluster: ControllerCluster, resource: Resource, name: str, spec: dict[str, Any]) -> str:
    with pytest.raises(Forbidden) as failure:
        await cluster.client.patch(resource, name, {"spec": spec}, namespace=cluster.namespace)
    return str(failure.value)


async def test_pods_beyond_the_limit_are_forbidden(cluster: ControllerCluster) -> None:
    await limit(cluster, hard={"pods": "1"})
    await cluster.client.create(PODS, pod("one"), namespace=cluster.namespace)
    assert await refusal(cluster, pod("two")) == (
        'pods "two" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
    )
    await used(cluster, {"pods": "1"})
    await cluster.client.patch(
        PODS, "one", {"status": {"phase": "Succeeded"}}, namespace=cluster.namespace, subresource="status"
    )
    await used(cluster, {"pods": "0"})

    async def created() -> bool:
        try:
            await cluster.client.create(PODS, pod("two"), namespace=cluster.namespace)
        except Forbidden:
            return False
        return True

    await eventually(created, bool)  # the real admission reads the quota with a delay


async def test_requests_and_limits_are_summed_and_demanded(cluster: ControllerCluster) -> None:
    await limit(cluster, hard={"requests.cpu": "1", "limits.memory": "1Gi"})
    assert await refusal(cluster, pod()) == (
        'pods "p" is forbidden: failed quota: q: must specify limits.memory for: main; requests.cpu for: main'
    )
    resources = {"requests": {"cpu": "600m"}, "limits": {"memory": "512Mi"}}
    await cluster.client.create(PODS, pod("one", resources=resources), namespace=cluster.namespace)
    assert await refusal(cluster, pod("two", resources=resources)) == (
        'pods "two" is forbidden: exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=600m, limited: '
        "requests.cpu=1"
    )
    await used(cluster, {"requests.cpu": "600m", "limits.memory": "512Mi"})
    inits = [
        {"name": "sidecar", "image": "i", "restartPolicy": "Always", "resources": resources},
        {"name": "late", "image": "i", "resources": {**resources, "requests": {"cpu": "900m"}}},
    ]
    assert await refusal(cluster, pod("three", resources=resources, spec={"initContainers": inits})) == (
        'pods "three" is forbidden: exceeded quota: q, requested: limits.memory=1Gi,requests.cpu=1500m, used: '
        "limits.memory=512Mi,requests.cpu=600m, limited: limits.memory=1Gi,requests.cpu=1"
    )


async def test_any_kind_can_be_counted(cluster: ControllerCluster) -> None:
    present = len((await cluster.client.list(CONFIG_MAPS, namespace=cluster.namespace)).items)
    await limit(cluster, hard={"configmaps": str(present + 1)})
    await used(cluster, {"configmaps": str(present)})
    await cluster.client.create(CONFIG_MAPS, config_map("one"), namespace=cluster.namespace)
    with pytest.raises(ApiError, match="exceeded quota: q, requested: configmaps=1"):
        await cluster.client.create(CONFIG_MAPS, config_map("two"), namespace=cluster.namespace)


async def test_scopes_limit_what_counts(cluster: ControllerCluster) -> None:
    await limit(cluster, hard={"pods": "1"}, scopes=["Terminating"])
    for name in ("one", "two"):
        await cluster.client.create(PODS, pod(name), namespace=cluster.namespace)
    await cluster.client.create(PODS, pod("short", spec={"activeDeadlineSeconds": 60}), namespace=cluster.namespace)
    assert "exceeded quota" in await refusal(cluster, pod("shorter", spec={"activeDeadlineSeconds": 60}))


async def test_service_that_gets_more_node_ports_is_counted(cluster: ControllerCluster) -> None:
    await limit(cluster, hard={"services.nodeports": "1", "services.loadbalancers": "0"})
    ports = [{"name": name, "port": number} for name, number in (("a", 80), ("b", 81))]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": ports}}
    await cluster.client.create(SERVICES, service, namespace=cluster.namespace)

    assert await refused_change(cluster, SERVICES, "web", {"type": "NodePort"}) == (
        'services "web" is forbidden: exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=0, '
        "limited: services.nodeports=1"
    )
    one = {"type": "NodePort", "ports": ports[:1]}
    await cluster.client.patch(SERVICES, "web", {"spec": one}, namespace=cluster.namespace)
    assert await refused_change(cluster, SERVICES, "web", {"ports": ports}) == (
        'services "web" is forbidden: exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=1, '
        "limited: services.nodeports=1"
    )
    assert "requested: services.loadbalancers=1, used" in await refused_change(
        cluster, SERVICES, "web", {"type": "LoadBalancer"}
    )
    await cluster.client.patch(SERVICES, "web", {"metadata": {"labels": {"a": "b"}}}, namespace=cluster.namespace)


async def test_claim_that_grows_is_counted(cluster: ControllerCluster) -> None:
    await limit(cluster, hard={"requests.storage": "3Gi"})
    name = f"grows-{cluster.namespace}"
    grows = {"metadata": {"name": name}, "provisioner": "example.com/none", "allowVolumeExpansion": True}
    await cluster.client.create(STORAGE_CLASSES, {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", **grows})
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": name,
        "volumeName": "volume",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}
    await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, claim, namespace=cluster.namespace)
    bound = {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
    await cluster.client.patch(
        PERSISTENT_VOLUME_CLAIMS, "data", bound, namespace=cluster.namespace, subresource="status"
    )

    large = {"resources": {"requests": {"storage": "4Gi"}}}
    assert await refused_change(cluster, PERSISTENT_VOLUME_CLAIMS, "data", large) == (
        'persistentvolumeclaims "data" is forbidden: exceeded quota: q, requested: requests.storage=3Gi, used: '
        "requests.storage=1Gi, limited: requests.storage=3Gi"
    )


async def test_pod_that_enters_a_scope_is_counted(cluster: ControllerCluster) -> None:
    await limit(cluster, hard={"pods": "0"}, scopes=["Terminating"])
    await cluster.client.create(PODS, pod("long"), namespace=cluster.namespace)

    assert await refused_change(cluster, PODS, "long", {"activeDeadlineSeconds": 60}) == (
        'pods "long" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0'
    )
    await cluster.client.patch(PODS, "long", {"metadata": {"labels": {"a": "b"}}}, namespace=cluster.namespace)


async def test_concurrent_creates_do_not_exceed_the_limit(cluster: ControllerCluster) -> None:
    await limit(cluster, hard={"pods": "3"})
    results = await asyncio.gather(
        *(cluster.client.create(PODS, pod(f"p{number}"), namespace=cluster.namespace) for number in range(8)),
        return_exceptions=True,
    )
    assert sum(isinstance(one, dict) for one in results) == 3


async def test_replica_set_says_that_the_quota_is_exceeded(cluster: ControllerCluster) -> None:
    await limit(cluster, hard={"pods": "1"})
    await cluster.client.create(REPLICA_SETS, replica_set(replicas=2), namespace=cluster.namespace)

    async def failure() -> Object:
        found = await cluster.client.get(REPLICA_SETS, "web", namespace=cluster.namespace)
        return find_condition(found.get("status") or {}, "ReplicaFailure") or {}

    found = await eventually(failure, bool)
    assert (found["status"], found["reason"]) == ("True", "FailedCreate")
    assert "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1" in found["message"]
