"""Sets of pods on our controllers and on the real kube-controller-manager: the same scripts.

The test plays the kubelet.
"""

from typing import Any

from tests.cluster.controllers.conftest import Arena
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
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)

LONG_AGO = "2026-01-01T00:00:00Z"


def stateful_set(replicas: int = 2, **spec: Any) -> dict[str, Any]:
    return replica_set("db", replicas=replicas, image="one", serviceName="db", **spec) | {"kind": "StatefulSet"}


async def create(arena: Arena, resource: Resource, body: dict[str, Any]) -> Object:
    return await arena.client.create(resource, body, namespace=arena.namespace)


async def change(arena: Arena, resource: Resource, name: str, spec: Object) -> None:
    await arena.client.patch(resource, name, {"spec": spec}, namespace=arena.namespace, kind=PatchKind.MERGE)


async def pods(arena: Arena) -> dict[str, Object]:
    found = (await arena.client.list(PODS, namespace=arena.namespace)).items
    return {one["metadata"]["name"]: one for one in found if "deletionTimestamp" not in one["metadata"]}


async def make_ready(arena: Arena, name: str) -> None:
    """The pods have no node, so that they are removed as soon as they are deleted."""
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO}],
    }
    try:
        await arena.client.patch(PODS, name, {"status": status}, namespace=arena.namespace, subresource="status")
    except NotFound:
        return  # deleted meanwhile


async def settle(arena: Arena, replicas: int, *, updated: int | None = None) -> Object:
    """Makes pods ready until the StatefulSet reports as many."""

    async def progress() -> Object:
        for name, pod in (await pods(arena)).items():
            if pod["status"]["phase"] != "Running":
                await make_ready(arena, name)
        return await arena.client.get(STATEFUL_SETS, "db", namespace=arena.namespace)

    def done(found: Object) -> bool:
        status = found.get("status") or {}
        counts = {status.get(one, 0) for one in ("replicas", "readyReplicas")}
        observed = status.get("observedGeneration") == found["metadata"]["generation"]
        return observed and counts == {replicas} and status.get("updatedReplicas", 0) == (updated or replicas)

    return await eventually(progress, done, seconds=60)


async def reported(arena: Arena, replicas: int) -> None:
    """Waits until the status of the StatefulSet has this number of pods."""

    async def status() -> Object:
        found = await arena.client.get(STATEFUL_SETS, "db", namespace=arena.namespace)
        return dict(found.get("status") or {})

    await eventually(status, lambda found: found.get("replicas") == replicas)


async def replaced(arena: Arena, before: Object) -> Object:
    """The new pod of the same name."""
    name, uid = before["metadata"]["name"], before["metadata"]["uid"]

    def is_new(found: dict[str, Object]) -> bool:
        return name in found and found[name]["metadata"]["uid"] != uid

    return (await eventually(lambda: pods(arena), is_new))[name]


def images(found: dict[str, Object]) -> dict[str, str]:
    return {name: pod["spec"]["containers"][0]["image"] for name, pod in found.items()}


async def test_each_pod_waits_for_the_one_before_it(arena: Arena) -> None:
    await create(arena, STATEFUL_SETS, stateful_set(replicas=3))
    for count in (1, 2):
        await reported(arena, count)
        assert sorted(await pods(arena)) == [f"db-{number}" for number in range(count)]
        await make_ready(arena, f"db-{count - 1}")

    status = (await settle(arena, 3))["status"]
    assert status["currentRevision"] == status["updateRevision"]
    last = (await pods(arena))["db-2"]
    assert last["metadata"]["labels"] == {
        "app": "db",
        "apps.kubernetes.io/pod-index": "2",
        "controller-revision-hash": status["updateRevision"],
        "statefulset.kubernetes.io/pod-name": "db-2",
    }
    assert (last["spec"]["hostname"], last["spec"]["subdomain"]) == ("db-2", "db")


async def test_scaling_down_removes_the_last_pods_and_keeps_their_claims(arena: Arena) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "no", "resources": {"requests": {"storage": "1Gi"}}}
    templates = [{"metadata": {"name": "data"}, "spec": claim}]
    await create(arena, STATEFUL_SETS, stateful_set(replicas=3, volumeClaimTemplates=templates))
    await settle(arena, 3)

    await change(arena, STATEFUL_SETS, "db", {"replicas": 1})

    await settle(arena, 1)
    assert list(await pods(arena)) == ["db-0"]
    claims = (await arena.client.list(PERSISTENT_VOLUME_CLAIMS, namespace=arena.namespace)).items
    assert sorted(one["metadata"]["name"] for one in claims) == ["data-db-0", "data-db-1", "data-db-2"]
    assert claims[0]["metadata"]["labels"] == {"app": "db"}


