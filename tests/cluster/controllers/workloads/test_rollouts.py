"""Deployments and ReplicaSets on our controllers and on the real kube-controller-manager: the same scripts.

The test writes the status of pods in place of the kubelet.
"""

from typing import Any

from tests.cluster.controllers.conftest import ControllerCluster
from tests.support.objects.manifests import deployment, pod, replica_set
from tests.support.waiting import eventually
from trainwright.objects import Object
from trainwright.objects.conditions import find_condition
from trainwright.objects.resources import DEPLOYMENTS, EVENTS, PODS, REPLICA_SETS, Resource

NOW = "2026-01-01T00:00:00Z"


async def create(cluster: ControllerCluster, resource: Resource, body: dict[str, Any]) -> Object:
    return await cluster.client.create(resource, body, namespace=cluster.namespace)


async def listed(cluster: ControllerCluster, resource: Resource) -> list[Object]:
    return (await cluster.client.list(resource, namespace=cluster.namespace)).items


async def live_pods(cluster: ControllerCluster) -> list[Object]:
    return [one for one in await listed(cluster, PODS) if "deletionTimestamp" not in one["metadata"]]


async def make_ready(cluster: ControllerCluster, pods: list[Object]) -> None:
    """In place of the kubelet. The pods have no node, so that they are removed as soon as they are deleted."""
    for one in pods:
        condition = {"type": "Ready", "status": "True", "lastTransitionTime": NOW}
        status = {"phase": "Running", "conditions": [condition]}
        await cluster.client.patch(
            PODS, one["metadata"]["name"], {"status": status}, namespace=cluster.namespace, subresource="status"
        )


async def pods_of(cluster: ControllerCluster, count: int) -> list[Object]:
    return await eventually(lambda: live_pods(cluster), lambda pods: len(pods) == count)


async def counts(cluster: ControllerCluster) -> tuple[int, int]:
    """How many pods the ReplicaSet reports as ready and as available."""
    found = await cluster.client.get(REPLICA_SETS, "web", namespace=cluster.namespace)
    return found["status"].get("readyReplicas", 0), found["status"].get("availableReplicas", 0)


async def read(cluster: ControllerCluster, name: str = "web") -> Object:
    return await cluster.client.get(DEPLOYMENTS, name, namespace=cluster.namespace)


async def complete(cluster: ControllerCluster, name: str = "web") -> Object:
    """Makes pods ready until the rollout is complete."""

    async def progress() -> Object:
        waiting = [one for one in await live_pods(cluster) if one["status"].get("phase") != "Running"]
        await make_ready(cluster, waiting)
        return await read(cluster, name)

    def done(found: Object) -> bool:
        status, wanted = found.get("status") or {}, found["spec"]["replicas"]
        counts = {status.get(one, 0) for one in ("replicas", "updatedReplicas", "availableReplicas")}
        progressing = find_condition(status, "Progressing") or {}
        observed = status.get("observedGeneration") == found["metadata"]["generation"]
        return counts == {wanted} and observed and progressing.get("reason") == "NewReplicaSetAvailable"

    return await eventually(progress, done, seconds=60)


