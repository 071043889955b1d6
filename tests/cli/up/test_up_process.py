"""The history that `up` keeps says of a failed run what the operator says of it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.waiting import wait_until
from trainwright.api.kinds import PYTORCH
from trainwright.cli.history import RunRecord, history_path, read_history
from trainwright.cli.up.up_process import RunRecorder
from trainwright.cluster.facade import DataDir
from trainwright.cluster.node.supervisor.containers import container_status
from trainwright.cluster.node.supervisor.files import write_json
from trainwright.insight.first_failing_rank import Diagnosis
from trainwright.insight.process_end import Cause

FAILED = {"type": "Failed", "status": "True", "reason": "PyTorchJobFailed"}


def job(**status: Any) -> dict[str, Any]:
    metadata = {"name": "digits", "namespace": "default", "uid": "job", "creationTimestamp": "2026-11-15T10:00:00Z"}
    return {"kind": "PyTorchJob", "metadata": metadata, "spec": {"pytorchReplicaSpecs": {}}, "status": status}


def record_end(data: DataDir, *, exit_code: int, finished_at: str) -> None:
    """What the node has recorded about the master's only run."""
    directory = data.node / "pods" / "pod"
    directory.mkdir(parents=True)
    labels = {"training.kubeflow.org/replica-type": "master", "training.kubeflow.org/replica-index": "0"}
    owner = {"kind": "PyTorchJob", "name": "digits", "uid": "job"}
    pod = {"uid": "pod", "name": "digits-master-0", "namespace": "default", "labels": labels, "owner": owner}
    write_json(str(directory / "pod.json"), {**pod, "initContainers": [], "containers": [{"name": "pytorch"}]})
    ended = container_status.terminated(
        exit_code=exit_code, reason="Error", started_at="2026-11-15T10:00:01Z", finished_at=finished_at
    )
    status = container_status.with_finished_run(container_status.new_status("pytorch", initialized=True), ended)
    write_json(str(directory / "state.json"), {"initContainers": [], "containers": [status]})


def recorded(data: DataDir) -> RunRecord:
    wait_until(lambda: bool(read_history(history_path(data))))
    [run] = read_history(history_path(data))
    return run


def test_a_job_that_failed_by_its_deadline_has_no_first_failing_rank_in_the_history(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    record_end(data, exit_code=143, finished_at="2026-11-15T10:00:12.5Z")
    failed = job(conditions=[FAILED], startTime="2026-11-15T10:00:00Z", completionTime="2026-11-15T10:00:10Z")

    RunRecorder(data).status_written(PYTORCH, job(), failed)

    run = recorded(data)
    assert (run.state, run.cause) == ("Failed", "")


def test_the_cause_is_that_of_the_operator(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    failed = job(conditions=[FAILED], startTime="2026-11-15T10:00:00Z", completionTime="2026-11-15T10:00:10Z")
    recorder = RunRecorder(data)
    recorder.status_written(PYTORCH, job(), failed)

    recorder.failure_diagnosed(PYTORCH, failed, Diagnosis(rank="master-0", cause=Cause.EXCEPTION, summary="boom"))

    wait_until(lambda: bool(recorded(data).cause))
    assert recorded(data).cause == "master-0 failed first: boom"


PROGRAM = """
import sys, pathlib
from trainwright.cli.up.up_process import rotate
log = pathlib.Path(sys.argv[1])
print("first", flush=True)
assert not rotate(log, max_bytes=100)
print("x" * 100, flush=True)
assert rotate(log, max_bytes=100)
print("second", flush=True)
print("third", file=sys.stderr, flush=True)
assert not rotate(log, max_bytes=100)
"""


def test_a_log_that_is_too_long_is_continued_in_a_new_file(tmp_path: Path) -> None:
    log = tmp_path / "cluster.log"
    with log.open("ab") as output:
        subprocess.run([sys.executable, "-c", PROGRAM, str(log)], stdout=output, stderr=output, check=True)
    assert log.read_text() == "second\nthird\n"
    assert (tmp_path / "cluster.log.1").read_text() == f"first\n{'x' * 100}\n"


def test_a_file_that_this_process_does_not_write_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "cluster.log"
    log.write_text("of another cluster" * 20)
    with (tmp_path / "output").open("ab") as output:
        code = "import sys, pathlib; from trainwright.cli.up.up_process import rotate; print('x' * 99, flush=True); "
        code += "sys.exit(rotate(pathlib.Path(sys.argv[1]), max_bytes=10))"
        subprocess.run([sys.executable, "-c", code, str(log)], stdout=output, check=True)
    assert log.read_text() == "of another cluster" * 20
