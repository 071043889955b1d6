"""`kill -9` of the cluster process again and again: its pods notice nothing, and `down` leaves nothing of them."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.cluster.embedded_cluster import UpCommand, up_command
from tests.support.cluster.leftovers import Footprint
from tests.support.commands.trainwright import trainwright
from tests.support.thoroughness import THOROUGH
from tests.support.waiting import eventually
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object
from trainwright.objects.resources import NODES, PODS, SERVICES

KILLS, COUNT = (10, 20) if THOROUGH else (3, 6)
SECONDS = 60

COUNTING = """
number=0
echo "began as $$"
while [ ! -e "$SHARED/stop-$INDEX" ]; do
  number=$((number + 1))
  echo "line $number of pod $INDEX"
  sleep 0.1
done
echo $number > "$SHARED/count-$INDEX.new"
mv "$SHARED/count-$INDEX.new" "$SHARED/count-$INDEX"
exit $INDEX
"""

DAEMON = """
setsid sleep 600 &
if [ "$LEVEL" = overlay ]; then  # at plain these are the machine's own
  echo some > /cache/file; echo some > /tmp/$TRAINWRIGHT_TEST; mkfifo /cache/pipe
fi
touch "$SHARED/daemon"
wait
"""

Pods = dict[str, Object]


@pytest.mark.timeout(500)
@pytest.mark.parametrize("level", ["overlay", *(["plain"] if THOROUGH else [])])
async def test_pods_survive_every_kill_and_down_leaves_nothing(tmp_path: Path, level: str) -> None:
    """Each time one pod ends while no cluster process runs."""
    shared, temporary = tmp_path / "shared", tmp_path / "temporary"
    shared.mkdir()
    temporary.mkdir()
    marker = f"trainwright-kills-{os.getpid()}"
    environment = {"TMPDIR": str(temporary), "TRAINWRIGHT_TEST": marker}

    with up_command(tmp_path, "--sandbox", level, environment=environment) as up:
        async with Client(up.config) as client:
            for index in range(COUNT):
                await client.create(PODS, _pod(f"pod-{index}", COUNTING, shared, marker, INDEX=str(index)))
            before = await _until(client, lambda pods: all(map(_is_running, pods.values())))
        up.kill()

    for kill in range(KILLS):
        (shared / f"stop-{kill}").touch()
        await _exists(shared / f"count-{kill}")
        with up_command(tmp_path, "--sandbox", level, environment=environment) as up:
            async with Client(up.config) as client:
                after = await _until(client, partial(_has_ended, f"pod-{kill}"))
                assert _runs(after) == _runs(before)
                assert all(_is_running(after[f"pod-{index}"]) for index in range(kill + 1, COUNT))
                if kill < KILLS - 1:
                    up.kill()
                    continue
                await _check_ends(client, shared)
                await client.create(SERVICES, _service())
                await client.create(PODS, _daemon(shared, marker, level))
                await _exists(shared / "daemon")
            _check_down(up, marker, killed=level == "plain")

    assert list(temporary.iterdir()) == []


async def _check_ends(client: Client, shared: Path) -> None:
    for index in range(COUNT):
        (shared / f"stop-{index}").touch()
    pods = await _until(client, lambda pods: not any(map(_is_running, pods.values())))
    for index in range(COUNT):
        ended = pods[f"pod-{index}"]["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (index, "Error" if index else "Completed")
        log = await client.raw("GET", f"/api/v1/namespaces/default/pods/pod-{index}/log")
        began, *lines = log.decode().splitlines()
        assert began.startswith("began as ")
        count = int((shared / f"count-{index}").read_text())
        assert lines == [f"line {number} of pod {index}" for number in range(1, count + 1)]


def _check_down(up: UpCommand, marker: str, *, killed: bool) -> None:
    """`killed`: the cluster process is killed once more, so that only `down` can clean up."""
    footprint = Footprint(up.data.path, marker)
    found = {line.partition(" ")[0] for line in footprint.found()}
    assert found >= {"process", "socket", "file"}, found  # a cluster that runs has what is looked for
    directory = ("--data-dir", str(up.data.path))
    if killed:
        up.kill()

    stopped = trainwright("down", *directory, environment=up.environment)

    assert stopped.code == 0, stopped.all
    up.process.wait(timeout=SECONDS)
    assert footprint.found() == []
    deleted = trainwright("down", "--delete", "--yes", *directory, environment=up.environment)
    assert deleted.code == 0, deleted.all
    assert not up.data.path.exists()


def _pod(name: str, script: str, shared: Path, marker: str, **variables: str) -> Object:
    env = {"SHARED": str(shared), "TRAINWRIGHT_TEST": marker, **variables}
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["/bin/sh", "-c", script],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "resources": {"limits": {"memory": "64Mi", "cpu": "1"}},
        "volumeMounts": [{"name": "shared", "mountPath": str(shared)}],
    }
    volumes = [{"name": "shared", "hostPath": {"path": str(shared)}}]
    spec = {"restartPolicy": "OnFailure" if name == "pod-0" else "Never", "containers": [container], "volumes": volumes}
    return {"metadata": {"name": name, "namespace": "default", "labels": {"app": "counting"}}, "spec": spec}


def _daemon(shared: Path, marker: str, level: str) -> Object:
    """A pod that leaves what it can: a process in a session of its own, files in memory, a pipe, a file in /tmp."""
    pod = _pod("daemon", DAEMON, shared, marker, LEVEL=level)
    pod["spec"]["volumes"].append({"name": "cache", "emptyDir": {"medium": "Memory"}})
    pod["spec"]["containers"][0]["volumeMounts"].append({"name": "cache", "mountPath": "/cache"})
    return pod


def _service() -> Object:
    spec = {"selector": {"app": "counting"}, "ports": [{"port": 80}]}
    return {"metadata": {"name": "counting", "namespace": "default"}, "spec": spec}


async def _until(client: Client, done: Callable[[Pods], bool]) -> Pods:
    async def read() -> Pods:
        node = await client.get(NODES, "local")
        ready = {one["type"]: one["status"] for one in node.get("status", {}).get("conditions", [])}.get("Ready")
        pods = (await client.list(PODS, namespace="default")).items
        return {pod["metadata"]["name"]: pod for pod in pods} if ready == "True" else {}

    return await eventually(read, lambda pods: len(pods) == COUNT and done(pods), seconds=SECONDS)


def _is_running(pod: Object) -> bool:
    return "running" in pod["status"].get("containerStatuses", [{}])[0].get("state", {})


def _has_ended(name: str, pods: Pods) -> bool:
    return "terminated" in pods[name]["status"]["containerStatuses"][0]["state"]


def _runs(pods: Pods) -> dict[str, tuple[str, str, int, str]]:
    """Identifies one run of each pod's container: uid of the pod, start of the container, restarts."""
    found = {}
    for name, pod in pods.items():
        (status,) = pod["status"]["containerStatuses"]
        (state,) = status["state"].values()
        found[name] = (pod["metadata"]["uid"], state["startedAt"], status["restartCount"], str(status["lastState"]))
    return found


async def _exists(path: Path) -> None:
    async def read() -> bool:
        return path.exists()

    await eventually(read, bool, seconds=SECONDS)
