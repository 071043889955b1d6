"""Pods against the data of clusters, on a whole embedded cluster."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support.cluster.embedded_cluster import embedded_cluster
from tests.support.cluster.supervised_pods import LAYERED_DIRECTORY
from tests.support.waiting import eventually
from trainwright.cluster.data_directory_registry import register
from trainwright.cluster.datadir import DataDir
from trainwright.cluster.node_settings import NodeSettings
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object
from trainwright.objects.node_annotations import DIRECTORY, HOST_IMAGE, PYTHON
from trainwright.objects.resources import PERSISTENT_VOLUME_CLAIMS, PODS

MOUNT = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with TemporaryDirectory(prefix="home-", dir=LAYERED_DIRECTORY) as path:
        monkeypatch.setenv("HOME", path)
        monkeypatch.delenv("XDG_DATA_HOME", raising=False)
        yield Path(path)


@pytest.fixture
async def client(home: Path) -> AsyncIterator[Client]:
    """Of a cluster whose data directory is in the home that its pods share."""
    async with (
        embedded_cluster(DataDir.default().path, settings=NodeSettings(sandbox="overlay")) as running,
        Client(running.config) as client,
    ):
        yield client


async def run(client: Client, name: str, script: str, *, annotations: Any = None, **spec: Any) -> Object:
    """The first state of the pod's container that says more than ContainerCreating."""
    main = {"name": "main", "image": HOST_IMAGE, "command": ["/bin/sh", "-c", script], **spec.pop("container", {})}
    metadata = {"name": name, "namespace": "default", "annotations": annotations or {}}
    spec = {"restartPolicy": "Never", "containers": [main], **spec}
    await client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    async def state() -> Object:
        found = await client.get(PODS, name, namespace="default")
        statuses = found.get("status", {}).get("containerStatuses") or [{"state": {}}]
        shown: Object = statuses[0]["state"]
        return shown

    def is_decided(shown: Object) -> bool:
        return "terminated" in shown or shown.get("waiting", {}).get("reason") not in {None, "ContainerCreating"}

    return await eventually(state, is_decided)


async def test_pod_sees_nothing_of_its_own_and_of_other_clusters(home: Path, client: Client) -> None:
    other = DataDir(home / "projects/other")
    other.create()
    other.token()
    register(other)  # as another `up` does, while this cluster runs
    script = f"find {home} -name token -o -name '*.key' -o -name store.db; ls -A {other.path}"
    state = await run(client, "p", script)
    assert state["terminated"]["exitCode"] == 0
    assert await client.raw("GET", f"{PODS.path('default', 'p')}/log") == b""
    assert (other.path / "token").exists()


async def test_no_way_mounts_the_data_of_a_cluster(home: Path, client: Client) -> None:
    """Not even for the owner, whose mistake would open it to programs."""
    number = 0
    for inside in ("", "pki", "node", "volumes"):
        path = DataDir.default().path / inside
        link = home / f"link-{inside}"
        link.symlink_to(path)
        ways: list[dict[str, Any]] = [
            {"annotations": {DIRECTORY: str(path)}},
            {"annotations": {DIRECTORY: str(link)}},
            {"annotations": {PYTHON: f"{path}/bin/python"}},
            {"volumes": [{"name": "v", "hostPath": {"path": str(path)}}], "container": MOUNT},
            {"volumes": [{"name": "v", "hostPath": {"path": str(link)}}], "container": MOUNT},
            {"volumes": [{"name": "v", "hostPath": {"path": f"{link}/new", "type": "DirectoryOrCreate"}}]},
        ]
        for way in ways:
            number += 1
            state = await run(client, f"p-{number}", "ls /v", **way)
            assert state["waiting"]["reason"] in {"FailedMount", "InvalidAnnotation", "PythonNotFound"}, (way, state)
            if PYTHON not in way.get("annotations", ()):
                assert "is in a directory of the cluster, which pods do not see" in state["waiting"]["message"]
        assert not (path / "new").exists()


async def test_volume_of_a_claim_is_reached_by_its_claim_alone(client: Client) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    await client.create(PERSISTENT_VOLUME_CLAIMS, claim)
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    state = await run(client, "owner", "echo secret > /v/model && cat /v/model", volumes=volumes, container=MOUNT)
    assert state["terminated"]["exitCode"] == 0
    (directory,) = DataDir.default().volumes.iterdir()
    host_path = [{"name": "v", "hostPath": {"path": str(directory)}}]
    state = await run(client, "thief", "cat /v/model", volumes=host_path, container=MOUNT)
    assert "is in a directory of the cluster" in state["waiting"]["message"]
