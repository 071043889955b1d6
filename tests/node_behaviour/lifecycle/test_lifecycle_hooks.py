"""postStart and preStop hooks, and how their time counts."""

from typing import Any

from tests.support.node.namespace import NodeNamespace, container, container_status
from trainwright.objects import Object

MEMORY = [{"name": "state", "emptyDir": {}}]
MOUNT = [{"name": "state", "mountPath": "/state"}]
ENDS = "trap 'echo term; cat /state/hook 2>/dev/null; exit 0' TERM; echo up; while :; do sleep 0.1; done"


def hooked(script: str = ENDS, **hooks: Any) -> Object:
    return container(script, volumeMounts=MOUNT, lifecycle=hooks)


def shell(script: str) -> Object:
    return {"exec": {"command": ["sh", "-c", script]}}


async def test_a_post_start_hook_runs_in_the_container(node: NodeNamespace) -> None:
    script = "while test ! -e /state/hook; do sleep 0.1; done; cat /state/hook"
    await node.pod("p", hooked(script, postStart=shell("echo from $HOSTNAME > /state/hook")), volumes=MEMORY)
    assert await node.output("p") == "from p\n"


async def test_a_container_is_not_running_before_its_post_start_hook_has_ended(node: NodeNamespace) -> None:
    await node.pod("p", hooked("sleep 600", postStart=shell("sleep 2; touch /state/done")), volumes=MEMORY)
    pod = await node.until("p", lambda pod: container_status(pod).get("state", {}).get("running"))
    assert pod["status"]["phase"] == "Running"
    assert (await node.exec("p", "ls", "/state")).stdout == b"done\n"


async def test_a_failed_post_start_hook_ends_the_container(node: NodeNamespace) -> None:
    await node.pod("p", hooked("exec sleep 600", postStart=shell("exit 3")), volumes=MEMORY)
    await node.until_phase("p", "Failed")
    event = await node.until_event("p", "FailedPostStartHook")
    assert (event["type"], event["message"]) == ("Warning", "PostStartHook failed")
    assert (await node.until_event("p", "Killing"))["message"] == "FailedPostStartHook"


async def test_a_pre_stop_hook_ends_before_sigterm_is_sent(node: NodeNamespace) -> None:
    hook = shell("sleep 1; echo hook >> /state/log")
    script = "trap 'echo term >> /state/log; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    volumes = [{"name": "state", "hostPath": {"path": str(node.host_directory)}}]
    await node.pod("p", hooked(script, preStop=hook), volumes=volumes, terminationGracePeriodSeconds=20)
    await node.until_log("p", "up")
    await node.delete("p")
    await node.until_gone("p")
    assert (node.host_directory / "log").read_text() == "hook\nterm\n"


async def test_a_failed_pre_stop_hook_is_an_event_and_the_container_ends(node: NodeNamespace) -> None:
    await node.pod("p", hooked(preStop=shell("exit 1")), volumes=MEMORY)
    await node.until_log("p", "up")
    await node.delete("p")
    event = await node.until_event("p", "FailedPreStopHook")
    assert (event["type"], event["message"]) == ("Warning", "PreStopHook failed")
    await node.until_gone("p")


async def test_the_grace_period_includes_the_pre_stop_hook(node: NodeNamespace) -> None:
    await node.pod("p", hooked(preStop={"sleep": {"seconds": 2}}), volumes=MEMORY, terminationGracePeriodSeconds=2)
    await node.until_log("p", "up")
    await node.delete("p")
    await node.until_gone("p")


async def test_a_liveness_failure_runs_the_pre_stop_hook(node: NodeNamespace) -> None:
    liveness = {**shell("exit 1"), "periodSeconds": 1, "failureThreshold": 1}
    main = hooked(preStop=shell("echo hook > /state/hook"))
    await node.pod("p", {**main, "livenessProbe": liveness}, volumes=MEMORY, terminationGracePeriodSeconds=20)
    assert await node.output("p") == "up\nterm\nhook\n"
