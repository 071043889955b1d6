"""The agent on the embedded API server, with real processes: from a Pod object to its end, through every restart."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.node import Node, container, running_node
from tests.support.cluster.supervised_pods import processes_with
from tests.support.waiting import eventually
from trainwright.cluster.node.pods.pod_directory import PodDirectory, SupervisorProcess, pod_directories
from trainwright.cluster.node.pods.pod_termination import StoppingPods
from trainwright.cluster.node.supervisor.files import write_json
from trainwright.objects import Object
from trainwright.objects.kinds.pods import read_pod
from trainwright.objects.resources import (
    CONFIG_MAPS,
    LEASES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    SERVICES,
)

pytestmark = pytest.mark.thorough("plain", sample=9)


def main_status(pod: Object) -> Object:
    status: Object = pod["status"]["containerStatuses"][0]
    return status


def supervisor_of(node: Node, pod: Object) -> SupervisorProcess:
    """The caller closes its descriptor."""
    supervisor = PodDirectory(node.directory / "pods" / pod["metadata"]["uid"]).find_supervisor()
    assert supervisor is not None
    return supervisor


async def test_a_pod_runs_and_its_status_shows_it(node: Node) -> None:
    await node.create("p", container("echo hello; echo $HOSTNAME"))
    pod = await node.until_phase("p", "Succeeded")
    assert main_status(pod)["state"]["terminated"]["exitCode"] == 0
    assert pod["status"]["podIP"].startswith("127.")
    assert pod["status"]["hostIP"] == "127.0.0.1"
    assert node.agent is not None
    assert pod["metadata"]["annotations"]["node.trainwright.dev/sandbox"] == node.agent.sandbox
    assert await node.log(pod) == "hello\np\n"


async def test_a_pod_whose_variables_grow_without_end_waits_and_the_node_goes_on(node: Node) -> None:
    env = [{"name": "E_0", "value": "0123456789abcdef"}]
    env += [{"name": f"E_{i}", "value": f"$(E_{i - 1})$(E_{i - 1})"} for i in range(1, 40)]
    await node.create("grows", container("true") | {"env": env})
    await node.create("p", container("true"))

    await node.until_phase("p", "Succeeded")
    waiting = await node.until_waiting("grows")

    assert waiting["reason"] == "CreateContainerConfigError"
    assert 'env "E_13" has 131,072 bytes, and Linux allows 131,071' in waiting["message"]


async def test_a_failure_has_its_exit_code(node: Node) -> None:
    await node.create("p", container("exit 3"))
    pod = await node.until_phase("p", "Failed")
    assert main_status(pod)["state"]["terminated"]["exitCode"] == 3
    assert main_status(pod)["state"]["terminated"]["reason"] == "Error"


async def stop_the_cluster(node: Node) -> None:
    """As `trainwright down` does: the node ends, then its pods."""
    await node.down()
    pods = StoppingPods(node.directory)
    pods.stop()
    while not pods.wait(1):
        pass


async def test_a_pod_without_restarts_fails_as_disrupted_when_the_cluster_is_stopped(node: Node) -> None:
    await node.create("p", container("trap 'exit 0' TERM; while :; do sleep 0.01; done"))
    await node.until_phase("p", "Running")
    await stop_the_cluster(node)

    await node.up()
    pod = await node.until_phase("p", "Failed")
    message = "Pod was terminated in response to imminent node shutdown."
    assert (pod["status"]["reason"], pod["status"]["message"]) == ("Terminated", message)
    (target,) = [one for one in pod["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    assert (target["status"], target["reason"]) == ("True", "TerminationByKubelet")


async def test_an_init_container_that_runs_again_after_a_stop_of_the_cluster_does_not_count(node: Node) -> None:
    await node.create(
        "p", container("exec sleep 600"), restartPolicy="OnFailure", initContainers=[container("true", name="init")]
    )
    await node.until_phase("p", "Running")
    await stop_the_cluster(node)

    await node.up()
    pod = await node.until("p", lambda pod: main_status(pod)["restartCount"] == 1)
    assert pod["status"]["initContainerStatuses"][0]["restartCount"] == 1
    assert read_pod(pod).restarts == 0


async def test_a_container_is_restarted_by_policy_and_its_previous_log_is_kept(node: Node, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    script = f"test -e {flag} && echo again && exit 0; touch {flag}; echo first; exit 1"
    await node.create("p", container(script), restartPolicy="OnFailure", annotations={"directory": str(tmp_path)})
    pod = await node.until_phase("p", "Succeeded")
    assert main_status(pod)["restartCount"] == 1
    assert main_status(pod)["lastState"]["terminated"]["exitCode"] == 1
    assert await node.log(pod) == "again\n"
    assert await node.log(pod, previous=True) == "first\n"


def printing_at_both_ends(gate: Path) -> Object:
    return container(f"echo one; until test -e {gate}; do sleep 0.01; done; echo two")


async def test_a_running_pod_is_ready_and_its_log_can_be_followed(node: Node, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    await node.create("p", printing_at_both_ends(gate), annotations={"directory": str(tmp_path)})
    pod = await node.until_phase("p", "Running")
    conditions = {one["type"]: one["status"] for one in pod["status"]["conditions"]}
    assert conditions["Ready"] == conditions["ContainersReady"] == conditions["Initialized"] == "True"
    following = asyncio.create_task(node.log(pod, follow=True))
    gate.touch()
    assert await following == "one\ntwo\n"


async def test_deletion_gives_the_program_time_and_then_removes_everything(node: Node, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    script = f"trap 'echo x > {saved}; exit 0' TERM; echo ready; while :; do sleep 0.01; done"
    created = await node.create("p", container(script), annotations={"directory": str(tmp_path)})
    pod = await node.until_phase("p", "Running")
    await eventually(lambda: node.log(pod), lambda text: "ready" in text)
    await node.delete("p")
    await node.until_gone("p")
    assert saved.exists()
    await eventually(_coroutine(lambda: pod_directories(node.directory)), lambda found: not found)
    assert created["metadata"]["uid"] not in pod_directories(node.directory)


async def test_a_pod_that_ignores_sigterm_is_killed_after_the_grace_period(node: Node) -> None:
    await node.create("p", container("trap '' TERM; while :; do sleep 0.01; done"))
    await node.until_phase("p", "Running")
    await node.delete("p", grace_period_seconds=1)
    await node.until_gone("p")


async def test_a_stop_request_whose_signal_was_never_sent_is_carried_out(node: Node) -> None:
    """The agent was killed between the two."""
    await node.create("p", container("sleep 600"))
    pod = await node.until_phase("p", "Running")
    await node.down()
    write_json(str(node.directory / "pods" / pod["metadata"]["uid"] / "stop.json"), {"grace": 30.0})
    await node.delete("p", grace_period_seconds=30)
    assert node.agent is not None
    await node.up(sandbox=node.agent.sandbox)
    await node.until_gone("p")


async def test_a_supervisor_of_an_earlier_agent_in_this_process_is_reaped(node: Node) -> None:
    await node.create("p", container("sleep 600"))
    pod = await node.until_phase("p", "Running")
    supervisor = supervisor_of(node, pod)
    os.close(supervisor.descriptor)
    await node.down()
    assert node.agent is not None
    await node.up(sandbox=node.agent.sandbox)
    await node.delete("p", grace_period_seconds=1)
    await node.until_gone("p")
    entry = Path(f"/proc/{supervisor.identity.pid}")
    await eventually(_coroutine(entry.exists), lambda there: not there)


async def test_a_supervisor_that_fails_at_once_is_reported_as_an_event(tmp_path: Path) -> None:
    async with running_node(tmp_path / "node", sandbox="plain", supervisor_python="/bin/false") as node:
        await node.create("p", container("echo never"))
        event = await node.event("FailedCreatePodSandBox")
        assert event["message"] == "the fork server of supervisors ended: unknown reason"
        assert event["involvedObject"]["name"] == "p"


async def test_a_supervisor_that_cannot_be_started_is_reported_as_an_event(tmp_path: Path) -> None:
    missing = tmp_path / "no-python"
    async with running_node(tmp_path / "node", sandbox="plain", supervisor_python=str(missing)) as node:
        await node.create("p", container("echo never"))
        waiting = await node.until_waiting("p")
        assert waiting["reason"] == "FailedCreatePodSandBox"
        assert "No such file or directory" in waiting["message"]


async def test_a_pod_that_is_deleted_at_once_is_stopped(node: Node) -> None:
    await node.create("p", container("sleep 600"))
    pod = await node.until_phase("p", "Running")
    supervisor = supervisor_of(node, pod)
    os.close(supervisor.descriptor)
    await node.delete("p", grace_period_seconds=0)
    await eventually(_coroutine(lambda: supervisor.identity.alive), lambda alive: not alive)


async def test_a_pod_recreated_under_the_same_name_is_another_pod(node: Node) -> None:
    await node.create("p", container("sleep 600"))
    first = await node.until_phase("p", "Running")
    await node.delete("p", grace_period_seconds=0)
    await node.create("p", container("echo second"))
    second = await node.until_phase("p", "Succeeded")
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert await node.log(second) == "second\n"
    await eventually(
        _coroutine(lambda: set(pod_directories(node.directory))), lambda u: u == {second["metadata"]["uid"]}
    )


async def test_pods_outlive_the_agent_and_are_adopted(node: Node, tmp_path: Path) -> None:
    assert node.agent is not None
    level = node.agent.sandbox
    gate = tmp_path / "gate"
    await node.create("p", printing_at_both_ends(gate), annotations={"directory": str(tmp_path)})
    running = await node.until_phase("p", "Running")
    await node.down()
    await node.up(sandbox=level)
    gate.touch()
    pod = await node.until_phase("p", "Succeeded")
    assert main_status(pod)["restartCount"] == 0
    assert main_status(pod)["state"]["terminated"]["startedAt"] == main_status(running)["state"]["running"]["startedAt"]
    assert pod["status"]["podIP"] == running["status"]["podIP"]
    assert await node.log(pod) == "one\ntwo\n"


async def test_a_pod_that_ended_while_no_agent_ran_is_reported_later(node: Node, tmp_path: Path) -> None:
    assert node.agent is not None
    (shared := tmp_path / "shared").mkdir()
    gate = shared / "gate"
    mount = [{"name": "shared", "mountPath": str(shared)}]
    program = container(f"until [ -e {gate} ]; do sleep 0.01; done; exit 4", volumeMounts=mount)
    await node.create("p", program, volumes=[{"name": "shared", "hostPath": {"path": str(shared)}}])
    running = await node.until_phase("p", "Running")
    level = node.agent.sandbox
    await node.down()
    gate.touch()
    directory = PodDirectory(node.directory / "pods" / running["metadata"]["uid"])
    await eventually(_coroutine(lambda: directory.state), lambda state: state and state["finished"])
    await node.up(sandbox=level)
    pod = await node.until_phase("p", "Failed")
    assert main_status(pod)["state"]["terminated"]["exitCode"] == 4


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
async def test_a_pod_whose_supervisor_was_killed_ends_or_starts_again_by_its_policy(node: Node, policy: str) -> None:
    await node.create("p", container("sleep 600"), restartPolicy=policy)
    pod = await node.until_phase("p", "Running")
    supervisor = supervisor_of(node, pod)
    supervisor.signal(signal.SIGKILL)
    os.close(supervisor.descriptor)
    if policy == "Never":
        pod = await node.until_phase("p", "Failed")
        ended = main_status(pod)["state"]["terminated"]
    else:
        pod = await node.until("p", lambda pod: main_status(pod)["restartCount"] == 1)
        ended = main_status(pod)["lastState"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("ContainerStatusUnknown", 137)


async def test_no_process_outlives_a_pod_whose_supervisor_was_killed(node: Node) -> None:
    marker = f"{1000 + os.getpid()}.{time.monotonic_ns()}"
    await node.create("p", container(f"sleep {marker} & wait"))
    pod = await node.until_phase("p", "Running")
    await eventually(_coroutine(lambda: processes_with(marker)), lambda found: len(found) == 2)
    supervisor = supervisor_of(node, pod)
    supervisor.signal(signal.SIGKILL)
    os.close(supervisor.descriptor)
    await node.until_phase("p", "Failed")
    await eventually(_coroutine(lambda: processes_with(marker)), lambda found: not found)


async def test_a_pod_that_was_deleted_while_no_agent_ran_is_stopped(node: Node) -> None:
    assert node.agent is not None
    level = node.agent.sandbox
    await node.create("p", container("sleep 600"))
    pod = await node.until_phase("p", "Running")
    await node.down()
    await node.delete("p", grace_period_seconds=0)
    await node.up(sandbox=level)
    await eventually(_coroutine(lambda: pod_directories(node.directory)), lambda found: not found)
    assert pod["metadata"]["uid"] not in pod_directories(node.directory)


async def test_a_pod_without_a_command_waits_and_says_what_to_do(node: Node) -> None:
    await node.create("p", {"name": "main", "image": "busybox"})
    waiting = await node.until_waiting("p")
    assert waiting["reason"] == "ImageHasNoCommand"
    assert "add `command:`" in waiting["message"]
    assert (await node.event("ImageHasNoCommand"))["type"] == "Warning"


async def test_a_pod_of_another_system_does_not_run(node: Node) -> None:
    await node.create("p", container("echo never"), os={"name": "windows"})
    waiting = await node.until_waiting("p")
    assert waiting["reason"] == "PodOSNotSupported"
    assert (await node.event("PodOSNotSupported"))["message"] == waiting["message"]


async def test_unsupported_fields_are_reported_as_warning_events(node: Node) -> None:
    await node.create("p", container("sleep 5", image="pytorch:2"), hostPID=True)
    assert "pytorch:2" in (await node.event("UnknownImage"))["message"]
    assert "spec.hostPID" in (await node.event("FieldNotHonoured"))["message"]
    assert (await node.event("Started"))["involvedObject"]["name"] == "p"


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        (
            {"hostPath": {"path": "/no/such/data", "type": "Directory"}},
            "hostPath type check failed: /no/such/data is not a directory: create it, or correct hostPath.path",
        ),
        ({"configMap": {"name": "absent"}}, 'configmap "absent" not found: create it in namespace default'),
        ({"secret": {"secretName": "absent"}}, 'secret "absent" not found: create it in namespace default'),
    ],
)
async def test_a_pod_that_waits_for_something_missing_says_what_and_how_to_fix_it(
    node: Node, volume: Object, message: str
) -> None:
    mounts = [{"name": "v", "mountPath": "/v"}]
    await node.create("p", container("true", volumeMounts=mounts), volumes=[{"name": "v", **volume}])
    waiting = await node.until_waiting("p")
    assert waiting["reason"] == "FailedMount"
    expected = f'MountVolume.SetUp failed for volume "v" : {message}'
    assert waiting["message"].startswith(expected)
    assert (await node.event("FailedMount"))["message"].startswith(expected)


async def test_a_pod_waits_for_its_config_map_and_for_its_claim(node: Node, tmp_path: Path) -> None:
    volumes = [
        {"name": "config", "configMap": {"name": "c"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}},
    ]
    mounts = [{"name": "config", "mountPath": "/config"}, {"name": "data", "mountPath": "/data"}]
    one = container("cp /config/text /data/copy", volumeMounts=mounts)
    one["command"] = ["sh", "-c", "cp /config/text /data/copy"]
    await node.create("p", one, volumes=volumes)
    assert (await node.until_waiting("p"))["reason"] == "FailedMount"
    metadata = {"name": "c", "namespace": "default"}
    await node.client.create(
        CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": "x"}}
    )
    amount = {"storage": "1Gi"}
    await node.client.create(
        PERSISTENT_VOLUMES,
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "pv"},
            "spec": {"capacity": amount, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": str(tmp_path / "pv")}},
        },
    )
    claim = await node.client.create(
        PERSISTENT_VOLUME_CLAIMS,
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "claim", "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": amount}, "volumeName": "pv"},
        },
    )
    claim["status"] = {"phase": "Bound"}
    reference = {"namespace": "default", "name": "claim", "uid": claim["metadata"]["uid"]}
    await node.client.patch(PERSISTENT_VOLUMES, "pv", {"spec": {"claimRef": reference}})
    await node.client.replace(PERSISTENT_VOLUME_CLAIMS, claim, subresource="status")
    await node.until_phase("p", "Succeeded")
    assert (tmp_path / "pv" / "copy").read_text() == "x"


async def test_pods_find_each_other_by_name(node: Node) -> None:
    """The service comes after the pod that speaks of it, as it may when a controller creates both at once."""
    script = f"{sys.executable} -c 'import os, socket; print(socket.gethostbyname(os.environ[\"MASTER_ADDR\"]))'"
    await node.create("job-worker-0", container(script, env=[{"name": "MASTER_ADDR", "value": "job-master-0"}]))
    await node.create("pod-of-master", container("sleep 600"), metadata={"labels": {"role": "master"}})
    service = {"selector": {"role": "master"}, "clusterIP": "None", "ports": [{"port": 23456}]}
    metadata = {"name": "job-master-0", "namespace": "default"}
    await node.client.create(SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service})
    assert node.agent is not None
    if node.agent.sandbox == "overlay":  # the name may have come after the process had looked
        await node.until("job-worker-0", lambda pod: pod["status"]["phase"] in {"Succeeded", "Failed"})
        await node.delete("job-worker-0")
        await node.until_gone("job-worker-0")
        await node.create("job-worker-0", container(script, env=[{"name": "MASTER_ADDR", "value": "job-master-0"}]))
    worker = await node.until_phase("job-worker-0", "Succeeded")
    master = await node.until_phase("pod-of-master", "Running")
    assert await node.log(worker) == master["status"]["podIP"] + "\n"


async def test_pods_on_the_network_of_the_machine_have_its_address(node: Node) -> None:
    script = f"{sys.executable} -c 'import socket; print(socket.gethostbyname(\"first\"))'; sleep 600"
    await node.create("first", container("sleep 600"), hostNetwork=True)
    await node.until_phase("first", "Running")
    await node.create("second", container(script), hostNetwork=True)

    for name in ("first", "second"):
        status = (await node.until_phase(name, "Running"))["status"]
        assert (status["podIP"], status["podIPs"]) == (status["hostIP"], [{"ip": "127.0.0.1"}])
    assert node.agent is not None
    if node.agent.sandbox == "overlay":
        pod = await node.pod("second")
        assert pod is not None
        assert await eventually(lambda: node.log(pod), bool) == "127.0.0.1\n"


async def test_the_node_registers_itself_and_keeps_its_lease(node: Node) -> None:
    async def found() -> Object:
        nodes = (await node.client.list(NODES)).items
        return nodes[0] if nodes else {}

    one = await eventually(found, lambda one: one.get("status", {}).get("conditions"))
    assert node.agent is not None
    assert one["metadata"]["name"] == "local"
    assert one["metadata"]["annotations"]["node.trainwright.dev/sandbox"] == node.agent.sandbox
    conditions = {condition["type"]: condition for condition in one["status"]["conditions"]}
    assert conditions["Ready"]["status"] == "True"
    assert (conditions["OwnPorts"]["status"] == "True") == (conditions["OwnPorts"]["reason"] == "SystemCallFilter")
    assert int(one["status"]["allocatable"]["cpu"]) >= 1

    async def lease() -> Object:
        leases = (await node.client.list(LEASES, namespace="kube-node-lease")).items
        return leases[0] if leases else {}

    kept = await eventually(lease, bool)
    assert kept["spec"]["holderIdentity"] == "local"


async def test_several_pods_at_once_all_run(node: Node) -> None:
    names = [f"p{number}" for number in range(8)]
    await asyncio.gather(*(node.create(name, container("echo $HOSTNAME")) for name in names))
    pods = await asyncio.gather(*(node.until_phase(name, "Succeeded") for name in names))
    assert len({pod["status"]["podIP"] for pod in pods}) == len(names)
    assert [await node.log(pod) for pod in pods] == [f"{name}\n" for name in names]


def _coroutine(look: Any) -> Any:
    async def looked() -> Any:
        return look()

    return looked


async def test_a_pod_without_a_token_does_not_look_for_the_api_server(tmp_path: Path) -> None:
    """At `plain`: libraries that find the address of the API server fail without a token."""
    async with running_node(tmp_path / "node", sandbox="plain") as node:
        service = {"metadata": {"name": "kubernetes"}, "spec": {"ports": [{"port": 443}]}}
        await node.client.create(SERVICES, service, namespace="default")
        await node.create("p", container("env | grep KUBERNETES_ || echo none"))
        pod = await node.until_phase("p", "Succeeded")
        assert await node.log(pod) == "none\n"
