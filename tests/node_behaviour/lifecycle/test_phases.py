"""How a pod starts and ends: phase, exit code and reason of its containers, conditions."""

import pytest

from tests.support.node.namespace import (
    NodeNamespace,
    condition,
    conditions,
    container,
    container_status,
    python,
    terminated,
)


async def test_a_program_that_exits_with_0_succeeds(node: NodeNamespace) -> None:
    await node.pod("p", container("exit 0"))
    ended = terminated(await node.until_phase("p", "Succeeded"))
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed")


@pytest.mark.parametrize("code", [1, 42, 255])
async def test_a_program_that_exits_with_another_code_fails(node: NodeNamespace, code: int) -> None:
    await node.pod("p", container(f"exit {code}"))
    ended = terminated(await node.until_phase("p", "Failed"))
    assert (ended["exitCode"], ended["reason"]) == (code, "Error")


async def test_the_exit_code_of_a_signal_is_128_and_its_number(node: NodeNamespace) -> None:
    await node.pod("p", container("sh -c 'kill -TERM $$$$'; exit $?"))  # in a manifest $$ is one dollar sign
    assert terminated(await node.until_phase("p", "Failed"))["exitCode"] == 143


async def test_a_program_that_does_not_exist_cannot_start(node: NodeNamespace) -> None:
    await node.pod("p", {**container(""), "command": ["/no/such/program"]})
    ended = terminated(await node.until_phase("p", "Failed"))
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert "no such file or directory" in ended["message"].lower()


async def test_a_pod_fails_if_one_of_its_containers_does(node: NodeNamespace) -> None:
    await node.pod("p", container("exit 0"), container("exit 5", name="other"))
    pod = await node.until_phase("p", "Failed")
    assert (terminated(pod)["exitCode"], terminated(pod, "other")["exitCode"]) == (0, 5)


async def test_a_pod_runs_as_long_as_one_of_its_containers_does(node: NodeNamespace) -> None:
    await node.pod("p", container("exit 1"), container("sleep 600", name="other"))
    await node.until_container("p", "terminated")
    pod = await node.until("p", lambda pod: "running" in container_status(pod, "other")["state"])
    assert pod["status"]["phase"] == "Running"
    assert condition(pod, "Ready")["reason"] == "ContainersNotReady"
    assert condition(pod, "Ready")["message"] == "containers with unready status: [main]"


async def test_the_conditions_of_a_running_pod_are_true(node: NodeNamespace) -> None:
    await node.pod("p", container("sleep 600"))
    kinds = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
    pod = await node.until("p", lambda pod: conditions(pod) == dict.fromkeys(kinds, "True"))
    assert pod["status"]["phase"] == "Running"


@pytest.mark.parametrize(("code", "phase", "reason"), [(0, "Succeeded", "PodCompleted"), (1, "Failed", "PodFailed")])
async def test_a_pod_that_has_ended_is_not_ready(node: NodeNamespace, code: int, phase: str, reason: str) -> None:
    await node.pod("p", container(f"exit {code}"))
    pod = await node.until_phase("p", phase)
    for kind in ("Ready", "ContainersReady"):
        assert (condition(pod, kind)["status"], condition(pod, kind)["reason"]) == ("False", reason)
    assert condition(pod, "Initialized")["status"] == "True"
    await node.until("p", lambda pod: condition(pod, "PodReadyToStartContainers")["status"] == "False")


async def test_times_are_in_order(node: NodeNamespace) -> None:
    created = await node.pod("p", container("exit 0"))
    pod = await node.until_phase("p", "Succeeded")
    ended = terminated(pod)
    times = [
        created["metadata"]["creationTimestamp"],
        pod["status"]["startTime"],
        ended["startedAt"],
        ended["finishedAt"],
    ]
    assert times == sorted(times)


async def test_the_status_of_a_running_container_has_every_field(node: NodeNamespace) -> None:
    await node.pod("p", container("sleep 600"))
    status = container_status(await node.until_phase("p", "Running"))
    assert status["state"]["running"]["startedAt"]
    assert (status["ready"], status["started"], status["restartCount"]) == (True, True, 0)
    assert status["image"].endswith("trainwright/host:1")
    assert "://" in status["containerID"]
    assert not status.get("lastState")


