"""Jobs with the same port run concurrently, and each job uses the Python that it selects."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

from tests.support.cluster.embedded_cluster import up_command
from tests.support.commands.kubectl import Commands
from trainwright.objects import Object

# Rank 0 listens on MASTER_PORT until rank 1 connects; both exit with 0 only if the peer belongs to the same job.
MEET = """
import os, socket, time
job, rank, address = os.environ["JOB"], os.environ["RANK"], (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == "0":
    server = socket.create_server(("", address[1]))
    peer, _ = server.accept()
    assert peer.recv(100).decode() == job
    peer.sendall(job.encode())
else:
    while True:
        try:
            peer = socket.create_connection(address)
            break
        except OSError:
            time.sleep(0.02)
    while not os.path.exists("/gate/open"):
        time.sleep(0.02)
    peer.sendall(job.encode())
    assert peer.recv(100).decode() == job
print("met", address[1])
"""


def job(
    name: str, command: list[str], *, workers: int, env: dict[str, str] | None = None, gate: Path | None = None
) -> Object:
    """`gate` is a directory of this machine, which the pods see as /gate."""
    container = {
        "name": "pytorch",
        "image": "trainwright/host",
        "command": command,
        "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
    }
    spec: Object = {"containers": [container]}
    if gate is not None:
        container["volumeMounts"] = [{"name": "gate", "mountPath": "/gate"}]
        spec["volumes"] = [{"name": "gate", "hostPath": {"path": str(gate)}}]
    replica = {"restartPolicy": "Never", "template": {"spec": spec}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, **replica},
                "Worker": {"replicas": workers, **replica},
            }
        },
    }


def test_ten_jobs_with_the_default_port_run_at_the_same_time(commands: Commands, tmp_path: Path) -> None:
    names = [f"job-{number}" for number in range(10)]
    jobs = [job(name, ["python", "-c", MEET], workers=1, env={"JOB": name}, gate=tmp_path) for name in names]
    commands.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(jobs))
    for name in names:
        commands.kubectl("wait", "--for=condition=Running", f"pytorchjob/{name}", "--timeout=100s")
    (tmp_path / "open").touch()
    for name in names:
        commands.kubectl("wait", "--for=condition=Succeeded", f"pytorchjob/{name}", "--timeout=100s")

    for name in names:
        assert commands.kubectl("logs", f"{name}-master-0") == "met 23456\n"


@pytest.mark.torch
def test_a_job_trains_with_the_torch_of_another_environment(tmp_path: Path, kubectl_binary: Path) -> None:
    bare = _environment_without(tmp_path / "bare", "torch", "functorch", "numpy")
    assert "No module named 'torch'" in _stderr(bare, "import torch")

    program = "import sys, torch; print(sys.prefix, torch.tensor([2.0]).pow(2).item())"
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump(job("elsewhere", ["python", "-c", program], workers=1)))
    with up_command(tmp_path, python=bare) as up:
        commands = Commands(up, kubectl_binary)
        commands.trainwright("run", "--python", sys.executable, str(manifest))
        assert commands.kubectl("logs", "elsewhere-master-0") == f"{sys.prefix} 4.0\n"


def _environment_without(directory: Path, *names: str) -> Path:
    """A virtual environment that shares the other packages of this one, without a download; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    for entry in os.scandir(sysconfig.get_path("purelib")):
        if not entry.name.startswith(names):
            (packages / entry.name).symlink_to(entry.path)
    return directory / "bin" / "python"


def _stderr(python: Path, program: str) -> str:
    return subprocess.run([python, "-c", program], capture_output=True, text=True, check=False).stderr
