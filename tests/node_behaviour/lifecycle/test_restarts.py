"""Restart policies, counts and back-off, and init containers."""

import pytest

from tests.support.node.namespace import NodeNamespace, condition, container, container_status, terminated

MEMORY = [{"name": "memory", "emptyDir": {}}]
"""Outlives the runs of a container, so that a script can count them."""
MOUNT = [{"name": "memory", "mountPath": "/memory"}]
COUNT = "echo x >> /memory/runs; runs=$(wc -l < /memory/runs)"


async def test_never_runs_a_container_once(node: NodeNamespace) -> None:
    await node.pod("p", container("exit 1"))
    status = container_status(await node.until_phase("p", "Failed"))
    assert status["restartCount"] == 0
    assert not status.get("lastState")


async def test_on_failure_runs_a_container_until_it_succeeds(node: NodeNamespace) -> None:
    script = f"{COUNT}; [ $runs -gt 1 ] || exit 3"
    await node.pod("p", container(script, volumeMounts=MOUNT), volumes=MEMORY, restartPolicy="OnFailure")
    status = container_status(await node.until_phase("p", "Succeeded"))
    assert status["restartCount"] == 1
    assert status["state"]["terminated"]["exitCode"] == 0


async def test_always_runs_a_container_again_after_success(node: NodeNamespace) -> None:
    script = f"{COUNT}; [ $runs -eq 1 ] || sleep 600"
    await node.pod("p", container(script, volumeMounts=MOUNT), volumes=MEMORY, restartPolicy="Always")
    pod = await node.until("p", lambda pod: container_status(pod).get("restartCount") == 1)
    last = container_status(pod)["lastState"]["terminated"]
    assert (last["exitCode"], last["reason"]) == (0, "Completed")
    await node.until_ready("p")


async def test_only_the_container_that_ended_is_restarted(node: NodeNamespace) -> None:
    script = f"{COUNT}; [ $runs -eq 1 ] || sleep 600"
    pair = container(script, volumeMounts=MOUNT), container("sleep 600", name="other")
    await node.pod("p", *pair, volumes=MEMORY, restartPolicy="Always")
    await node.until("p", lambda pod: container_status(pod).get("restartCount") == 1)
    pod = await node.until_ready("p")
    assert container_status(pod, "other")["restartCount"] == 0


async def test_a_container_that_fails_again_and_again_waits(node: NodeNamespace) -> None:
    created = await node.pod("p", container("exit 1"), restartPolicy="OnFailure")
    waiting = await node.until_container("p", "waiting", reason="CrashLoopBackOff")
    where = f"p_{node.name}({created['metadata']['uid']})"
    assert waiting["message"] == f"back-off 10s restarting failed container=main pod={where}"
    pod = await node.until_phase("p", "Running")
    assert container_status(pod)["lastState"]["terminated"]["exitCode"] == 1
    assert condition(pod, "Ready")["reason"] == "ContainersNotReady"


async def test_a_restarted_container_has_another_id(node: NodeNamespace) -> None:
    script = f"{COUNT}; [ $runs -eq 1 ] && exit 3; sleep 600"
    await node.pod("p", container(script, volumeMounts=MOUNT), volumes=MEMORY, restartPolicy="OnFailure")
    await node.until("p", lambda pod: container_status(pod).get("restartCount") == 1)
    status = container_status(await node.until_ready("p"))
    last = status["lastState"]["terminated"]
    assert (last["exitCode"], last["reason"]) == (3, "Error")
    assert last["containerID"] != status["containerID"]


async def test_a_container_that_has_ended_has_the_id_of_its_last_run(node: NodeNamespace) -> None:
    await node.pod("p", container("exit 0"))
    status = container_status(await node.until_phase("p", "Succeeded"))
    assert status["state"]["terminated"]["containerID"] == status["containerID"]


