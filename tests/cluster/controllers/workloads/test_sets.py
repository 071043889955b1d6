"""Sets of pods on our controllers and on the real kube-controller-manager: the same scripts.

The test writes the status of pods in place of the kubelet.
"""

from typing import Any

from tests.cluster.controllers.conftest import ControllerCluster
from tests.support.objects.manifests import replica_set
from tests.support.waiting import eventually
from trainwright.kube.client.errors import NotFound
from trainwright.kube.client.requests import PatchKind
from trainwright.objects import Object
from trainwright.objects.resources import (
    DAEMON_SETS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
    Resource,
)

LONG_AGO = "2026-01-01T00:00:00Z"


def stateful_set(replicas: int = 2, **spec: Any) -> dict[str, Any]:
    return replica_set("db", replicas=replicas, image="one", serviceName="db", **spec) | {"kind": "StatefulSet"}


async def create(cluster: ControllerCluster, resource: Resource, body: dict[str, Any]) -> Object:
    return await cluster.client.create(resource, body, namespace=cluster.namespace)


async def change(cluster: ControllerCluster, resource: Resource, name: str, spec: Object) -> None:
    await cluster.client.patch(resource, name, {"spec": spec}, namespace=cluster.namespace, kind=PatchKind.MERGE)


async def pods(cluster: ControllerCluster) -> dict[str, Object]:
    found = (await cluster.client.list(PODS, namespace=cluster.namespace)).items
    return {one["metadata"]["name"]: one for one in found if "deletionTimestamp" not in one["metadata"]}


async def make_ready(cluster: ControllerCluster, name: str) -> None:
    """The pods have no node, so that they are removed as soon as they are deleted."""
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO}],
    }
    try:
        await cluster.client.patch(PODS, name, {"status": status}, namespace=cluster.namespace, subresource="status")
    except NotFound:
        return  # deleted meanwhile


async def settle(cluster: ControllerCluster, replicas: int, *, updated: int | None = None) -> Object:
    """Makes pods ready until the StatefulSet reports as many."""

    async def progress() -> Object:
        for name, pod in (await pods(cluster)).items():
            if pod["status"]["phase"] != "Running":
                await make_ready(cluster, name)
        return await cluster.client.get(STATEFUL_SETS, "db", namespace=cluster.namespace)

    def done(found: Object) -> bool:
        status = found.get("status") or {}
        counts = {status.get(one, 0) for one in ("replicas", "readyReplicas")}
        observed = status.get("observedGeneration") == found["metadata"]["generation"]
        return observed and counts == {replicas} and status.get("updatedReplicas", 0) == (updated or replicas)

    return await eventually(progress, done, seconds=60)


async def reported(cluster: ControllerCluster, replicas: int) -> None:
    """Waits until the status of the StatefulSet has this number of pods."""

    async def status() -> Object:
        found = await cluster.client.get(STATEFUL_SETS, "db", namespace=cluster.namespace)
        return dict(found.get("status") or {})

    await eventually(status, lambda found: found.get("replicas") == replicas)


async def replaced(cluster: ControllerCluster, before: Object) -> Object:
    """The new pod of the same name."""
    name, uid = before["metadata"]["name"], before["metadata"]["uid"]

    def is_new(found: dict[str, Object]) -> bool:
        return name in found and found[name]["metadata"]["uid"] != uid

    return (await eventually(lambda: pods(cluster), is_new))[name]


def images(found: dict[str, Object]) -> dict[str, str]:
    return {name: pod["spec"]["containers"][0]["image"] for name, pod in found.items()}


async def test_each_pod_waits_for_the_one_before_it(cluster: ControllerCluster) -> None:
    await create(cluster, STATEFUL_SETS, stateful_set(replicas=3))
    for count in (1, 2):
        await reported(cluster, count)
        assert sorted(await pods(cluster)) == [f"db-{number}" for number in range(count)]
        await make_ready(cluster, f"db-{count - 1}")

    status = (await settle(cluster, 3))["status"]
    assert status["currentRevision"] == status["updateRevision"]
    last = (await pods(cluster))["db-2"]
    assert last["metadata"]["labels"] == {
        "app": "db",
        "apps.kubernetes.io/pod-index": "2",
        "controller-revision-hash": status["updateRevision"],
        "statefulset.kubernetes.io/pod-name": "db-2",
    }
    assert (last["spec"]["hostname"], last["spec"]["subdomain"]) == ("db-2", "db")


