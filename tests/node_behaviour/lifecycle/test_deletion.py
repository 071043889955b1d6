"""Deletion: SIGTERM, grace periods, and what is left."""

import time

import pytest

from tests.support.node.namespace import NodeNamespace, container, container_status, python
from trainwright.kube.client.errors import NotFound
from trainwright.objects.resources import PODS

WAITS = "echo ready; while :; do sleep 0.05; done"


async def test_a_deleted_pod_gets_sigterm(node: NodeNamespace) -> None:
    script = f"trap 'echo x > /v/saved; exit 0' TERM; {WAITS}"
    mounts = [{"name": "v", "mountPath": "/v"}]
    volumes = [{"name": "v", "hostPath": {"path": str(node.host_directory)}}]
    await node.pod("p", container(script, volumeMounts=mounts), volumes=volumes, terminationGracePeriodSeconds=30)
    await node.until_log("p", "ready")
    started = time.monotonic()
    await node.delete("p")
    await node.until_gone("p")
    assert (node.host_directory / "saved").exists()
    assert time.monotonic() - started < 15


async def test_every_container_gets_sigterm(node: NodeNamespace) -> None:
    mounts = [{"name": "v", "mountPath": "/v"}]
    volumes = [{"name": "v", "hostPath": {"path": str(node.host_directory)}}]
    pair = [
        container(f"trap 'touch /v/{name}; exit 0' TERM; {WAITS}", name=name, volumeMounts=mounts)
        for name in ("one", "two")
    ]
    await node.pod("p", *pair, volumes=volumes, terminationGracePeriodSeconds=30)
    for name in ("one", "two"):
        await node.until_log("p", "ready", container=name)
    await node.delete("p")
    await node.until_gone("p")
    assert sorted(path.name for path in node.host_directory.iterdir()) == ["one", "two"]


async def test_a_program_that_ignores_sigterm_is_killed_after_its_grace_period(node: NodeNamespace) -> None:
    await node.pod("p", container(f"trap '' TERM; {WAITS}"), terminationGracePeriodSeconds=2)
    await node.until_log("p", "ready")
    started = time.monotonic()
    await node.delete("p")
    await node.until_gone("p")
    assert time.monotonic() - started >= 1.9


async def test_the_request_may_shorten_the_grace_period(node: NodeNamespace) -> None:
    await node.pod("p", container(f"trap '' TERM; {WAITS}"), terminationGracePeriodSeconds=600)
    await node.until_log("p", "ready")
    await node.delete("p", grace_period_seconds=1)
    await node.until_gone("p")


@pytest.mark.only("overlay", "plain")  # a row of docs/compatibility.md
async def test_a_second_deletion_may_shorten_the_grace_period(node: NodeNamespace) -> None:
    await node.pod("p", container(f"trap '' TERM; {WAITS}"), terminationGracePeriodSeconds=600)
    await node.until_log("p", "ready")
    await node.delete("p")
    pod = await node.read("p")
    assert pod is not None
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 600
    await node.delete("p", grace_period_seconds=1)
    await node.until_gone("p")


async def test_grace_period_zero_removes_the_object_at_once(node: NodeNamespace) -> None:
    await node.pod("p", container(f"trap '' TERM; {WAITS}"), terminationGracePeriodSeconds=600)
    await node.until_log("p", "ready")
    await node.delete("p", grace_period_seconds=0)
    assert await node.read("p") is None


async def test_a_pod_that_is_being_deleted_is_still_running(node: NodeNamespace) -> None:
    await node.pod("p", container(f"trap '' TERM; {WAITS}"), terminationGracePeriodSeconds=600)
    await node.until_log("p", "ready")
    await node.delete("p")
    pod = await node.read("p")
    assert pod is not None
    assert pod["metadata"]["deletionTimestamp"]
    assert pod["status"]["phase"] == "Running"
    assert "running" in container_status(pod)["state"]
    await node.delete("p", grace_period_seconds=1)


async def test_the_log_is_gone_with_the_pod(node: NodeNamespace) -> None:
    await node.pod("p", container("echo one"))
    await node.until_phase("p", "Succeeded")
    await node.delete("p")
    await node.until_gone("p")
    with pytest.raises(NotFound):
        await node.log("p")


async def test_a_pod_that_has_ended_is_removed_at_once(node: NodeNamespace) -> None:
    await node.pod("p", container("exit 0"), terminationGracePeriodSeconds=600)
    await node.until_phase("p", "Succeeded")
    await node.delete("p")
    await node.until_gone("p")


async def test_a_pod_that_waits_is_removed(node: NodeNamespace) -> None:
    volumes = [{"name": "v", "configMap": {"name": "absent"}}]
    await node.pod("p", container("exit 0"), volumes=volumes)
    await node.until("p", lambda pod: pod["spec"].get("nodeName"))
    await node.delete("p")
    await node.until_gone("p")


async def test_a_finalizer_keeps_the_object_after_the_end_of_the_program(node: NodeNamespace) -> None:
    await node.pod("p", container(f"trap 'exit 5' TERM; {WAITS}"), metadata={"finalizers": ["example.com/keep"]})
    await node.until_log("p", "ready")
    await node.delete("p")
    pod = await node.until_phase("p", "Failed")
    assert container_status(pod)["state"]["terminated"]["exitCode"] == 5
    await node.client.patch(PODS, "p", {"metadata": {"finalizers": None}}, namespace=node.name)
    await node.until_gone("p")


async def test_a_pod_with_the_name_of_a_deleted_one_is_another_pod(node: NodeNamespace) -> None:
    await node.pod("p", container("sleep 600"))
    await node.until_phase("p", "Running")
    await node.delete("p", grace_period_seconds=0)
    await node.pod("p", container("echo second"))
    assert await node.output("p") == "second\n"


async def test_a_followed_log_ends_with_the_pod(node: NodeNamespace) -> None:
    await node.pod("p", container(f"trap 'echo bye; exit 0' TERM; {WAITS}"), terminationGracePeriodSeconds=30)
    await node.until_log("p", "ready")
    following = node.client.logs("p", namespace=node.name, follow=True)
    assert await anext(following) == b"ready\n"
    await node.delete("p")
    assert [line async for line in following] == [b"bye\n"]


@pytest.mark.differs("A program without a handler of SIGTERM runs until the grace period ends")
async def test_python_as_the_first_process_ignores_sigterm(node: NodeNamespace) -> None:
    """The kernel does not deliver it to process 1 without a handler, so only the end of the grace period ends it."""
    await node.pod("p", python("import time; print('ready'); time.sleep(600)"), terminationGracePeriodSeconds=12)
    await node.until_log("p", "ready")
    started = time.monotonic()
    await node.delete("p")
    await node.until_gone("p")
    assert time.monotonic() - started >= 11.9
