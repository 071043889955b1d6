"""Probes, hooks, sidecars, deadlines and the kubelet's events through the API, with real processes."""

import socket
from pathlib import Path

import pytest

from tests.support.cluster.node import Node, container
from tests.support.waiting import eventually
from trainwright.kube.client.requests import PatchKind
from trainwright.objects import Object
from trainwright.objects.resources import EVENTS, NODES, PODS

pytestmark = pytest.mark.thorough("plain", sample=4)

SLEEP = "trap 'exit 0' TERM; while :; do sleep 0.01; done"


def condition(pod: Object, kind: str) -> Object:
    return next(one for one in pod["status"]["conditions"] if one["type"] == kind)


def is_ready(pod: Object) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))


def restarts(pod: Object) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


def is_running(pod: Object) -> bool:
    return bool(pod["status"].get("phase") == "Running")


async def events(node: Node, name: str) -> list[tuple[str, str, str]]:
    found = (await node.client.list(EVENTS, namespace="default")).items
    about = [event for event in found if event["involvedObject"]["name"] == name]
    return [(event["reason"], event["message"], event["involvedObject"].get("fieldPath", "")) for event in about]


async def test_readiness_of_an_exec_probe_is_in_status_and_conditions(node: Node, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    readiness = {"exec": {"command": ["test", "-e", str(flag)]}, "periodSeconds": 1}
    await node.create("p", container(SLEEP, readinessProbe=readiness), annotations={"directory": str(tmp_path)})
    pod = await node.until("p", is_running)
    assert (pod["status"]["containerStatuses"][0]["started"], pod["status"]["containerStatuses"][0]["ready"]) == (
        True,
        False,
    )
    assert condition(pod, "Ready")["message"] == "containers with unready status: [main]"
    unhealthy = await node.event("Unhealthy")
    assert unhealthy["message"] == "Readiness probe failed: "
    assert unhealthy["involvedObject"]["fieldPath"] == "spec.containers{main}"
    flag.touch()
    pod = await node.until("p", is_ready)
    assert pod["status"]["containerStatuses"][0]["ready"]


async def test_an_http_probe_asks_the_address_of_the_pod_at_a_named_port(node: Node) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = f"exec python3 -m http.server --bind $ADDRESS {port}"
    readiness = {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 1}
    address = [{"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    ports = [{"name": "web", "containerPort": port}]
    await node.create("p", container(script, readinessProbe=readiness, env=address, ports=ports))
    await node.until("p", is_ready)


async def test_a_pod_has_the_events_of_the_kubelet(node: Node) -> None:
    await node.create("p", container(SLEEP))
    await node.until("p", is_running)
    await node.delete("p")
    await node.until_gone("p")
    image = 'Container image "trainwright/host" already present on machine and can be accessed by the pod'
    path = "spec.containers{main}"
    expected = {
        ("Pulled", image, path),
        ("Created", "Container created", path),
        ("Started", "Container started", path),
        ("Killing", "Stopping container main", path),
    }
    await eventually(lambda: events(node, "p"), lambda found: expected <= set(found))


async def test_a_pod_with_a_sidecar_is_ready_with_it_and_completes_without_it(node: Node, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    sidecar = {**container(SLEEP), "name": "sidecar", "restartPolicy": "Always"}
    main = container(f"while test ! -e {flag}; do sleep 0.01; done")
    await node.create("p", main, initContainers=[sidecar], annotations={"directory": str(tmp_path)})
    pod = await node.until("p", is_ready)
    (status,) = pod["status"]["initContainerStatuses"]
    assert (status["started"], status["ready"]) == (True, True)
    flag.touch()
    pod = await node.until_phase("p", "Succeeded")
    assert "terminated" in pod["status"]["initContainerStatuses"][0]["state"]


async def test_a_pod_fails_at_its_deadline(node: Node) -> None:
    await node.create("p", container(SLEEP), activeDeadlineSeconds=1, restartPolicy="Always")
    pod = await node.until_phase("p", "Failed")
    text = "Pod was active on the node longer than the specified deadline"
    assert (pod["status"]["reason"], pod["status"]["message"]) == ("DeadlineExceeded", text)
    assert (await node.event("DeadlineExceeded"))["message"] == text


async def test_a_deadline_applies_to_a_pod_that_cannot_start_and_can_be_set_later(node: Node) -> None:
    missing = {"name": "data", "configMap": {"name": "missing"}}
    await node.create("waits", container(SLEEP), volumes=[missing], activeDeadlineSeconds=1)
    await node.create("runs", container(SLEEP))
    await node.until("runs", is_running)
    await node.client.patch(PODS, "runs", {"spec": {"activeDeadlineSeconds": 1}}, namespace="default")
    for name in ("waits", "runs"):
        pod = await node.until_phase(name, "Failed")
        assert pod["status"]["reason"] == "DeadlineExceeded"


async def test_a_changed_image_restarts_the_container(node: Node) -> None:
    await node.create("p", container(SLEEP))
    before = await node.until("p", is_running)
    change = {"spec": {"containers": [{"name": "main", "image": "trainwright/host:2"}]}}
    await node.client.patch(PODS, "p", change, namespace="default", kind=PatchKind.STRATEGIC)
    pod = await node.until("p", lambda pod: restarts(pod) == 1 and is_running(pod))
    assert pod["status"]["containerStatuses"][0]["image"] == "trainwright/host:2"
    assert pod["metadata"]["generation"] == before["metadata"]["generation"] + 1
    assert pod["status"]["observedGeneration"] == pod["metadata"]["generation"]
    assert (await node.event("Killing"))["message"] == "Container main definition changed, will be restarted"


async def test_the_termination_message_is_in_the_status(node: Node) -> None:
    await node.create("p", container("echo done > /dev/termination-log"))
    pod = await node.until_phase("p", "Succeeded")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] == "done\n"


async def test_the_end_of_the_log_is_the_termination_message_of_a_failed_container(node: Node) -> None:
    await node.create("p", container("echo bad; exit 1", terminationMessagePolicy="FallbackToLogsOnError"))
    pod = await node.until_phase("p", "Failed")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] == "bad\n"


async def test_readiness_gates_wait_for_the_conditions_of_others(node: Node) -> None:
    await node.create("p", container(SLEEP), readinessGates=[{"conditionType": "example.com/fed"}])
    pod = await node.until("p", is_running)
    assert condition(pod, "ContainersReady")["status"] == "True"
    ready = condition(pod, "Ready")
    text = 'corresponding condition of pod readiness gate "example.com/fed" does not exist.'
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "ReadinessGatesNotReady", text)
    fed = {"type": "example.com/fed", "status": "True"}
    change = {"status": {"conditions": [*pod["status"]["conditions"], fed]}}
    await node.client.patch(PODS, "p", change, namespace="default", subresource="status")
    await node.until("p", is_ready)


async def test_probes_go_on_while_no_agent_runs_and_their_events_are_recorded_later(node: Node, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    liveness = {"exec": {"command": ["test", "-e", str(flag)]}, "periodSeconds": 1, "failureThreshold": 1}
    await node.create(
        "p",
        container(f"echo run >> {tmp_path}/runs; {SLEEP}", livenessProbe=liveness),
        restartPolicy="Always",
        annotations={"directory": str(tmp_path)},
    )
    await node.until("p", is_running)
    await node.down()
    flag.unlink()

    async def runs() -> int:
        return (tmp_path / "runs").read_text().count("run")

    await eventually(runs, lambda count: count == 2)
    flag.touch()
    await node.up()
    await node.until("p", lambda pod: restarts(pod) == 1)
    killing = await node.event("Killing")
    assert killing["message"] == "Container main failed liveness probe, will be restarted"


async def test_a_deleted_node_registers_again(node: Node) -> None:
    async def found() -> Object | None:
        items = (await node.client.list(NODES)).items
        return items[0] if items else None

    first = await eventually(found, lambda one: one is not None and one.get("status", {}).get("conditions"))
    assert first is not None
    await node.client.delete(NODES, "local")

    def is_new(one: Object | None) -> bool:
        return bool(one and one["metadata"]["uid"] != first["metadata"]["uid"] and one["status"].get("conditions"))

    again = await eventually(found, is_new)
    assert again is not None
    assert {one["type"]: one["status"] for one in again["status"]["conditions"]}["Ready"] == "True"
