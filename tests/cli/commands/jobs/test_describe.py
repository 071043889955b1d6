"""`trainwright describe` on the embedded cluster and on the real kube-apiserver."""

from tests.cli.commands.jobs.conftest import Cluster
from tests.support.objects.shell_jobs import shell_job
from tests.support.waiting import wait_until
from trainwright.objects.node_annotations import LISTENING
from trainwright.objects.resources import PODS

CRASH = """
echo "epoch 1 loss=0.5"
[ $RANK = 0 ] && exec sleep 600
printf 'Traceback (most recent call last):\\n  File "train.py", line 3, in <module>\\nValueError: boom\\n' >&2
echo model >/srv/model.pt
exit 1
"""


def test_a_failed_job_is_explained(embedded_namespace: Cluster) -> None:
    cluster = embedded_namespace
    cluster.create(shell_job("bad", CRASH, CRASH, workers=1, runPolicy={"cleanPodPolicy": "Running"}))
    cluster.succeed("wait", "bad", "--for=failed", "--timeout", "120s")

    text = cluster.succeed("describe", "bad")
    lines = text.splitlines()
    assert lines[0].split() == ["Name:", "bad"]
    assert "State:      Failed: PyTorchJob bad is failed because 1 Worker replica(s) failed." in lines
    assert "Progress:   epoch 1  loss=0.5000" in lines
    assert "Why it failed:" in lines
    assert "  worker-0 failed first: ValueError: boom" in lines
    [worker] = [line.split() for line in lines if line.startswith("  worker-0 ") and line.endswith("bad-worker-0")]
    assert worker[1] == "Failed"
    assert worker[-3] == "1"
    assert "/srv/model.pt" in text
    assert f"  trainwright logs bad --rank worker-0 {' '.join(cluster.flags)}" in text


LISTEN = """
import os, socket, time
server = socket.create_server((socket.gethostbyname(os.environ["HOSTNAME"]), PORT))
time.sleep(600)
"""


def test_describe_and_ps_name_the_address_at_which_a_program_listens(embedded_namespace: Cluster) -> None:
    cluster = embedded_namespace
    cluster.create(shell_job("served", f"exec python3 -c '{LISTEN.replace('PORT', '6006')}'"))
    wait_until(lambda: "Listening:" in cluster.succeed("describe", "served"))

    pod = cluster.client.get(PODS, "served-master-0", namespace=cluster.namespace)
    address = f"{pod['status']['podIP']}:6006"
    assert f"Listening:\n  master-0 listens at {address}\n" in cluster.succeed("describe", "served")
    assert pod["metadata"]["annotations"][LISTENING] == "6006"
    assert address in cluster.succeed("ps", "-o", "wide")
    assert address not in cluster.succeed("ps")


def test_a_suspended_job_is_described_on_any_cluster(cluster: Cluster) -> None:
    cluster.create(shell_job("digits", "true", runPolicy={"suspend": True}))
    text = cluster.succeed("describe", "pytorchjob/digits")
    assert "Ranks:\n  none yet\n" in text
    assert "trainwright resume digits" in text
    assert "trainwright delete digits" in text


def test_a_stopped_job_has_not_failed(embedded_namespace: Cluster) -> None:
    cluster = embedded_namespace
    cluster.create(shell_job("digits", "exec sleep 600"))
    cluster.succeed("wait", "digits", "--for=running", "--timeout", "120s")
    cluster.succeed("stop", "digits")
    # The pod's record says how it ended a moment after its object is gone.
    wait_until(lambda: "Stopped, cleaned up" in cluster.succeed("describe", "digits"))
    text = cluster.succeed("describe", "digits")
    assert "ailed" not in text
    assert "failure" not in text


def test_ranks_are_shown_from_the_status_of_their_pods(real: Cluster) -> None:
    job = real.create(shell_job("digits", "true"))
    owner = {key: job[key] for key in ("apiVersion", "kind")}
    owner |= {"name": "digits", "uid": job["metadata"]["uid"], "controller": True}
    labels = {f"training.kubeflow.org/{key}": value for key, value in LABELS.items()}
    metadata = {"name": "digits-worker-0", "labels": labels, "ownerReferences": [owner]}
    spec = {"containers": [{"name": "pytorch", "image": "x"}]}
    real.client.create(
        PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, namespace=real.namespace
    )
    ended = {
        "exitCode": 137,
        "reason": "OOMKilled",
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:07Z",
    }
    status = {
        "name": "pytorch",
        "ready": False,
        "restartCount": 2,
        "image": "",
        "imageID": "",
        "state": {"terminated": ended},
    }
    real.client.patch(
        PODS,
        "digits-worker-0",
        {"status": {"phase": "Failed", "containerStatuses": [status]}},
        namespace=real.namespace,
        subresource="status",
    )

    text = real.succeed("describe", "digits")
    row = next(
        line for line in text.splitlines() if line.startswith("  worker-0 ") and line.endswith("digits-worker-0")
    )
    assert row.split() == ["worker-0", "Failed", "2", "137", "7s", "digits-worker-0"]
    assert "Last failure:\n  worker-0 failed first:" in text
    assert "OOM" in text or "memory" in text


LABELS = {"job-name": "digits", "replica-type": "worker", "replica-index": "0"}
