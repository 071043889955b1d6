"""After `kill -9` of the cluster process its pods keep running, the next process adopts them, and the job succeeds.

`test_kills` shows with every change that pods notice nothing; here a real training is among them.
"""

from pathlib import Path

import pytest

from tests.support.cluster.embedded_cluster import up_command
from tests.support.commands.kubectl import Commands

EXAMPLE = Path(__file__).parents[2] / "examples" / "pytorch-digits"
PODS = ("pytorch-digits-master-0", "pytorch-digits-worker-0", "pytorch-digits-worker-1")


@pytest.mark.thorough
@pytest.mark.torch
def test_a_training_job_survives_kill_9_of_the_cluster(tmp_path: Path, kubectl_binary: Path) -> None:
    with up_command(tmp_path) as up:
        commands = Commands(up, kubectl_binary)
        commands.trainwright("run", "--no-follow", str(EXAMPLE / "pytorchjob.yaml"))
        _wait_for_output(commands, "Train Epoch: 1")
        before = {name: _process(commands, name) for name in PODS}
        up.kill()

    with up_command(tmp_path) as up:
        commands = Commands(up, kubectl_binary)
        commands.kubectl("wait", "--for=condition=Succeeded", "pytorchjob/pytorch-digits", "--timeout=110s")
        assert {name: _process(commands, name) for name in PODS} == before
        assert "Saved /models/digits.pt" in commands.kubectl("logs", PODS[0])
        (volume,) = commands.get("pv")["items"]
        assert (Path(volume["spec"]["hostPath"]["path"]) / "digits.pt").stat().st_size > 0


def _wait_for_output(commands: Commands, text: str) -> None:
    """Of the master. Follows its log: commands that ask again and again would take the processors from the training."""
    for state in ("create", "condition=Ready"):
        commands.kubectl("wait", f"--for={state}", f"pod/{PODS[0]}", "--timeout=110s")
    with commands.start_kubectl("logs", "-f", PODS[0]) as log:
        assert log.stdout is not None
        assert any(text in line for line in log.stdout)
        log.kill()


def _process(commands: Commands, name: str) -> tuple[str, str, int]:
    """Identifies one run of a pod's container: uid of the pod, start time, restart count."""
    pod = commands.get("pod", name)
    (container,) = pod["status"]["containerStatuses"]
    state = container["state"]
    started = (state.get("running") or state["terminated"])["startedAt"]
    return pod["metadata"]["uid"], started, container["restartCount"]
