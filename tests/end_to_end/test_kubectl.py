"""The real kubectl works on the embedded cluster as on any other."""

import re
from pathlib import Path

import pytest
import yaml

from tests.support.commands.kubectl import Commands
from tests.support.waiting import wait_until

JOB = "training.kubeflow.org/job-name=greeter"

MANIFEST = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: greeter
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template: &template
        spec:
          containers:
            - name: pytorch
              image: example.com/greeter:1
              command: [sh, -c, 'echo "rank $RANK of $WORLD_SIZE"; until [ -e GATE ]; do sleep 0.05; done; echo done']
    Worker:
      replicas: 2
      template: *template
"""


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The programs end once this file exists."""
    return tmp_path / "gate"


@pytest.fixture
def manifest(tmp_path: Path, gate: Path) -> Path:
    job = yaml.safe_load(MANIFEST.replace("GATE", str(gate)))
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        spec = replica["template"]["spec"] = {**replica["template"]["spec"]}
        spec["volumes"] = [{"name": "gate", "hostPath": {"path": str(tmp_path)}}]
        spec["containers"] = [{**spec["containers"][0], "volumeMounts": [{"name": "gate", "mountPath": str(tmp_path)}]}]
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def test_kubectl_follows_a_job_from_creation_to_deletion(commands: Commands, manifest: Path, gate: Path) -> None:
    kubectl = commands.kubectl

    assert kubectl("get", "pytorchjobs") == "No resources found in default namespace.\n"
    kubectl("cordon", "local")  # the job must not run before the watch begins
    assert kubectl("apply", "-f", str(manifest)) == "pytorchjob.kubeflow.org/greeter created\n"
    watch = commands.start_kubectl("get", "pytorchjobs", "-w")
    assert watch.stdout is not None
    seen = [watch.stdout.readline() for _ in ("the header", "the job")]
    kubectl("uncordon", "local")
    assert kubectl("apply", "-f", str(manifest)) == "pytorchjob.kubeflow.org/greeter unchanged\n"

    assert "condition met" in kubectl("wait", "--for=condition=Running", "pytorchjob/greeter", "--timeout=60s")
    kubectl("wait", "--for=condition=Ready", "pod", "-l", JOB, "--timeout=60s")
    for role, number in (("Master", 1), ("Worker", 2)):  # then the operator has no more to write
        kubectl(
            "wait",
            f"--for=jsonpath={{.status.replicaStatuses.{role}.active}}={number}",
            "pytorchjob/greeter",
            "--timeout=60s",
        )

    everything = kubectl("get", "pytorchjobs,pods,svc,events")
    assert _row(everything, "pytorchjob.kubeflow.org/greeter")[1] == "Running"
    for name in ("greeter-master-0", "greeter-worker-0", "greeter-worker-1"):
        assert _row(everything, f"pod/{name}")[1:4] == ["1/1", "Running", "0"]
        assert _row(everything, f"service/{name}")[1:5] == ["ClusterIP", "None", "<none>", "23456/TCP"]
        assert f"Created pod: {name}" in everything
        assert f"Created service: {name}" in everything

    wide = kubectl("get", "pods", "-l", f"{JOB},training.kubeflow.org/replica-type=worker", "-o", "wide")
    assert wide.splitlines()[0].split()[:7] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"]
    assert [line.split()[0] for line in wide.splitlines()[1:]] == ["greeter-worker-0", "greeter-worker-1"]
    assert all("127." in line and " local " in line for line in wide.splitlines()[1:])
    assert kubectl("get", "pods", "-l", "app=none") == "No resources found in default namespace.\n"

    as_yaml = yaml.safe_load(kubectl("get", "pytorchjob", "greeter", "-o", "yaml"))
    assert as_yaml == commands.get("pytorchjob", "greeter")
    assert [one["type"] for one in as_yaml["status"]["conditions"]] == ["Created", "Running"]

    described = kubectl("describe", "pytorchjob", "greeter")
    assert "Message:               PyTorchJob greeter is running." in described
    assert "SuccessfulCreatePod" in described

    logs = commands.start_kubectl("logs", "-f", "greeter-worker-1")
    assert kubectl("logs", "greeter-master-0") == "rank 0 of 3\n"
    gate.touch()
    assert logs.communicate(timeout=60)[0] == "rank 2 of 3\ndone\n"

    assert "condition met" in kubectl("wait", "--for=condition=Succeeded", "pytorchjob/greeter", "--timeout=60s")
    while "Succeeded" not in seen[-1]:
        seen.append(watch.stdout.readline())
    watch.terminate()
    watch.communicate(timeout=60)
    states = [line.split()[1] for line in seen[1:]]
    assert [state for state in ("Created", "Running", "Succeeded") if state in states] == [
        "Created",
        "Running",
        "Succeeded",
    ]
    wait_until(lambda: "PyTorchJob greeter is successfully completed." in kubectl("get", "events"))

    assert (
        kubectl("delete", "-f", str(manifest)) == 'pytorchjob.kubeflow.org "greeter" deleted from default namespace\n'
    )
    kubectl("wait", "--for=delete", "pod", "-l", JOB, "--timeout=60s")
    assert kubectl("get", "pods,svc", "-o", "name") == "service/kubernetes\n"


