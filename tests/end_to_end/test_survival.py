"""After `kill -9` of the cluster process its pods keep running, the next process adopts them, and the job succeeds."""

from pathlib import Path

import pytest

from tests.support.cluster.embedded_cluster import up_command
from tests.support.commands.kubectl import Commands
from tests.support.waiting import eventually

EXAMPLE = Path(__file__).parents[2] / "examples" / "pytorch-digits"
PODS = ("pytorch-digits-master-0", "pytorch-digits-worker-0", "pytorch-digits-worker-1")


@pytest.mark.torch
@pytest.mark.timeout(300)
async def test_a_training_job_survives_kill_9_of_the_cluster(tmp_path: Path, kubectl_binary: Path) -> None:
    with up_command(tmp_path) as up:
        commands = Commands(up, kubectl_binary)
        commands.trainwright("run", "--no-follow", str(EXAMPLE / "pytorchjob.yaml"))
        await eventually(lambda: _log(commands), lambda log: "Train Epoch: 1" in log, seconds=120)
        before = {name: _process(commands, name) for name in PODS}
        up.kill()

    with up_command(tmp_path) as up:
        commands = Commands(up, kubectl_binary)
        commands.kubectl("wait", "--for=condition=Succeeded", "pytorchjob/pytorch-digits", "--timeout=110s")
        assert {name: _process(commands, name) for name in PODS} == before
        assert "Saved /models/digits.pt" in await _log(commands)
        (volume,) = commands.get("pv")["items"]
        assert (Path(volume["spec"]["hostPath"]["path"]) / "digits.pt").stat().st_size > 0


async def _log(commands: Commands) -> str:
    pods = commands.get("pods", "-l", "training.kubeflow.org/replica-type=master")["items"]
    running = any(pod["status"]["phase"] != "Pending" for pod in pods)
    return commands.kubectl("logs", PODS[0]) if running else ""


def _process(commands: Commands, name: str) -> tuple[str, str, int]:
    """Identifies one run of a pod's container: uid of the pod, start time, restart count."""
    pod = commands.get("pod", name)
    (container,) = pod["status"]["containerStatuses"]
    state = container["state"]
    started = (state.get("running") or state["terminated"])["startedAt"]
    return pod["metadata"]["uid"], started, container["restartCount"]