@pytest.mark.only("overlay", "kubelet")
async def test_files_outside_of_volumes_do_not_outlive_a_restart(node: NodeNamespace) -> None:
    script = f"{COUNT}; ls /opt/left 2>/dev/null && exit 9; mkdir -p /opt; touch /opt/left; [ $runs -gt 1 ] || exit 3"
    await node.pod("p", container(script, volumeMounts=MOUNT), volumes=MEMORY, restartPolicy="OnFailure")
    assert container_status(await node.until_phase("p", "Succeeded"))["restartCount"] == 1


async def test_init_containers_run_one_after_the_other_before_the_others(node: NodeNamespace) -> None:
    inits = [
        container(f"sleep 0.1; echo {name} >> /memory/order", name=name, volumeMounts=MOUNT)
        for name in ("first", "second")
    ]
    await node.pod("p", container("cat /memory/order", volumeMounts=MOUNT), initContainers=inits, volumes=MEMORY)
    pod = await node.until_phase("p", "Succeeded")
    assert await node.log("p") == "first\nsecond\n"
    assert [one["state"]["terminated"]["reason"] for one in pod["status"]["initContainerStatuses"]] == ["Completed"] * 2
    assert all(one["ready"] for one in pod["status"]["initContainerStatuses"])


async def test_a_pod_waits_for_its_init_containers(node: NodeNamespace) -> None:
    await node.pod("p", container("exit 0"), initContainers=[container("sleep 600", name="init")])
    await node.until_container("p", "running", container="init")
    pod = await node.until("p", container_status)
    assert pod["status"]["phase"] == "Pending"
    assert container_status(pod)["state"]["waiting"]["reason"] == "PodInitializing"
    initialized = condition(pod, "Initialized")
    assert (initialized["status"], initialized["reason"]) == ("False", "ContainersNotInitialized")
    assert initialized["message"] == "containers with incomplete status: [init]"


async def test_a_failed_init_container_fails_a_pod_that_never_restarts(node: NodeNamespace) -> None:
    await node.pod("p", container("exit 0"), initContainers=[container("exit 4", name="init")])
    pod = await node.until_phase("p", "Failed")
    assert terminated(pod, "init")["exitCode"] == 4
    assert container_status(pod)["state"]["waiting"]["reason"] == "PodInitializing"
    assert container_status(pod)["restartCount"] == 0


async def test_an_init_container_is_repeated_until_it_succeeds(node: NodeNamespace) -> None:
    init = container(f"{COUNT}; [ $runs -gt 1 ] || exit 3", name="init", volumeMounts=MOUNT)
    await node.pod("p", container("exit 0"), initContainers=[init], volumes=MEMORY, restartPolicy="OnFailure")
    pod = await node.until_phase("p", "Succeeded")
    assert container_status(pod, "init")["restartCount"] == 1
    assert container_status(pod)["restartCount"] == 0


async def test_a_successful_init_container_is_not_run_again_with_its_pod(node: NodeNamespace) -> None:
    init = container("echo x >> /memory/inits", name="init", volumeMounts=MOUNT)
    script = f"{COUNT}; [ $runs -gt 1 ] || exit 3; wc -l < /memory/inits"
    main = container(script, volumeMounts=MOUNT)
    await node.pod("p", main, initContainers=[init], volumes=MEMORY, restartPolicy="OnFailure")
    assert (await node.output("p")).strip() == "1"


async def test_statuses_are_in_the_order_of_names(node: NodeNamespace) -> None:
    """Of init containers in that of the spec."""
    inits = [container("exit 0", name=name) for name in ("z", "y")]
    await node.pod("p", container("exit 0", name="b"), container("exit 0", name="a"), initContainers=inits)
    status = (await node.until_phase("p", "Succeeded"))["status"]
    assert [one["name"] for one in status["containerStatuses"]] == ["a", "b"]
    assert [one["name"] for one in status["initContainerStatuses"]] == ["z", "y"]