BAR = """
apiVersion: v1
kind: Pod
metadata: {name: bar}
spec:
  restartPolicy: Never
  containers:
    - name: main
      image: trainwright/host
      command: [sh, -c, 'i=0; until [ -e GATE ]; do i=$((i + 1)); printf "\\r%d steps" $i >&2; sleep 0.1; done']
"""


def test_kubectl_shows_a_progress_bar_while_it_runs(commands: Commands, gate: Path) -> None:
    commands.kubectl("apply", "-f", "-", stdin=BAR.replace("GATE", str(gate)))  # below the user's home, which is shared
    commands.kubectl("wait", "--for=condition=Ready", "pod/bar", "--timeout=60s")

    logs = commands.start_kubectl("logs", "-f", "bar")
    assert logs.stdout is not None
    first = logs.stdout.readline()  # while the program runs: only the gate ends it
    gate.touch()
    pieces = re.split(r"[\r\n]+", (first + logs.stdout.read()).strip())
    assert all(re.fullmatch(r"\d+ steps", piece) for piece in pieces), pieces
    logs.communicate(timeout=60)


def test_kubectl_top_shows_what_pods_use(commands: Commands) -> None:
    kubectl = commands.kubectl
    kubectl("run", "busy", "--image=x", "--labels=app=busy", "--command", "--", "python3", "-c", "while True: pass")
    kubectl("run", "idle", "--image=x", "--command", "--", "sleep", "600")
    kubectl("wait", "--for=condition=Ready", "pod/busy", "pod/idle", "--timeout=60s")

    table = kubectl("top", "pods", "--sort-by=cpu").splitlines()
    assert table[0].split() == ["NAME", "CPU(cores)", "MEMORY(bytes)"]
    assert [line.split()[0] for line in table[1:]] == ["busy", "idle"]
    busy = kubectl("top", "pods", "-l", "app=busy", "--containers", "--no-headers").split()
    assert busy[:2] == ["busy", "busy"]
    assert int(busy[2].removesuffix("m")) > 50
    [node] = kubectl("top", "nodes", "--no-headers").splitlines()
    assert re.fullmatch(r"local +\d+m +\d+% +\d+Mi +\d+% *", node)
    assert kubectl("get", "pods", "-o", "name") == "pod/busy\npod/idle\n"
    assert 'podmetrics.metrics.k8s.io "default/nosuch" not found' in commands.refused_kubectl("top", "pod", "nosuch")


def _row(table: str, name: str) -> list[str]:
    (row,) = (line.split() for line in table.splitlines() if line.startswith(f"{name} "))
    return row