async def test_deployment_creates_labelled_pods_and_reports_availability(cluster: ControllerCluster) -> None:
    await create(cluster, DEPLOYMENTS, deployment(replicas=2))
    pods = await pods_of(cluster, 2)
    (owned,) = await listed(cluster, REPLICA_SETS)
    digest = owned["metadata"]["labels"]["pod-template-hash"]
    for one in pods:
        assert one["metadata"]["generateName"] == f"web-{digest}-"
        assert one["metadata"]["labels"] == {"app": "web", "pod-template-hash": digest}
        (owner,) = one["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("ReplicaSet", owned["metadata"]["name"], True)
    assert owned["metadata"]["annotations"] == {
        "deployment.kubernetes.io/desired-replicas": "2",
        "deployment.kubernetes.io/max-replicas": "3",
        "deployment.kubernetes.io/revision": "1",
    }

    found = await complete(cluster)

    assert found["metadata"]["annotations"] == {"deployment.kubernetes.io/revision": "1"}
    status = found["status"]
    conditions = {one["type"]: (one["status"], one["reason"], one["message"]) for one in status.pop("conditions")}
    assert status == {
        "availableReplicas": 2,
        "observedGeneration": 1,
        "readyReplicas": 2,
        "replicas": 2,
        "terminatingReplicas": 0,
        "updatedReplicas": 2,
    }
    assert conditions == {
        "Available": ("True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
        "Progressing": (
            "True",
            "NewReplicaSetAvailable",
            f'ReplicaSet "{owned["metadata"]["name"]}" has successfully progressed.',
        ),
    }
    (owned,) = await listed(cluster, REPLICA_SETS)
    assert owned["status"] == {
        "availableReplicas": 2,
        "fullyLabeledReplicas": 2,
        "observedGeneration": 1,
        "readyReplicas": 2,
        "replicas": 2,
        "terminatingReplicas": 0,
    }


async def test_events_name_pods_and_replica_sets(cluster: ControllerCluster) -> None:
    await create(cluster, DEPLOYMENTS, deployment(replicas=1))
    (one,) = await pods_of(cluster, 1)
    (owned,) = await listed(cluster, REPLICA_SETS)

    async def events() -> set[tuple[str, ...]]:
        return {
            (found["involvedObject"]["kind"], found["source"]["component"], found["reason"], found["message"])
            for found in await listed(cluster, EVENTS)
        }

    name = owned["metadata"]["name"]
    wanted = {
        ("Deployment", "deployment-controller", "ScalingReplicaSet", f"Scaled up replica set {name} from 0 to 1"),
        ("ReplicaSet", "replicaset-controller", "SuccessfulCreate", f"Created pod: {one['metadata']['name']}"),
    }
    await eventually(events, lambda found: found >= wanted)


async def test_new_image_replaces_pods_within_the_limits(cluster: ControllerCluster) -> None:
    limits = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    await create(cluster, DEPLOYMENTS, deployment(replicas=2, strategy=limits))
    await complete(cluster)

    template = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "other"}]}}}}
    await cluster.client.patch(DEPLOYMENTS, "web", template, namespace=cluster.namespace)
    pods = await pods_of(cluster, 3)
    assert sorted(one["spec"]["containers"][0]["image"] for one in pods) == ["busybox", "busybox", "other"]

    found = await complete(cluster)
    await pods_of(cluster, 2)
    assert {one["spec"]["containers"][0]["image"] for one in await live_pods(cluster)} == {"other"}
    assert found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"
    sizes = {
        one["spec"]["template"]["spec"]["containers"][0]["image"]: one for one in await listed(cluster, REPLICA_SETS)
    }
    assert sizes["busybox"]["spec"]["replicas"] == 0
    assert sizes["other"]["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"


async def test_recreate_removes_all_pods_first(cluster: ControllerCluster) -> None:
    await create(cluster, DEPLOYMENTS, deployment(replicas=2, strategy={"type": "Recreate"}))
    await complete(cluster)
    template = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "other"}]}}}}
    await cluster.client.patch(DEPLOYMENTS, "web", template, namespace=cluster.namespace)

    found = await complete(cluster)

    assert {one["spec"]["containers"][0]["image"] for one in await live_pods(cluster)} == {"other"}
    assert found["status"]["updatedReplicas"] == 2


async def test_scaling_down_deletes_pods_that_are_not_ready_first(cluster: ControllerCluster) -> None:
    await create(cluster, REPLICA_SETS, replica_set(replicas=3))
    pods = await pods_of(cluster, 3)
    await make_ready(cluster, pods[:2])
    await eventually(lambda: counts(cluster), lambda found: found == (2, 2))

    await cluster.client.patch(
        REPLICA_SETS, "web", {"spec": {"replicas": 2}}, namespace=cluster.namespace, subresource="scale"
    )

    left = await pods_of(cluster, 2)
    assert {one["metadata"]["name"] for one in left} == {one["metadata"]["name"] for one in pods[:2]}