async def test_rolling_update_ends_at_the_partition(arena: Arena) -> None:
    await create(arena, STATEFUL_SETS, stateful_set(replicas=3))
    await settle(arena, 3)
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    template = {"spec": {"containers": [{"name": "main", "image": "two"}]}}

    await change(arena, STATEFUL_SETS, "db", {"updateStrategy": rolling, "template": template})
    found = await settle(arena, 3, updated=2)
    assert images(await pods(arena)) == {"db-0": "one", "db-1": "two", "db-2": "two"}
    assert found["status"]["currentRevision"] != found["status"]["updateRevision"]

    before = (await pods(arena))["db-0"]
    await arena.client.delete(PODS, "db-0", namespace=arena.namespace)
    again = await replaced(arena, before)
    assert again["spec"]["containers"][0]["image"] == "one"  # the old template

    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    await change(arena, STATEFUL_SETS, "db", {"updateStrategy": rolling})
    found = await settle(arena, 3)
    assert set(images(await pods(arena)).values()) == {"two"}
    assert found["status"]["currentRevision"] == found["status"]["updateRevision"]


async def test_parallel_pods_do_not_wait(arena: Arena) -> None:
    await create(arena, STATEFUL_SETS, stateful_set(replicas=3, podManagementPolicy="Parallel"))
    found = await eventually(lambda: pods(arena), lambda seen: len(seen) == 3)
    assert sorted(found) == ["db-0", "db-1", "db-2"]


async def test_failed_pod_is_replaced(arena: Arena) -> None:
    await create(arena, STATEFUL_SETS, stateful_set(replicas=1))
    before = (await eventually(lambda: pods(arena), len))["db-0"]
    failed = {"status": {"phase": "Failed"}}
    await arena.client.patch(PODS, "db-0", failed, namespace=arena.namespace, subresource="status")
    await replaced(arena, before)


async def test_daemon_set_has_a_pod_on_each_node_that_it_selects(arena: Arena) -> None:
    label = {"arena": arena.namespace}
    body = replica_set("agent", image="one") | {"kind": "DaemonSet"}
    del body["spec"]["replicas"]
    body["spec"]["template"]["spec"]["nodeSelector"] = label
    name = f"node-{arena.namespace}"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": label}}
    await arena.client.create(NODES, node)
    try:
        # The real server taints new nodes until a controller finds them ready.
        await arena.client.patch(NODES, name, {"spec": {"taints": None}}, kind=PatchKind.MERGE)
        await create(arena, DAEMON_SETS, body)
        [pod] = (await eventually(lambda: pods(arena), len)).values()
        terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        wanted = {"key": "metadata.name", "operator": "In", "values": [name]}
        assert terms == {"nodeSelectorTerms": [{"matchFields": [wanted]}]}
        assert pod["metadata"]["labels"]["pod-template-generation"] == "1"
        await make_ready(arena, pod["metadata"]["name"])

        async def status() -> Object:
            found = await arena.client.get(DAEMON_SETS, "agent", namespace=arena.namespace)
            return dict(found.get("status") or {})

        reported = await eventually(status, lambda found: found.get("numberReady") == 1)
        assert reported["desiredNumberScheduled"] == reported["updatedNumberScheduled"] == 1

        template = {"spec": {"containers": [{"name": "main", "image": "two"}]}}
        await change(arena, DAEMON_SETS, "agent", {"template": template})
        await eventually(lambda: pods(arena), lambda found: set(images(found).values()) == {"two"})

        if arena.embedded:  # upstream's controller takes its time, because the pod has never been bound
            await arena.client.patch(NODES, name, {"metadata": {"labels": {"arena": None}}}, kind=PatchKind.MERGE)
            await eventually(lambda: pods(arena), lambda found: not found)
    finally:
        await arena.client.delete(NODES, name)


async def test_replication_controller_keeps_its_number_of_pods(arena: Arena) -> None:
    template = {"metadata": {"labels": {"app": "old"}}, "spec": {"containers": [{"name": "main", "image": "one"}]}}
    body = {
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "metadata": {"name": "old"},
        "spec": {"replicas": 2, "template": template},
    }
    await create(arena, REPLICATION_CONTROLLERS, body)
    found = await eventually(lambda: pods(arena), lambda seen: len(seen) == 2)
    assert all(one["metadata"]["generateName"] == "old-" for one in found.values())

    await arena.client.delete(PODS, next(iter(found)), namespace=arena.namespace)
    await eventually(lambda: pods(arena), lambda seen: len(seen) == 2 and seen.keys() != found.keys())
    await change(arena, REPLICATION_CONTROLLERS, "old", {"replicas": 0})
    await eventually(lambda: pods(arena), lambda seen: not seen)
