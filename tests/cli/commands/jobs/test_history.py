"""`trainwright history` and `status`: runs stay when jobs are run again or deleted."""

import json
import sys
from pathlib import Path

from click.testing import CliRunner

from tests.cli.commands.jobs.conftest import Cluster, in_directory
from tests.support.cluster.embedded_cluster import UpCommand
from tests.support.objects.shell_jobs import shell_job
from tests.support.waiting import wait_until
from trainwright.cli.main import cli


def train(cluster: Cluster, accuracy: str) -> None:
    cluster.create(shell_job("digits", f"echo epoch 1/1 accuracy={accuracy}"))
    cluster.succeed("wait", "digits", "--timeout", "120s")
    wait_until(lambda: f"accuracy={accuracy}" in cluster.call("history", "digits").stdout)
    assert f"accuracy={accuracy}" in cluster.succeed("ps")
    cluster.succeed("delete", "digits")


def test_the_cluster_records_runs_that_no_command_follows(embedded_namespace: Cluster) -> None:
    cluster = embedded_namespace
    train(cluster, "0.5")
    train(cluster, "0.75")

    head, *rows = cluster.succeed("history", "pytorchjob/digits").splitlines()
    assert head.split() == ["RUN", "JOB", "STATE", "STARTED", "DURATION", "METRICS"]
    assert [row.split()[1:3] for row in rows] == [["digits", "Succeeded"]] * 2
    runs = json.loads(cluster.succeed("history", "-o", "json"))
    assert [run["metrics"]["accuracy"] for run in runs] == [0.5, 0.75]
    assert len(json.loads(cluster.succeed("history", "-o", "json", "--limit", "1"))) == 1
    assert cluster.call("history", "other").stderr == "No runs found of other.\n"


def test_the_cause_of_a_failure_is_kept(embedded_namespace: Cluster) -> None:
    cluster = embedded_namespace
    cluster.create(shell_job("bad", "exit 3"))
    wait_until(lambda: "master-0 failed first: exit code 3" in cluster.call("history", "bad").stdout)


def test_the_history_is_read_while_the_cluster_is_down(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["history", "--data-dir", str(tmp_path)])
    assert (result.exit_code, result.stderr) == (0, "No runs found.\n")


def test_status_names_jobs_with_their_use_of_the_machine(
    embedded_namespace: Cluster, embedded: UpCommand, tmp_path: Path
) -> None:
    cluster = embedded_namespace
    program = f'exec {sys.executable} -c \'open("on", "w"); x = bytearray(50_000_000)\nwhile True: pass\''
    cluster.create(in_directory(shell_job("busy", program), tmp_path))
    wait_until((tmp_path / "on").exists)
    cluster.succeed("wait", "busy", "--for=running", "--timeout", "120s")

    def row() -> list[str]:
        status = CliRunner().invoke(cli, ["status", *cluster.flags])
        assert status.exit_code == 0, status.output
        [found] = [line.split() for line in status.stdout.splitlines() if f"{cluster.namespace} " in line]
        return found

    assert row()[1:5] == ["busy", "PyTorchJob", "Running", "1/1"]
    wait_until(lambda: float(row()[-3]) > 0)  # CPU; on a busy machine the program waits for its turn
    assert row()[-1] == "MiB"
    status = CliRunner().invoke(cli, ["status", *cluster.flags])
    assert "cores used by pods" in status.stdout
    assert f"  data     {embedded.data.path} (" in status.stdout