async def test_scaling_down_removes_the_last_pods_and_keeps_their_claims(cluster: ControllerCluster) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "no", "resources": {"requests": {"storage": "1Gi"}}}
    templates = [{"metadata": {"name": "data"}, "spec": claim}]
    await create(cluster, STATEFUL_SETS, stateful_set(replicas=3, volumeClaimTemplates=templates))
    await settle(cluster, 3)

    await change(cluster, STATEFUL_SETS, "db", {"replicas": 1})

    await settle(cluster, 1)
    assert list(await pods(cluster)) == ["db-0"]
    claims = (await cluster.client.list(PERSISTENT_VOLUME_CLAIMS, namespace=cluster.namespace)).items
    assert sorted(one["metadata"]["name"] for one in claims) == ["data-db-0", "data-db-1", "data-db-2"]
    assert claims[0]["metadata"]["labels"] == {"app": "db"}


async def test_rolling_update_ends_at_the_partition(cluster: ControllerCluster) -> None:
    await create(cluster, STATEFUL_SETS, stateful_set(replicas=3))
    await settle(cluster, 3)
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    template = {"spec": {"containers": [{"name": "main", "image": "two"}]}}

    await change(cluster, STATEFUL_SETS, "db", {"updateStrategy": rolling, "template": template})
    found = await settle(cluster, 3, updated=2)
    assert images(await pods(cluster)) == {"db-0": "one", "db-1": "two", "db-2": "two"}
    assert found["status"]["currentRevision"] != found["status"]["updateRevision"]

    before = (await pods(cluster))["db-0"]
    await cluster.client.delete(PODS, "db-0", namespace=cluster.namespace)
    again = await replaced(cluster, before)
    assert again["spec"]["containers"][0]["image"] == "one"  # the old template

    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    await change(cluster, STATEFUL_SETS, "db", {"updateStrategy": rolling})
    found = await settle(cluster, 3)
    assert set(images(await pods(cluster)).values()) == {"two"}
    assert found["status"]["currentRevision"] == found["status"]["updateRevision"]


async def test_parallel_pods_do_not_wait(cluster: ControllerCluster) -> None:
    await create(cluster, STATEFUL_SETS, stateful_set(replicas=3, podManagementPolicy="Parallel"))
    found = await eventually(lambda: pods(cluster), lambda seen: len(seen) == 3)
    assert sorted(found) == ["db-0", "db-1", "db-2"]


async def test_failed_pod_is_replaced(cluster: ControllerCluster) -> None:
    await create(cluster, STATEFUL_SETS, stateful_set(replicas=1))
    before = (await eventually(lambda: pods(cluster), len))["db-0"]
    failed = {"status": {"phase": "Failed"}}
    await cluster.client.patch(PODS, "db-0", failed, namespace=cluster.namespace, subresource="status")
    await replaced(cluster, before)


async def test_daemon_set_has_a_pod_on_each_node_that_it_selects(cluster: ControllerCluster) -> None:
    label = {"cluster": cluster.namespace}
    body = replica_set("agent", image="one") | {"kind": "DaemonSet"}
    del body["spec"]["replicas"]
    body["spec"]["template"]["spec"]["nodeSelector"] = label
    name = f"node-{cluster.namespace}"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": label}}
    await cluster.client.create(NODES, node)
    try:
        # The real server taints new nodes until a controller finds them ready.
        await cluster.client.patch(NODES, name, {"spec": {"taints": None}}, kind=PatchKind.MERGE)
        await create(cluster, DAEMON_SETS, body)
        [pod] = (await eventually(lambda: pods(cluster), len)).values()
        terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        wanted = {"key": "metadata.name", "operator": "In", "values": [name]}
        assert terms == {"nodeSelectorTerms": [{"matchFields": [wanted]}]}
        assert pod["metadata"]["labels"]["pod-template-generation"] == "1"
        await make_ready(cluster, pod["metadata"]["name"])

        async def status() -> Object:
            found = await cluster.client.get(DAEMON_SETS, "agent", namespace=cluster.namespace)
            return dict(found.get("status") or {})

        reported = await eventually(status, lambda found: found.get("numberReady") == 1)
        assert reported["desiredNumberScheduled"] == reported["updatedNumberScheduled"] == 1

        template = {"spec": {"containers": [{"name": "main", "image": "two"}]}}
        await change(cluster, DAEMON_SETS, "agent", {"template": template})
        await eventually(lambda: pods(cluster), lambda found: set(images(found).values()) == {"two"})

        if cluster.embedded:  # upstream's controller takes its time, because the pod has never been bound
            await cluster.client.patch(NODES, name, {"metadata": {"labels": {"cluster": None}}}, kind=PatchKind.MERGE)
            await eventually(lambda: pods(cluster), lambda found: not found)
    finally:
        await cluster.client.delete(NODES, name)