async def test_deleted_and_failed_pods_are_replaced(cluster: ControllerCluster) -> None:
    await create(cluster, REPLICA_SETS, replica_set(replicas=2))
    first, second = await pods_of(cluster, 2)
    await cluster.client.delete(PODS, first["metadata"]["name"], namespace=cluster.namespace)
    failed = {"status": {"phase": "Failed"}}
    name = second["metadata"]["name"]
    await cluster.client.patch(PODS, name, failed, namespace=cluster.namespace, subresource="status")

    async def running() -> set[str]:
        return {one["metadata"]["name"] for one in await live_pods(cluster) if one["status"]["phase"] == "Pending"}

    old = {first["metadata"]["name"], name}
    await eventually(running, lambda names: len(names) == 2 and not names & old)


async def test_orphan_that_matches_is_adopted_and_a_relabelled_pod_is_released(cluster: ControllerCluster) -> None:
    orphan = pod("orphan")
    orphan["metadata"]["labels"] = {"app": "web"}
    # Ready, so that it stays if the controller sees the set first and creates another pod.
    await make_ready(cluster, [await create(cluster, PODS, orphan)])
    await create(cluster, REPLICA_SETS, replica_set(replicas=1))

    async def owners(name: str) -> list[str]:
        found = await cluster.client.get(PODS, name, namespace=cluster.namespace)
        return [one["name"] for one in found["metadata"].get("ownerReferences") or ()]

    await eventually(lambda: owners("orphan"), lambda names: names == ["web"])
    relabelled = {"metadata": {"labels": {"app": "other"}}}
    await cluster.client.patch(PODS, "orphan", relabelled, namespace=cluster.namespace)
    await eventually(lambda: owners("orphan"), lambda names: names == [])
    await pods_of(cluster, 2)


async def test_pods_are_available_after_their_minimum_ready_time(cluster: ControllerCluster) -> None:
    await create(cluster, REPLICA_SETS, replica_set(replicas=1, minReadySeconds=3600))
    (one,) = await pods_of(cluster, 1)
    far = {"type": "Ready", "status": "True", "lastTransitionTime": "2999-01-01T00:00:00Z"}
    status = {"status": {"phase": "Running", "conditions": [far]}}
    name = one["metadata"]["name"]
    await cluster.client.patch(PODS, name, status, namespace=cluster.namespace, subresource="status")
    await eventually(lambda: counts(cluster), lambda found: found == (1, 0))
    far["lastTransitionTime"] = NOW
    await cluster.client.patch(PODS, name, status, namespace=cluster.namespace, subresource="status")
    await eventually(lambda: counts(cluster), lambda found: found == (1, 1))


async def test_paused_deployment_shows_it_and_does_not_roll(cluster: ControllerCluster) -> None:
    await create(cluster, DEPLOYMENTS, deployment(replicas=1))
    await complete(cluster)
    change = {"spec": {"paused": True, "template": {"metadata": {"annotations": {"a": "b"}}}}}
    await cluster.client.patch(DEPLOYMENTS, "web", change, namespace=cluster.namespace)

    def paused(found: Object) -> bool:
        condition = find_condition(found["status"], "Progressing") or {}
        return (condition.get("reason"), condition.get("status")) == ("DeploymentPaused", "Unknown")

    await eventually(lambda: read(cluster), paused)
    assert len(await listed(cluster, REPLICA_SETS)) == 1
    await cluster.client.patch(DEPLOYMENTS, "web", {"spec": {"paused": False}}, namespace=cluster.namespace)
    await complete(cluster)
    assert len(await listed(cluster, REPLICA_SETS)) == 2


async def test_deleting_a_deployment_deletes_replica_sets_and_pods(cluster: ControllerCluster) -> None:
    await create(cluster, DEPLOYMENTS, deployment(replicas=1))
    await complete(cluster)
    await cluster.client.delete(DEPLOYMENTS, "web", namespace=cluster.namespace)
    await eventually(lambda: listed(cluster, REPLICA_SETS), lambda sets: not sets, seconds=60)
    await pods_of(cluster, 0)
