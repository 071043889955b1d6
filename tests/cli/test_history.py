"""The history of runs: it survives re-runs, deletion, broken lines and two writers."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.cluster.disks import fill, small_disk
from tests.support.objects.jobs import NOW, JobBuilder
from trainwright.cli.history import (
    RunRecord,
    append,
    history_file,
    metrics_text,
    read_history,
    run_of,
)
from trainwright.cli.targets import Target
from trainwright.cluster.facade import DataDir
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.objects import Object

EMBEDDED = Target(ClusterConfig(server="https://127.0.0.1:6443"), embedded=True, kubectl="kubectl")


def job(uid: str = "one", **status: str) -> Object:
    raw = JobBuilder("digits").replica("Master").status(status).raw()
    raw["metadata"] |= {"uid": uid, "namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return raw


def test_a_run_is_kept_with_its_metrics(tmp_path: Path) -> None:
    target = replace(EMBEDDED, data=DataDir(tmp_path))
    finished = job(startTime="2026-01-01T00:00:05Z", completionTime="2026-01-01T00:01:00Z")

    metrics = {"accuracy": 0.98, "loss": float("nan")}
    append(history_file(target), run_of(finished, state="Succeeded", metrics=metrics, ranks=3))

    [run] = read_history(tmp_path / "history.jsonl")
    assert (run.job, run.namespace, run.kind, run.state) == ("digits", "team", "PyTorchJob", "Succeeded")
    assert (run.started, run.finished) == ("2026-01-01T00:00:05Z", "2026-01-01T00:01:00Z")
    assert metrics_text(run.metrics) == "accuracy=0.9800 loss=nan"


def test_the_well_known_metrics_come_first() -> None:
    assert metrics_text({"rmse": 1.0, "loss": 0.5, "accuracy": 0.9}) == "accuracy=0.9000 loss=0.5000 rmse=1.0000"


def test_the_record_with_more_metrics_stays(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    append(file, run_of(job(), state="Failed", metrics={"loss": 2.0}, cause="no memory", now=NOW))
    append(file, run_of(job(), state="Failed", now=NOW))
    append(file, run_of(job(), state="Deleted", now=NOW))

    [run] = read_history(file)
    assert (run.state, run.metrics, run.cause) == ("Failed", {"loss": 2.0}, "no memory")


def test_another_run_of_the_same_job_is_another_record(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    append(file, run_of(job("two", startTime="2026-01-02T00:00:00Z"), state="Succeeded", now=NOW))
    append(file, run_of(job("one", startTime="2026-01-01T00:00:00Z"), state="Failed", now=NOW))

    assert [run.uid for run in read_history(file)] == ["one", "two"]


def test_a_line_that_was_cut_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    append(file, run_of(job(), state="Succeeded", now=NOW))
    with file.open("ab") as end:
        end.write(b'{"uid": "tw\n\xff\n')
    assert [run.uid for run in read_history(file)] == ["one"]
    assert read_history(tmp_path / "missing") == []


def test_a_large_history_keeps_the_last_runs(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    long = RunRecord(uid="", job="digits", namespace="team", kind="PyTorchJob", state="Failed", cause="x" * 1000)
    for number in range(1200):
        append(file, replace_uid(long, f"{number:04}"))
    runs = read_history(file)
    assert runs[-1].uid == "1199"
    assert 1000 <= len(runs) < 1200


def test_a_full_disk_costs_no_earlier_run(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size="64k") as disk:
        file, filler = disk / "history.jsonl", disk / "filler"
        append(file, run_of(job("one"), state="Failed", now=NOW))
        fill(filler)
        for _ in range(100):
            append(file, run_of(job("two"), state="Failed", cause="x" * 100, now=NOW))
        filler.unlink()
        append(file, run_of(job("three"), state="Failed", now=NOW))

        assert {"one", "three"} <= {run.uid for run in read_history(file)}
        assert all(line.startswith(b"{") and line.endswith(b"}") for line in file.read_bytes().splitlines())


def test_a_full_disk_leaves_a_large_history_as_it_is(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        file = disk / "history.jsonl"
        long = RunRecord(uid="", job="digits", namespace="team", kind="PyTorchJob", state="Failed", cause="x" * 2000)
        for number in range(600):
            append(file, replace_uid(long, f"{number:04}"))
        fill(disk / "filler")
        append(file, replace_uid(long, "0600"))
        assert len(read_history(file)) >= 600
        assert [path.name for path in sorted(disk.iterdir())] == ["filler", "history.jsonl"]


def test_a_run_is_whole_behind_a_line_that_was_cut(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_bytes(b'{"uid": "tw')
    append(file, run_of(job(), state="Succeeded", now=NOW))
    assert [run.uid for run in read_history(file)] == ["one"]


def replace_uid(run: RunRecord, uid: str) -> RunRecord:
    import msgspec

    return msgspec.structs.replace(run, uid=uid, started=uid)


def test_a_history_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("of the user")
    append(tmp_path / "file" / "history.jsonl", run_of(job(), state="Succeeded", now=NOW))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "of the user"


@pytest.mark.parametrize("state_home", ["", "relative"])
def test_other_clusters_have_a_file_for_each_context(tmp_path: Path, state_home: str) -> None:
    target = Target(ClusterConfig(server="https://x", context="team/a"), embedded=False, kubectl="kubectl")
    assert history_file(target, {"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "trainwright/history/team_a.jsonl"
    default = Path.home() / ".local/state/trainwright/history/team_a.jsonl"
    assert history_file(target, {"XDG_STATE_HOME": state_home}) == default
