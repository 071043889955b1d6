"""What pods leave on the node is kept until their controller is deleted, whatever is interrupted meanwhile."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.background import in_background
from tests.support.cluster.embedded_apiserver import running_embedded
from tests.support.cluster.node import Node, running_node
from tests.support.objects.widgets import definition
from tests.support.waiting import eventually
from trainwright.cluster.node.pods.pod_directory import PodDirectory
from trainwright.cluster.node.records.pod_records import RunLog, pod_records
from trainwright.cluster.node.records.retention import KEPT_PRIVATE_FILES, MAX_REMOVED_PODS, Retention
from trainwright.cluster.node.supervisor.files import read_json, write_json
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object
from trainwright.objects.metadata import controller_reference
from trainwright.objects.resources import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running_node(tmp_path / "node", sandbox="plain") as running:
        yield running


async def create_owner(node: Node, name: str = "job") -> Object:
    """Any object can be one: the node knows no kind of job."""
    created = await node.client.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": "default"}})
    return {"apiVersion": "v1", "kind": "ConfigMap", **created}


async def delete_owner(node: Node, name: str = "job") -> None:
    await node.client.delete(CONFIG_MAPS, name, namespace="default")


async def run_pod(node: Node, owner: Object, name: str = "p", **spec: Any) -> str:
    """Returns the uid of a pod that ran, and whose object has been deleted."""
    volumes = {"volumes": [{"name": "data", "emptyDir": {}}]}
    container = {"name": "main", "image": "trainwright/host", "command": ["sh", "-c", f"echo {name}"]}
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    metadata = {"ownerReferences": [controller_reference(owner)]}
    pod = await node.create(name, {**container, **mounts}, metadata=metadata, **volumes, **spec)
    await node.until_phase(name, "Succeeded")
    await node.delete(name, grace_period_seconds=0)
    return str(pod["metadata"]["uid"])


async def until_removed(node: Node, uid: str) -> Path:
    """Until the pod's directory has been moved; returns it there."""
    directory = node.directory / "removed" / uid
    await eventually(_found(directory), bool)
    return directory


async def until_deleted(node: Node, uid: str) -> None:
    for folder in ("pods", "removed"):
        await eventually(_found(node.directory / folder / uid), lambda found: not found)


def _found(path: Path) -> Any:
    async def found() -> bool:
        return path.exists()

    return found


async def test_logs_of_a_deleted_pod_are_kept_until_its_owner_is_deleted(node: Node) -> None:
    owner = await create_owner(node)
    uid = await run_pod(node, owner)
    directory = await until_removed(node, uid)

    (record,) = pod_records(node.directory, owner["metadata"]["uid"])
    assert (record.name, record.removed, record.directory) == ("p", True, directory)
    assert [(run.exit_code, run.reason) for run in record.runs] == [(0, "Completed")]
    log = RunLog(record.directory.parents[1], record.runs[0])
    assert [line.text for line in log.read_new()] == ["p"]
    log.close()
    assert {"pod.json", "state.json", "logs"} < {path.name for path in directory.iterdir()}
    assert not (directory / "volumes").exists()

    await delete_owner(node)
    await until_deleted(node, uid)


async def test_a_pod_that_is_deleted_after_its_owner_leaves_nothing(node: Node) -> None:
    owner = await create_owner(node)
    await delete_owner(node)
    uid = await run_pod(node, owner)
    await until_deleted(node, uid)


async def test_another_object_with_the_name_of_the_owner_keeps_nothing(node: Node) -> None:
    owner = await create_owner(node)
    uid = await run_pod(node, owner)
    await until_removed(node, uid)
    await delete_owner(node)
    await create_owner(node)
    await until_deleted(node, uid)


async def test_an_owner_that_is_deleted_while_no_agent_runs_is_noticed(node: Node) -> None:
    owners = [await create_owner(node, name) for name in ("one", "two")]
    uids = [await run_pod(node, owner) for owner in owners]
    for uid in uids:
        await until_removed(node, uid)
    await node.down()
    await delete_owner(node, "one")
    # Also what an interrupted deletion leaves: the configuration goes last.
    half = node.directory / "removed/half/logs"
    half.mkdir(parents=True)

    await node.up(sandbox="plain")

    await until_deleted(node, uids[0])
    await until_deleted(node, "half")
    assert (node.directory / "removed" / uids[1]).exists()
    await delete_owner(node, "two")
    await until_deleted(node, uids[1])


