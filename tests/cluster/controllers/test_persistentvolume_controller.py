import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.controllers.conftest import ControllerCluster
from tests.support.background import in_background
from tests.support.waiting import eventually
from trainwright.cluster.controllers.persistentvolume_controller import PersistentVolumeController
from trainwright.kube.client.errors import NotFound
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.objects import Object
from trainwright.objects.resources import EVENTS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES

_numbers = itertools.count(1)


@pytest.fixture
async def storage(cluster: ControllerCluster, tmp_path: Path) -> AsyncIterator[ControllerCluster]:
    """Our controller runs on both servers: the real control plane of the tests has no volume controller."""
    if cluster.embedded:
        yield cluster
        return
    recorder = EventRecorder(cluster.client, "persistentvolume-controller")
    async with in_background(
        PersistentVolumeController(cluster.client, recorder, tmp_path / "volumes").controller.run()
    ):
        yield ControllerCluster(cluster.client, cluster.namespace, embedded=False, directory=tmp_path)
        for claim in (await cluster.client.list(PERSISTENT_VOLUME_CLAIMS, namespace=cluster.namespace)).items:
            await cluster.client.delete(
                PERSISTENT_VOLUME_CLAIMS, claim["metadata"]["name"], namespace=cluster.namespace
            )
        await eventually(
            lambda: cluster.client.list(PERSISTENT_VOLUME_CLAIMS, namespace=cluster.namespace),
            lambda left: not left.items,
        )
    await recorder.close()


def unique(name: str) -> str:
    return f"{name}-{next(_numbers)}"


def claim_of(storage: ControllerCluster, name: str = "data", *, size: str = "5Gi", **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": storage.namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec},
    }


async def make_volume(
    storage: ControllerCluster, name: str, *, size: str = "10Gi", labels: dict[str, str] | None = None, **spec: Any
) -> Object:
    return await storage.client.create(
        PERSISTENT_VOLUMES,
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {
                "capacity": {"storage": size},
                "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
                "hostPath": {"path": "/somewhere"},
                **spec,
            },
        },
    )


@asynccontextmanager
async def storage_class(storage: ControllerCluster, **fields: Any) -> AsyncIterator[str]:
    name = unique("class")
    body = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}, **fields}
    await storage.client.create(STORAGE_CLASSES, body)
    yield name
    await storage.client.delete(STORAGE_CLASSES, name)


async def claim_that(storage: ControllerCluster, is_so: Callable[[Object], object], name: str = "data") -> Object:
    return await eventually(
        lambda: storage.client.get(PERSISTENT_VOLUME_CLAIMS, name, namespace=storage.namespace), is_so
    )


def bound(obj: Object) -> bool:
    return bool(obj.get("status", {}).get("phase") == "Bound")


async def events_about(storage: ControllerCluster, name: str) -> list[tuple[str, str]]:
    found = await storage.client.list(EVENTS, namespace=storage.namespace, field_selector=f"involvedObject.name={name}")
    return [(one["type"], one["reason"]) for one in found.items]


async def volume_gone(storage: ControllerCluster, name: str) -> None:
    async def there() -> bool:
        try:
            await storage.client.get(PERSISTENT_VOLUMES, name)
        except NotFound:
            return False
        return True

    await eventually(there, lambda still: not still)


