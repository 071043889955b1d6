"""Files in the volumes of running pods follow their objects, without a restart."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.node import Node, container, running_node
from tests.support.waiting import eventually
from trainwright.kube.client.errors import NotFound
from trainwright.objects import Object
from trainwright.objects.kinds.pod_subresources import LogUnavailable
from trainwright.objects.resources import CONFIG_MAPS, PODS, SECRETS, Resource


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running_node(tmp_path / "node") as running:
        yield running


async def put(node: Node, resource: Resource, name: str, **fields: Any) -> None:
    obj = {"metadata": {"name": name, "namespace": "default"}, **fields}
    try:
        await node.client.patch(resource, name, fields, namespace="default")
    except NotFound:
        await node.client.create(resource, {"apiVersion": "v1", "kind": resource.kind, **obj})


async def follow(node: Node, path: str, volume: Object, **mount: Any) -> None:
    """Starts a pod that prints a file whenever its content changes."""
    changed = f'new=$(cat {path} 2>/dev/null || echo none); [ "$new" = "$old" ] || echo "$new"; old=$new'
    script = f"old=nothing; while :; do {changed}; sleep 0.02; done"
    mounts = [{"name": "v", "mountPath": "/v", **mount}]
    await node.create("p", container(script, volumeMounts=mounts), volumes=[{"name": "v", **volume}])


async def until_printed(node: Node, *lines: str) -> None:
    async def printed() -> list[str]:
        pod = await node.pod("p")
        with contextlib.suppress(LogUnavailable):  # not started yet
            return (await node.log(pod)).splitlines() if pod is not None else []
        return []

    await eventually(printed, lambda found: found == list(lines))


async def test_a_file_of_a_config_map_follows_it(node: Node) -> None:
    await put(node, CONFIG_MAPS, "c", data={"k": "one"})
    await follow(node, "/v/k", {"configMap": {"name": "c"}})
    await until_printed(node, "one")
    await put(node, CONFIG_MAPS, "c", data={"k": "two"})
    await until_printed(node, "one", "two")


async def test_a_file_of_a_secret_in_a_projected_volume_follows_it(node: Node) -> None:
    await put(node, SECRETS, "s", stringData={"k": "one"})
    source = {"secret": {"name": "s", "items": [{"key": "k", "path": "deep/k"}]}}
    await follow(node, "/v/deep/k", {"projected": {"sources": [source]}})
    await until_printed(node, "one")
    await put(node, SECRETS, "s", stringData={"k": "two"})
    await until_printed(node, "one", "two")


async def test_an_optional_object_appears_and_goes(node: Node) -> None:
    await follow(node, "/v/k", {"configMap": {"name": "c", "optional": True}})
    await until_printed(node, "none")
    await put(node, CONFIG_MAPS, "c", data={"k": "one"})
    await until_printed(node, "none", "one")
    await node.client.delete(CONFIG_MAPS, "c", namespace="default")
    await until_printed(node, "none", "one", "none")


async def test_labels_follow_the_pod(node: Node) -> None:
    item = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
    await follow(node, "/v/labels", {"downwardAPI": {"items": [item]}})
    await until_printed(node, "")
    await node.client.patch(PODS, "p", {"metadata": {"labels": {"stage": "late"}}}, namespace="default")
    await until_printed(node, "", 'stage="late"')


async def test_files_stay_when_a_required_object_is_deleted(node: Node) -> None:
    await put(node, CONFIG_MAPS, "c", data={"k": "one"})
    await follow(node, "/v/k", {"configMap": {"name": "c"}})
    await until_printed(node, "one")
    await node.client.delete(CONFIG_MAPS, "c", namespace="default")
    event = await node.event("FailedMount")
    assert event["message"].startswith('MountVolume.SetUp failed for volume "v" : configmap "c" not found')
    await put(node, CONFIG_MAPS, "c", data={"k": "two"})
    await until_printed(node, "one", "two")


async def test_a_sub_path_keeps_the_file_of_the_start(node: Node) -> None:
    await put(node, CONFIG_MAPS, "c", data={"k": "one", "other": "one"})
    script = 'until [ "$(cat /v/other)" = two ]; do sleep 0.02; done; cat /k'
    mounts = [{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/k", "subPath": "k"}]
    volumes = [{"name": "v", "configMap": {"name": "c"}}]
    await node.create("p", container(script, volumeMounts=mounts), volumes=volumes)
    await node.until_phase("p", "Running")
    await put(node, CONFIG_MAPS, "c", data={"k": "two", "other": "two"})
    pod = await node.until_phase("p", "Succeeded")
    assert await node.log(pod) == "one"


async def test_an_adopted_pod_gets_what_changed_meanwhile(node: Node) -> None:
    await put(node, CONFIG_MAPS, "c", data={"k": "one"})
    await follow(node, "/v/k", {"configMap": {"name": "c"}})
    await until_printed(node, "one")
    await node.down()
    await put(node, CONFIG_MAPS, "c", data={"k": "two"})
    await node.up()
    await until_printed(node, "one", "two")


async def test_a_pod_that_waits_for_a_config_map_starts_as_soon_as_it_exists(node: Node) -> None:
    variable = {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}
    await node.create("p", container("echo $A", env=[variable]))
    await node.until_waiting("p")
    await put(node, CONFIG_MAPS, "c", data={"k": "one"})
    assert await node.log(await node.until_phase("p", "Succeeded")) == "one\n"