async def test_a_pod_that_is_deleted_while_no_agent_runs_is_moved_later(node: Node) -> None:
    owner = await create_owner(node)
    metadata = {"ownerReferences": [controller_reference(owner)]}
    container = {"name": "main", "image": "trainwright/host", "command": ["true"]}
    pod = await node.create("p", container, metadata=metadata)
    await node.until_phase("p", "Succeeded")
    await node.down()
    await node.delete("p", grace_period_seconds=0)
    await node.up(sandbox="plain")
    await until_removed(node, pod["metadata"]["uid"])


async def test_an_owner_whose_kind_is_not_served_is_not_taken_as_deleted(node: Node) -> None:
    owner = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "uid": "w"}}
    uid = await run_pod(node, owner)
    await until_removed(node, uid)
    other = await create_owner(node)
    await delete_owner(node)
    await until_deleted(node, await run_pod(node, other, "other"))
    assert (node.directory / "removed" / uid).exists()
    await node.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition())
    await until_deleted(node, uid)


async def test_of_pods_of_the_same_name_the_last_are_kept(node: Node) -> None:
    owner = await create_owner(node)
    last = await run_pod(node, owner)
    config = read_json(str(await until_removed(node, last) / "pod.json"))
    await node.down()
    for number in range(MAX_REMOVED_PODS):
        earlier = node.directory / "removed" / f"earlier-{number}"
        (earlier / "scratch/main-0").mkdir(parents=True)
        created_at = f"2001-01-01T00:00:{number:02d}Z"
        write_json(str(earlier / "pod.json"), {**config, "uid": earlier.name, "createdAt": created_at})

    await node.up(sandbox="plain")

    await until_deleted(node, "earlier-0")
    records = pod_records(node.directory, owner["metadata"]["uid"])
    assert [record.uid for record in records] == [*(f"earlier-{number}" for number in range(1, MAX_REMOVED_PODS)), last]

    async def with_private_files() -> set[str]:
        return {path.parent.name for path in (node.directory / "removed").glob("*/scratch")}

    # The last one ran at `plain` and has none.
    expected = {f"earlier-{MAX_REMOVED_PODS - number}" for number in range(1, KEPT_PRIVATE_FILES)}
    await eventually(with_private_files, lambda found: found == expected)


async def test_a_pod_may_be_removed_while_surplus_files_are_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_embedded() as embedded, Client(embedded.config) as client:
        created = await client.create(CONFIG_MAPS, {"metadata": {"name": "job", "namespace": "default"}})
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "job", "uid": created["metadata"]["uid"]}
        loop = asyncio.get_running_loop()
        retention = Retention(client, tmp_path)

        def directory(uid: str, name: str) -> PodDirectory:
            found = PodDirectory(tmp_path / "kept" / uid)  # where no restart looks for it
            (found.path / "scratch").mkdir(parents=True)
            config = {"name": name, "namespace": "default", "owner": owner, "createdAt": uid}
            (found.path / "pod.json").write_text(json.dumps(config))
            return found

        class WhileOthersAreRemoved(PodDirectory):
            def remove_private_files(self) -> None:
                """The pods of another name are added before the deletion ends."""
                super().remove_private_files()

                async def add() -> None:
                    for other in others:
                        retention.add(other)
                    others.clear()

                asyncio.run_coroutine_threadsafe(add(), loop).result()

        first = WhileOthersAreRemoved(directory("a-0", "a").path)
        others = [directory(f"b-{number}", "b") for number in range(KEPT_PRIVATE_FILES + 1)]
        async with in_background(retention.run()):
            retention.add(first)
            for number in range(KEPT_PRIVATE_FILES):
                retention.add(directory(f"a-{number + 1}", "a"))
            for uid in ("a-0", "b-0"):
                await eventually(_found(tmp_path / "kept" / uid / "scratch"), lambda found: not found)
    assert "unexpected error" not in caplog.text