async def test_addresses_are_reported_once_the_pod_runs(node: NodeNamespace) -> None:
    await node.pod("p", container("sleep 600"))
    status = (await node.until_phase("p", "Running"))["status"]
    assert status["podIPs"] == [{"ip": status["podIP"]}]
    assert status["hostIPs"] == [{"ip": status["hostIP"]}]


async def test_every_pod_has_an_address_of_its_own(node: NodeNamespace) -> None:
    for name in ("one", "two"):
        await node.pod(name, container("sleep 600"))
    addresses = {(await node.until_phase(name, "Running"))["status"]["podIP"] for name in ("one", "two")}
    assert len(addresses) == 2


async def test_the_host_name_of_a_container_is_that_of_its_pod(node: NodeNamespace) -> None:
    await node.pod("p", container("echo $HOSTNAME"))
    assert await node.output("p") == "p\n"


async def test_spec_hostname_replaces_the_name_of_the_pod(node: NodeNamespace) -> None:
    await node.pod("p", container("echo $HOSTNAME"), hostname="other")
    assert await node.output("p") == "other\n"


async def test_args_follow_the_command(node: NodeNamespace) -> None:
    await node.pod("p", {**container(""), "command": ["echo", "-n"], "args": ["a b", "$(NAME)", "c"]})
    assert await node.output("p") == "a b $(NAME) c"


async def test_the_working_directory_is_that_of_the_spec(node: NodeNamespace) -> None:
    await node.pod("p", container("pwd", workingDir="/usr/bin"))
    assert (await node.output("p")).strip() in {"/usr/bin", "/bin"}


async def test_standard_input_is_empty(node: NodeNamespace) -> None:
    await node.pod("p", python("import sys; print(repr(sys.stdin.read()))"))
    assert await node.output("p") == "''\n"


async def test_a_python_program_runs(node: NodeNamespace) -> None:
    await node.pod("p", python("import json, sys; print(json.dumps({'a': 1})); sys.exit(7)"))
    assert await node.output("p", "Failed") == '{"a": 1}\n'


async def test_containers_of_a_pod_share_their_network(node: NodeNamespace) -> None:
    server = python(
        "import socket; s = socket.create_server(('127.0.0.1', 28765)); c, _ = s.accept(); c.sendall(b'hello')",
        name="server",
    )
    client = python(
        "import socket, time\n"
        "while True:\n"
        "    try:\n"
        "        print(socket.create_connection(('127.0.0.1', 28765)).recv(9).decode()); break\n"
        "    except OSError:\n"
        "        time.sleep(0.05)"
    )
    await node.pod("p", client, server)
    assert await node.output("p") == "hello\n"


@pytest.mark.only("overlay", "kubelet")
async def test_a_working_directory_that_does_not_exist_is_created(node: NodeNamespace) -> None:
    await node.pod("p", container("pwd", workingDir="/opt/no/such/directory"))
    assert await node.output("p") == "/opt/no/such/directory\n"


async def test_the_status_of_a_container_names_its_volumes(node: NodeNamespace) -> None:
    mounts = [{"name": "v", "mountPath": "/v"}, {"name": "c", "mountPath": "/c", "readOnly": True}]
    volumes = [{"name": "v", "emptyDir": {}}, {"name": "c", "emptyDir": {}}]
    await node.pod("p", container("sleep 600", volumeMounts=mounts), volumes=volumes)
    found = container_status(await node.until_phase("p", "Running"))["volumeMounts"]
    assert found[:2] == [
        {"name": "v", "mountPath": "/v"},
        {"name": "c", "mountPath": "/c", "readOnly": True, "recursiveReadOnly": "Disabled"},
    ]


async def test_the_status_names_the_generation_that_it_is_about(node: NodeNamespace) -> None:
    created = await node.pod("p", container("sleep 600"))
    pod = await node.until_phase("p", "Running")
    assert pod["status"]["observedGeneration"] == created["metadata"]["generation"]
    assert condition(pod, "Ready")["observedGeneration"] == created["metadata"]["generation"]


@pytest.mark.differs("A pod that waits for a ConfigMap or Secret of its environment has its sandbox already")
async def test_a_pod_without_its_config_map_has_its_sandbox(node: NodeNamespace) -> None:
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "absent", "key": "k"}}}]
    await node.pod("p", container("exit 0", env=env))
    await node.until_container("p", "waiting", reason="CreateContainerConfigError")
    pod = await node.until("p", lambda pod: condition(pod, "ContainersReady").get("reason"))
    assert condition(pod, "PodReadyToStartContainers")["status"] == "True"
