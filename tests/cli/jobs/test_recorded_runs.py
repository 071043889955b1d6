"""Progress is read from the logs that pods left on the node."""

import json
from pathlib import Path
from typing import Any

from trainwright.api.kinds import PYTORCH
from trainwright.cli.jobs.recorded_runs import recorded_progress
from trainwright.cluster.facade import DataDir


def write_pod(data: DataDir, folder: str, uid: str, rank: str, started: str | None = None, log: str = "") -> None:
    """The directory of a pod of job `uid`; without `started` its container never ran."""
    directory = data.node / folder / uid
    (directory / "logs" / "pytorch").mkdir(parents=True)
    role, index = rank.split("-")
    labels = {"training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": index}
    pod: dict[str, Any] = {
        "uid": uid,
        "name": f"digits-{rank}",
        "namespace": "default",
        "owner": {"uid": "job"},
        "labels": labels,
        "createdAt": "2026-01-01T00:00:00Z",
        "containers": [{"name": "pytorch"}],
        "initContainers": [],
    }
    (directory / "pod.json").write_text(json.dumps(pod))
    state = {"running": {"startedAt": started}} if started else {}
    status = {"name": "pytorch", "restarts": 0, "state": state, "last": {}, "runs": []}
    (directory / "state.json").write_text(json.dumps({"initContainers": [], "containers": [status]}))
    if started:
        (directory / "logs" / "pytorch" / "0.log").write_text(f"{started} stdout F {log}\n")


def test_the_last_run_of_the_first_rank_that_prints_metrics_counts(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    write_pod(data, "pods", "b", "master-0", "2026-01-01T00:00:02.500000000Z", "epoch 2 loss=0.25")
    write_pod(data, "removed", "a", "master-0", "2026-01-01T00:00:01.500000000Z", "epoch 1 loss=0.5")
    write_pod(data, "removed", "c", "master-0")
    write_pod(data, "pods", "d", "worker-0", "2026-01-01T00:00:03.500000000Z", "epoch 9 loss=9")

    assert recorded_progress(data, "job", PYTORCH).metrics == {"loss": 0.25}
    assert recorded_progress(data, "another", PYTORCH).metrics == {}
