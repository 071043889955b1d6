"""A running MPIJob notices nothing of `kill -9` of the cluster process, and nothing is left of it afterwards."""

from pathlib import Path

import pytest

from tests.support.cluster.embedded_cluster import up_command
from tests.support.cluster.leftovers import Footprint
from tests.support.commands.trainwright import trainwright
from tests.support.waiting import eventually, wait_until
from trainwright.api.kinds.mpi import MPI
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object
from trainwright.objects.resources import PODS

MPI_JOBS = MPI.resource
SECONDS = 60

COUNTING = """
number=0
while [ ! -e "$SHARED/stop-$HOSTNAME" ]; do
  number=$((number + 1))
  echo "line $number of $HOSTNAME"
  echo $number > "$SHARED/$HOSTNAME"
  sleep 0.02
done
echo "$HOSTNAME ends after $number"
"""
SHELL = """
trap 'exit 9' TERM
for host in survivor-worker-0 survivor-worker-1; do
  /etc/mpi/kubexec.sh $host sh $SHARED/program && echo $host succeeded &
done
wait
"""
MPI_PROGRAM = """
import os, sys, time
from pathlib import Path
from mpi4py import MPI

shared, world = Path(sys.argv[1]), MPI.COMM_WORLD
host = os.environ["HOSTNAME"]
number = 0
while not world.allreduce((shared / f"stop-{host}").exists()):
    number = world.allreduce(number + 1) // world.Get_size()
    print(f"line {number} of {host}", flush=True)
    (shared / host).write_text(str(number))
    time.sleep(0.02)
print(f"{host} ends after {number}", flush=True)
"""
MPIRUN = "exec mpirun -n 2 -x OPAL_PREFIX python -m mpi4py $SHARED/program $SHARED"

HOW = [
    pytest.param(SHELL, COUNTING, id="shell"),
    pytest.param(MPIRUN, MPI_PROGRAM, id="mpirun", marks=[pytest.mark.mpi, pytest.mark.thorough]),
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("launcher", "program"), HOW)
async def test_programs_that_a_launcher_has_started_survive_kill_9(tmp_path: Path, launcher: str, program: str) -> None:
    shared = _write(tmp_path, program)
    with up_command(tmp_path) as up:
        async with Client(up.config) as client:
            await client.create(MPI_JOBS, _job(launcher, shared))
            await _until(client, "Running")
            for worker in (0, 1):
                await eventually(lambda: _number(shared, worker), bool, seconds=SECONDS)  # noqa: B023
            before = _runs(await _pods(client))
        up.kill()

    for worker in (0, 1):
        seen = await _number(shared, worker)
        await eventually(lambda: _number(shared, worker), lambda number: number > seen + 3)  # noqa: B023
    (shared / "stop-survivor-worker-0").touch()

    with up_command(tmp_path) as up:
        async with Client(up.config) as client:
            (shared / "stop-survivor-worker-1").touch()
            await _until(client, "Succeeded")
            pods = await _pods(client)
            assert _runs(pods) == before
            log = (await client.raw("GET", "/api/v1/namespaces/default/pods/survivor-launcher/log")).decode()

    for worker in (0, 1):
        name = f"survivor-worker-{worker}"
        (end,) = [int(line.split()[-1]) for line in log.splitlines() if line.startswith(f"{name} ends after ")]
        lines = [line for line in log.splitlines() if line.startswith("line ") and line.endswith(name)]
        assert lines == [f"line {number} of {name}" for number in range(1, end + 1)]
        assert launcher != SHELL or f"{name} succeeded" in log


@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.parametrize("end", ["down during the outage", "delete after it"])
async def test_nothing_is_left_of_a_job_that_has_survived(tmp_path: Path, end: str) -> None:
    shared = _write(tmp_path, COUNTING)
    with up_command(tmp_path) as up:
        async with Client(up.config) as client:
            await client.create(MPI_JOBS, _job(SHELL, shared))
            await eventually(lambda: _number(shared, 1), bool, seconds=SECONDS)
        footprint = Footprint(up.data.path, str(shared))  # which is in the environment of all processes of the pods
        assert any("kubectl" in line for line in footprint.found())
        up.kill()

    if end == "delete after it":
        with up_command(tmp_path) as up:
            async with Client(up.config) as client:
                await client.delete(MPI_JOBS, "survivor", namespace="default")
                await eventually(lambda: _pods(client), lambda pods: not pods, seconds=SECONDS)
            wait_until(lambda: not any(word in line for line in footprint.found() for word in ("kubexec", "program")))
            up.kill()
    stopped = trainwright("down", "--data-dir", str(up.data.path), environment=up.environment)
    assert stopped.code == 0, stopped.all
    assert footprint.found() == []


def _write(directory: Path, program: str) -> Path:
    shared = directory / "shared"
    shared.mkdir()
    (shared / "program").write_text(program)
    return shared


def _job(launcher: str, shared: Path) -> Object:
    def replica(name: str, replicas: int, **more: object) -> Object:
        env = [{"name": "SHARED", "value": str(shared)}]
        container = {"name": name, "image": "trainwright/host", "env": env, **more}
        return {"replicas": replicas, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}

    replicas = {"Launcher": replica("launcher", 1, command=["sh", "-c", launcher]), "Worker": replica("worker", 2)}
    spec = {"slotsPerWorker": 1, "runPolicy": {"cleanPodPolicy": "None"}, "mpiReplicaSpecs": replicas}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": {"name": "survivor", "namespace": "default"},
        "spec": spec,
    }


async def _number(shared: Path, worker: int) -> int:
    path = shared / f"survivor-worker-{worker}"
    return int(path.read_text() or 0) if path.exists() else 0


async def _until(client: Client, condition: str) -> None:
    async def read() -> list[Object]:
        job = await client.get(MPI_JOBS, "survivor", namespace="default")
        return list(job.get("status", {}).get("conditions") or ())

    def done(conditions: list[Object]) -> bool:
        true = {one["type"] for one in conditions if one["status"] == "True"}
        assert not true & {"Failed", "Restarting"}, conditions
        return condition in true

    await eventually(read, done, seconds=SECONDS)


async def _pods(client: Client) -> dict[str, Object]:
    pods = (await client.list(PODS, namespace="default")).items
    return {pod["metadata"]["name"]: pod for pod in pods}


def _runs(pods: dict[str, Object]) -> dict[str, tuple[str, str, int]]:
    """Identifies one run of each pod's container: uid of the pod, start of the container, restarts."""
    found = {}
    for name, pod in pods.items():
        (status,) = pod["status"]["containerStatuses"]
        (state,) = status["state"].values()
        found[name] = (pod["metadata"]["uid"], state["startedAt"], status["restartCount"])
    return found