async def test_a_claim_finds_its_volume_by_labels_and_both_say_so(storage: ControllerCluster) -> None:
    volume, label = unique("pv"), unique("dataset")
    await storage.client.create(PERSISTENT_VOLUME_CLAIMS, claim_of(storage, selector={"matchLabels": {"name": label}}))
    await make_volume(storage, volume, labels={"name": label})  # the order must not matter
    claim = await claim_that(storage, bound)
    assert claim["spec"]["volumeName"] == volume
    assert "storageClassName" not in claim["spec"]
    assert claim["status"] == {
        "phase": "Bound",
        "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
        "capacity": {"storage": "10Gi"},
    }
    assert claim["metadata"]["annotations"] == {
        "pv.kubernetes.io/bind-completed": "yes",
        "pv.kubernetes.io/bound-by-controller": "yes",
    }
    assert claim["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    found = await eventually(lambda: storage.client.get(PERSISTENT_VOLUMES, volume), bound)
    reference = found["spec"]["claimRef"]
    assert (reference["namespace"], reference["name"], reference["uid"]) == (
        storage.namespace,
        "data",
        claim["metadata"]["uid"],
    )


async def test_pre_bound_volume_is_released_with_its_data_when_its_claim_is_deleted(storage: ControllerCluster) -> None:
    volume = unique("pv")
    await make_volume(storage, volume, storageClassName="manual", persistentVolumeReclaimPolicy="Retain")
    await storage.client.create(
        PERSISTENT_VOLUME_CLAIMS, claim_of(storage, storageClassName="manual", volumeName=volume)
    )
    await claim_that(storage, bound)
    await storage.client.delete(PERSISTENT_VOLUME_CLAIMS, "data", namespace=storage.namespace)
    released = await eventually(
        lambda: storage.client.get(PERSISTENT_VOLUMES, volume), lambda one: one["status"]["phase"] == "Released"
    )
    assert released["spec"]["claimRef"]["name"] == "data"
    await storage.client.delete(PERSISTENT_VOLUMES, volume)
    await volume_gone(storage, volume)


async def test_default_class_provisions_a_directory_and_removes_it_with_the_claim(storage: ControllerCluster) -> None:
    async with storage_class(storage, provisioner="trainwright.dev/host-path", reclaimPolicy="Delete") as name:
        await storage.client.create(PERSISTENT_VOLUME_CLAIMS, claim_of(storage, storageClassName=name))
        claim = await claim_that(storage, bound)
        uid = claim["metadata"]["uid"]
        volume = await storage.client.get(PERSISTENT_VOLUMES, f"pvc-{uid}")
        path = Path(volume["spec"]["hostPath"]["path"])
        assert path == storage.directory / "volumes" / f"{storage.namespace}-data-{uid[:8]}"
        assert path.stat().st_mode & 0o777 == 0o777
        assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        (path / "model.pt").write_text("weights")

        await storage.client.delete(PERSISTENT_VOLUME_CLAIMS, "data", namespace=storage.namespace)
        await volume_gone(storage, f"pvc-{uid}")
        assert not path.exists()


async def test_claim_without_a_fitting_volume_stays_pending_with_one_event(storage: ControllerCluster) -> None:
    async with storage_class(storage, provisioner="ebs.csi.aws.com") as name:
        await storage.client.create(PERSISTENT_VOLUME_CLAIMS, claim_of(storage, storageClassName=name))
        expected = [("Normal", "ExternalProvisioning")]
        await eventually(lambda: events_about(storage, "data"), lambda seen: seen == expected)
        claim = await claim_that(storage, lambda one: one["status"]["phase"] == "Pending")
        assert "volumeName" not in claim["spec"]

        small, fitting = unique("pv"), unique("pv")
        await make_volume(storage, small, size="1Gi", storageClassName=name)
        await make_volume(storage, fitting, size="5Gi", storageClassName=name)
        claim = await claim_that(storage, bound)
        assert claim["spec"]["volumeName"] == fitting
        assert await events_about(storage, "data") == expected
        await storage.client.delete(PERSISTENT_VOLUMES, small)
        await volume_gone(storage, small)


async def test_directory_that_was_not_provisioned_is_never_removed(storage: ControllerCluster, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    volume = unique("pv")
    await make_volume(
        storage,
        volume,
        hostPath={"path": str(precious)},
        storageClassName="manual",
        persistentVolumeReclaimPolicy="Delete",
    )
    await storage.client.create(
        PERSISTENT_VOLUME_CLAIMS, claim_of(storage, storageClassName="manual", volumeName=volume)
    )
    await claim_that(storage, bound)
    await storage.client.delete(PERSISTENT_VOLUME_CLAIMS, "data", namespace=storage.namespace)
    await eventually(
        lambda: storage.client.get(PERSISTENT_VOLUMES, volume), lambda one: one["status"]["phase"] == "Failed"
    )
    assert precious.is_dir()
    await storage.client.delete(PERSISTENT_VOLUMES, volume)
    await volume_gone(storage, volume)


async def test_a_claim_in_use_stays_until_its_pod_has_ended(embedded: ControllerCluster) -> None:
    await embedded.client.create(PERSISTENT_VOLUME_CLAIMS, claim_of(embedded))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "user", "namespace": "default"},
        "spec": {
            "nodeName": "somewhere",
            "containers": [{"name": "main", "image": "trainwright/host", "command": ["true"]}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    }
    await embedded.client.create(PODS, pod)
    claim = await claim_that(embedded, bound)
    assert claim["spec"]["storageClassName"] == "standard"  # it asked for nothing, so it got the default
    await embedded.client.delete(PERSISTENT_VOLUME_CLAIMS, "data", namespace="default")
    # Another claim that comes and goes meanwhile shows that the controller has looked.
    await embedded.client.create(PERSISTENT_VOLUME_CLAIMS, claim_of(embedded, "other"))
    await claim_that(embedded, bound, "other")
    await claim_that(embedded, lambda one: "deletionTimestamp" in one["metadata"])

    await embedded.client.patch(PODS, "user", {"status": {"phase": "Succeeded"}}, subresource="status")

    async def claims() -> list[str]:
        found = await embedded.client.list(PERSISTENT_VOLUME_CLAIMS, namespace="default")
        return [one["metadata"]["name"] for one in found.items]

    await eventually(claims, lambda names: names == ["other"])


async def test_claim_whose_volume_was_deleted_is_lost(storage: ControllerCluster) -> None:
    volume = unique("pv")
    await make_volume(storage, volume, storageClassName="manual")
    await storage.client.create(
        PERSISTENT_VOLUME_CLAIMS, claim_of(storage, storageClassName="manual", volumeName=volume)
    )
    await claim_that(storage, bound)
    await storage.client.delete(PERSISTENT_VOLUMES, volume)
    protected = await storage.client.get(PERSISTENT_VOLUMES, volume)
    assert protected["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
    await storage.client.patch(PERSISTENT_VOLUMES, volume, {"metadata": {"finalizers": None}})
    await claim_that(storage, lambda one: one["status"]["phase"] == "Lost")
    await eventually(lambda: events_about(storage, "data"), lambda seen: ("Warning", "ClaimLost") in seen)
