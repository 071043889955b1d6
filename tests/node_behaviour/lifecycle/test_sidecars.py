"""Init containers with the restart policy Always."""

from typing import Any

from tests.support.node.namespace import NodeNamespace, condition, container, container_status
from trainwright.objects import Object

MEMORY = [{"name": "state", "emptyDir": {}}]
MOUNT = [{"name": "state", "mountPath": "/state"}]


def sidecar(script: str, *, name: str = "side", **fields: Any) -> Object:
    return container(script, name=name, restartPolicy="Always", volumeMounts=MOUNT, **fields)


def noting(name: str) -> str:
    """Notes its start and its end."""
    return f"trap 'echo {name} ends >> /state/log; exit 0' TERM; echo {name} >> /state/log; while :; do sleep 0.1; done"


async def test_a_pod_completes_without_its_sidecar(node: NodeNamespace) -> None:
    await node.pod("p", container("sleep 1"), initContainers=[sidecar(noting("side"))], volumes=MEMORY)
    pod = await node.until_phase("p", "Succeeded")
    assert "terminated" in container_status(pod, "side")["state"]
    assert condition(pod, "Initialized")["status"] == "True"


async def test_a_sidecar_that_fails_at_the_end_does_not_fail_the_pod(node: NodeNamespace) -> None:
    failing = "trap 'exit 7' TERM; touch /state/up; while :; do sleep 0.1; done"
    main = container("while test ! -e /state/up; do sleep 0.1; done", volumeMounts=MOUNT)
    await node.pod("p", main, initContainers=[sidecar(failing)], volumes=MEMORY)
    pod = await node.until_phase("p", "Succeeded")
    assert container_status(pod, "side")["state"]["terminated"]["exitCode"] == 7


async def test_containers_after_a_sidecar_start_when_its_startup_probe_has_succeeded(node: NodeNamespace) -> None:
    startup = {
        "exec": {"command": ["test", "-e", "/state/up"]},
        "periodSeconds": 1,
        "failureThreshold": 60,
    }
    first = sidecar("sleep 2; touch /state/up; sleep 600", startupProbe=startup)
    second = container("ls /state", name="second", volumeMounts=MOUNT)
    await node.pod("p", container("ls /state", volumeMounts=MOUNT), initContainers=[first, second], volumes=MEMORY)
    await node.until_phase("p", "Succeeded")
    assert await node.log("p", "second") == "up\n"
    assert await node.log("p") == "up\n"


async def test_sidecars_end_in_reverse_order_after_the_main_container(node: NodeNamespace) -> None:
    directory = node.host_directory
    volume = [{"name": "state", "hostPath": {"path": str(directory)}}]
    both = "grep -q first /state/log && grep -q second /state/log"
    main = container(f"until {both}; do sleep 0.1; done; echo main >> /state/log", volumeMounts=MOUNT)
    inits = [sidecar(noting("first"), name="first"), sidecar(noting("second"), name="second")]
    await node.pod("p", main, initContainers=inits, volumes=volume, terminationGracePeriodSeconds=20)
    await node.until_phase("p", "Succeeded")
    lines = (directory / "log").read_text().splitlines()
    assert sorted(lines[:3]) == ["first", "main", "second"]
    assert lines[3:] == ["second ends", "first ends"]


async def test_a_sidecar_restarts_although_the_pod_does_not(node: NodeNamespace) -> None:
    main = container("while test ! -e /state/twice; do sleep 0.1; done", volumeMounts=MOUNT)
    script = "echo run >> /state/runs; test $(wc -l < /state/runs) -lt 2 || touch /state/twice; sleep 1; exit 1"
    await node.pod("p", main, initContainers=[sidecar(script)], volumes=MEMORY)
    pod = await node.until_phase("p", "Succeeded")
    assert container_status(pod, "side")["restartCount"] >= 1
    assert container_status(pod)["restartCount"] == 0


async def test_readiness_of_a_sidecar_counts(node: NodeNamespace) -> None:
    readiness = {"exec": {"command": ["test", "-e", "/state/ready"]}, "periodSeconds": 1}
    await node.pod(
        "p",
        container("sleep 600", volumeMounts=MOUNT),
        initContainers=[sidecar("sleep 600", readinessProbe=readiness)],
        volumes=MEMORY,
    )
    message = "containers with unready status: [side]"
    await node.until("p", lambda pod: condition(pod, "Ready").get("message") == message)
    await node.exec("p", "touch", "/state/ready", container="main")
    pod = await node.until_ready("p")
    assert container_status(pod, "side")["ready"] is True


async def test_a_failed_init_container_after_a_sidecar_fails_the_pod(node: NodeNamespace) -> None:
    inits = [sidecar(noting("side")), container("exit 3", name="setup")]
    await node.pod("p", container("sleep 600"), initContainers=inits, volumes=MEMORY)
    pod = await node.until_phase("p", "Failed")
    assert container_status(pod, "setup")["state"]["terminated"]["exitCode"] == 3
