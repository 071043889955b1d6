"""The events that users of a kubelet know."""

import pytest

from tests.support.node.namespace import NodeNamespace, container


async def test_the_scheduler_names_the_node(node: NodeNamespace) -> None:
    await node.pod("p", container("exit 0"))
    event = await node.until_event("p", "Scheduled")
    pod = await node.until("p", lambda pod: pod["spec"].get("nodeName"))
    assert event["message"] == f"Successfully assigned {node.name}/p to {pod['spec']['nodeName']}"
    assert event["type"] == "Normal"


async def test_the_start_of_a_container_is_an_event(node: NodeNamespace) -> None:
    created = await node.pod("p", container("sleep 600"))
    event = await node.until_event("p", "Started")
    assert event["type"] == "Normal"
    involved = event["involvedObject"]
    assert (involved["kind"], involved["name"], involved["uid"]) == ("Pod", "p", created["metadata"]["uid"])
    assert involved["fieldPath"] == "spec.containers{main}"
    assert event["message"] == "Container started"


@pytest.mark.parametrize("reason", ["Pulled", "Created", "Started"])
async def test_every_step_to_a_container_is_an_event(node: NodeNamespace, reason: str) -> None:
    await node.pod("p", container("exit 0"))
    messages = {
        "Pulled": 'Container image "trainwright/host:1" already present on machine and can be accessed by the pod',
        "Created": "Container created",
        "Started": "Container started",
    }
    assert (await node.until_event("p", reason))["message"] == messages[reason]


async def test_a_program_that_cannot_start_is_an_event(node: NodeNamespace) -> None:
    await node.pod("p", {**container(""), "command": ["/no/such/program"]})
    event = await node.until_event("p", "Failed")
    assert event["type"] == "Warning"
    assert event["message"].startswith("Error: ")


async def test_events_about_containers_come_from_the_kubelet(node: NodeNamespace) -> None:
    await node.pod("p", container("exit 0"))
    assert (await node.until_event("p", "Started"))["source"]["component"] == "kubelet"


async def test_the_deletion_of_a_running_pod_is_an_event(node: NodeNamespace) -> None:
    await node.pod("p", container("sleep 600"))
    await node.until_phase("p", "Running")
    await node.delete("p")
    event = await node.until_event("p", "Killing")
    assert event["message"] == "Stopping container main"
    assert event["involvedObject"]["fieldPath"] == "spec.containers{main}"


async def test_back_off_is_an_event(node: NodeNamespace) -> None:
    created = await node.pod("p", container("exit 1"), restartPolicy="OnFailure")
    event = await node.until_event("p", "BackOff")
    where = f"p_{node.name}({created['metadata']['uid']})"
    assert event["message"] == f"Back-off restarting failed container main in pod {where}"
    assert event["type"] == "Warning"
