"""activeDeadlineSeconds, termination messages, and changes of a running pod."""

import pytest

from tests.support.node.namespace import NodeNamespace, condition, container, container_status, terminated
from trainwright.kube.client.requests import PatchKind
from trainwright.objects.resources import PODS

DEADLINE = "Pod was active on the node longer than the specified deadline"


async def set_deadline(node: NodeNamespace) -> None:
    """One that has passed, or is about to, when the program runs."""
    await node.client.patch(PODS, "p", {"spec": {"activeDeadlineSeconds": 1}}, namespace=node.name)


async def test_a_pod_fails_at_its_deadline(node: NodeNamespace) -> None:
    await node.pod("p", container("exec sleep 600"), activeDeadlineSeconds=2, restartPolicy="Always")
    pod = await node.until_phase("p", "Failed")
    assert (pod["status"]["reason"], pod["status"]["message"]) == ("DeadlineExceeded", DEADLINE)
    assert condition(pod, "Ready")["reason"] == "PodFailed"


async def test_the_deadline_is_an_event(node: NodeNamespace) -> None:
    await node.pod("p", container("exec sleep 600"))
    await node.until_phase("p", "Running")
    await set_deadline(node)
    event = await node.until_event("p", "DeadlineExceeded")
    assert (event["type"], event["message"]) == ("Normal", DEADLINE)
    assert (await node.until_event("p", "Killing"))["message"] == "Stopping container main"


async def test_containers_get_their_grace_period_at_the_deadline(node: NodeNamespace) -> None:
    script = "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    await node.pod("p", container(script), terminationGracePeriodSeconds=20)
    await node.until_log("p", "up")
    await set_deadline(node)
    ended = await node.until_container("p", "terminated")
    assert ended["exitCode"] == 0
    assert await node.log("p") == "up\nsaved\n"
    await node.until_phase("p", "Failed")


async def test_a_deadline_can_be_set_while_the_pod_runs(node: NodeNamespace) -> None:
    await node.pod("p", container("exec sleep 600"))
    await node.until_phase("p", "Running")
    await set_deadline(node)
    assert (await node.until_phase("p", "Failed"))["status"]["reason"] == "DeadlineExceeded"


async def test_a_pod_that_ends_before_its_deadline_succeeds(node: NodeNamespace) -> None:
    await node.pod("p", container("exit 0"), activeDeadlineSeconds=600)
    assert "reason" not in (await node.until_phase("p", "Succeeded"))["status"]


@pytest.mark.parametrize("code", [0, 3])
async def test_the_termination_message_is_in_the_status(node: NodeNamespace, code: int) -> None:
    await node.pod("p", container(f"echo because > /dev/termination-log; exit {code}"))
    pod = await node.until("p", lambda pod: pod["status"].get("phase") in {"Succeeded", "Failed"})
    assert terminated(pod)["message"] == "because\n"


async def test_the_path_of_the_termination_message_can_be_chosen(node: NodeNamespace) -> None:
    path = "/tmp/the-message"
    await node.pod("p", container(f"echo here > {path}", terminationMessagePath=path))
    assert terminated(await node.until_phase("p", "Succeeded"))["message"] == "here\n"


async def test_a_failed_container_without_a_message_has_the_end_of_its_log(node: NodeNamespace) -> None:
    script = "i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo line $i; done; exit 1"
    await node.pod("p", container(script, terminationMessagePolicy="FallbackToLogsOnError"))
    expected = "".join(f"line {number}\n" for number in range(21, 101))
    assert terminated(await node.until_phase("p", "Failed"))["message"] == expected


async def test_the_log_is_no_message_of_a_container_that_succeeds(node: NodeNamespace) -> None:
    await node.pod("p", container("echo fine", terminationMessagePolicy="FallbackToLogsOnError"))
    assert "message" not in terminated(await node.until_phase("p", "Succeeded"))


async def test_a_long_message_keeps_its_last_4096_bytes(node: NodeNamespace) -> None:
    script = "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo $i >> /dev/termination-log; done"
    await node.pod("p", container(script))
    message = terminated(await node.until_phase("p", "Succeeded"))["message"]
    assert len(message) == 4096
    assert message.endswith("\n1999\n2000\n")


async def test_the_message_of_an_earlier_run_is_in_the_last_state(node: NodeNamespace) -> None:
    script = "test -s /state/ran && exec sleep 600; echo x > /state/ran; echo first > /dev/termination-log; exit 1"
    mount = [{"name": "state", "mountPath": "/state"}]
    volumes = [{"name": "state", "emptyDir": {}}]
    await node.pod("p", container(script, volumeMounts=mount), volumes=volumes, restartPolicy="OnFailure")
    await node.until("p", lambda pod: container_status(pod).get("restartCount") == 1)
    status = container_status(await node.until_ready("p"))
    assert status["lastState"]["terminated"]["message"] == "first\n"


async def test_a_changed_image_restarts_the_container(node: NodeNamespace) -> None:
    await node.pod("p", container("exec sleep 600"))
    await node.until_phase("p", "Running")
    change = {"spec": {"containers": [{"name": "main", "image": "trainwright/host:2"}]}}
    await node.client.patch(PODS, "p", change, namespace=node.name, kind=PatchKind.STRATEGIC)
    event = await node.until_event("p", "Killing")
    assert event["message"] == "Container main definition changed, will be restarted"


async def test_the_status_names_the_generation_that_it_is_about(node: NodeNamespace) -> None:
    await node.pod("p", container("exec sleep 600"))
    pod = await node.until_ready("p")
    assert pod["status"]["observedGeneration"] == pod["metadata"]["generation"] == 1
    assert condition(pod, "Ready")["observedGeneration"] == 1
    await node.client.patch(PODS, "p", {"spec": {"activeDeadlineSeconds": 600}}, namespace=node.name)
    pod = await node.until("p", lambda pod: pod["status"].get("observedGeneration") == 2)
    assert pod["metadata"]["generation"] == 2
