"""`trainwright logs`: all ranks in order, restarts, pods that were cleaned up, and errors first."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.commands.jobs.conftest import Cluster, in_directory
from tests.support.cluster.embedded_cluster import UpCommand
from tests.support.commands.trainwright import command_line
from tests.support.objects.shell_jobs import shell_job
from tests.support.waiting import wait_until
from trainwright.cli.jobs.pods.logs import current_runs, logged_runs
from trainwright.cli.jobs.pods.ranks import RankPod
from trainwright.cli.main import cli
from trainwright.objects.kinds.pods import read_pod

CRASH = """
echo "$RANK begins"
if [ $RANK = 1 ]; then
  printf 'Traceback (most recent call last):\\n  File "train.py", line 3, in <module>\\nValueError: boom\\n' >&2; exit 1
fi
exec sleep 600
"""


def finish(cluster: Cluster, name: str) -> None:
    cluster.succeed("wait", name, "--for=finished", "--timeout", "120s")


def test_lines_of_all_ranks_are_merged_in_their_order(embedded_namespace: Cluster, tmp_path: Path) -> None:
    cluster = embedded_namespace
    master = "echo one; touch started; until [ -e answered ]; do sleep 0.02; done; printf 'bar 1\\rbar 2\\n'"
    worker = "until [ -e started ]; do sleep 0.02; done; echo two; touch answered"
    job = shell_job("digits", master, worker, workers=1, runPolicy={"cleanPodPolicy": "All"})
    cluster.create(in_directory(job, tmp_path))
    finish(cluster, "digits")

    lines = cluster.succeed("logs", "digits").splitlines()
    assert sorted(lines) == ["[master-0] bar 2", "[master-0] one", "[worker-0] two"]
    times = [line.split()[1] for line in cluster.succeed("logs", "digits", "--timestamps").splitlines()]
    assert times == sorted(times)
    assert all(time.startswith("20") for time in times), "also before a progress bar, which returns to the line's begin"
    assert cluster.succeed("logs", "digits", "--rank", "worker-0") == "two\n"
    assert cluster.succeed("logs", "digits", "--rank", "1", "--prefix") == "[worker-0] two\n"
    assert set(cluster.succeed("logs", "digits", "--tail", "1").splitlines()) == {"[worker-0] two", "[master-0] bar 2"}
    assert cluster.succeed("logs", "digits", "--since", "0s") == ""
    stamped = cluster.succeed("logs", "digits", "--rank=0", "--timestamps").splitlines()
    assert [line.partition("Z ")[2] for line in stamped] == ["one", "bar 2"]
    assert "did you mean worker-0?" in cluster.fail("logs", "digits", "--rank", "wroker-0")


def test_of_nested_progress_bars_the_last_state_is_a_line(embedded_namespace: Cluster) -> None:
    cluster = embedded_namespace
    bar = "\\rVal:  %s%%%%|#  | 1/2 [00:00<00:00]\\033[A\\n"
    cluster.create(shell_job("digits", f"printf '{bar % 10}{bar % 50}'; echo done"))
    finish(cluster, "digits")
    assert cluster.succeed("logs", "digits") == "[master-0] done\n"
    assert cluster.succeed("logs", "digits", "--rank", "0").count("Val:") == 2, "one rank is printed unchanged"


@pytest.mark.parametrize("flags", [(), ("--rank", "0")])
def test_characters_that_the_terminal_lacks_are_replaced(embedded_namespace: Cluster, flags: tuple[str, ...]) -> None:
    cluster = embedded_namespace
    cluster.create(shell_job("digits", "echo größe; echo next"))
    finish(cluster, "digits")

    words = ["logs", *cluster.flags, "-n", cluster.namespace, "digits", *flags]
    result = CliRunner(charset="ascii").invoke(cli, words)
    assert [line.split()[-1] for line in result.stdout.splitlines()] == ["gr??e", "next"]


def test_earlier_runs_are_shown_on_demand(embedded_namespace: Cluster, tmp_path: Path) -> None:
    cluster = embedded_namespace
    again = "echo try; [ -e before ] && exit 0; touch before; exit 1"
    cluster.create(in_directory(shell_job("twice", again, policy="OnFailure"), tmp_path))
    finish(cluster, "twice")

    last = cluster.call("logs", "twice", "--no-prefix")
    assert last.stdout == "try\n"
    assert last.stderr == "1 earlier run is not shown: see --all-restarts\n"
    assert cluster.succeed("logs", "twice", "--no-prefix", "--previous") == "try\n"
    assert cluster.succeed("logs", "twice", "--no-prefix", "--all-restarts") == "try\n" * 2
    assert "cannot be combined" in cluster.fail("logs", "twice", "-p", "--all-restarts")


def test_the_tail_of_a_long_log_is_exact(embedded_namespace: Cluster) -> None:
    cluster = embedded_namespace
    cluster.create(shell_job("long", "seq 20000; head -c 3000 /dev/zero | tr '\\0' x; echo; seq 3"))
    finish(cluster, "long")
    assert cluster.succeed("logs", "long", "--rank=0", "--tail=2") == "2\n3\n"
    assert cluster.succeed("logs", "long", "--rank=0", "--tail=5").splitlines() == ["20000", "x" * 3000, "1", "2", "3"]
    assert cluster.succeed("logs", "long", "--rank=0", "--tail=0") == ""
    assert len(cluster.succeed("logs", "long", "--rank=0", "--tail=30000").splitlines()) == 20004


def test_a_failed_job_names_the_rank_to_look_at(embedded_namespace: Cluster) -> None:
    cluster = embedded_namespace
    cluster.create(shell_job("bad", CRASH, CRASH, workers=2, runPolicy={"cleanPodPolicy": "All"}))
    finish(cluster, "bad")

    shown = cluster.call("logs", "bad")
    assert shown.stderr.startswith("bad failed: worker-0 failed first: ValueError: boom\n"), shown.output
    assert "[worker-0] ValueError: boom\n" in shown.stdout
    errors = cluster.succeed("logs", "bad", "--errors")
    assert errors.startswith("worker-0 failed first: ValueError: boom\n")
    assert "begins" not in errors
    assert '  File "train.py", line 3' in errors


def test_on_other_clusters_logs_come_from_the_api(embedded_namespace: Cluster, embedded: UpCommand) -> None:
    # With its kubeconfig the embedded cluster is one like any other.
    cluster = replace(embedded_namespace, flags=("--kubeconfig", str(embedded.data.kubeconfig)))
    cluster.create(shell_job("bad", CRASH, CRASH, workers=1))
    finish(cluster, "bad")

    shown = cluster.call("logs", "bad")
    assert shown.stderr.startswith("bad failed: worker-0 failed first: ValueError: boom\n"), shown.output
    wait_until(lambda: "[master-0] 0 begins\n" in cluster.succeed("logs", "bad"))  # it runs on
    assert cluster.succeed("logs", "bad", "--rank", "worker-0", "--tail", "1") == "ValueError: boom\n"
    assert '  File "train.py", line 3' in cluster.succeed("logs", "bad", "--errors")
    assert "worker-0 failed first: ValueError: boom" in cluster.succeed("describe", "bad")


def test_following_one_rank_prints_its_lines_and_the_result(embedded_namespace: Cluster, tmp_path: Path) -> None:
    cluster = embedded_namespace
    master = "echo one; until [ -e followed ]; do sleep 0.02; done; echo two"
    job = shell_job("digits", master, "echo of the worker", workers=1)
    cluster.create(in_directory(job, tmp_path))
    cluster.succeed("wait", "digits", "--for=running", "--timeout", "120s")

    words = ["logs", "-f", "--rank", "master-0", *cluster.flags, "-n", cluster.namespace, "digits"]
    lines = []
    with subprocess.Popen(command_line(*words), stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        for line in following.stdout:
            lines.append(line)
            if line == "[master-0] one\n":
                (tmp_path / "followed").touch()
    assert following.returncode == 0
    assert [line for line in lines if line.startswith("[")] == ["[master-0] one\n", "[master-0] two\n"]
    assert any(line.startswith("digits succeeded in ") for line in lines)


def test_a_job_without_pods_says_how_to_find_out_why(cluster: Cluster) -> None:
    cluster.create(shell_job("digits", "true", runPolicy={"suspend": True}))
    result = cluster.call("logs", "digits")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "has no pods yet: `trainwright describe digits" in result.stderr


def test_other_flags_cannot_be_combined_with_follow(real: Cluster) -> None:
    real.create(shell_job("digits", "true"))
    assert "--previous cannot be combined with --follow" in real.fail("logs", "-f", "-p", "digits")


def api_pod(*statuses: dict[str, object]) -> RankPod:
    pod = read_pod({"metadata": {"name": "x-worker-0"}, "status": {"containerStatuses": list(statuses)}})
    return RankPod("worker-0", (1, 0), "x-worker-0", "uid", pod)


def test_runs_are_read_from_the_status_of_a_pod_on_other_clusters() -> None:
    ended = {"terminated": {"exitCode": 1}}
    running = api_pod({"name": "a", "restartCount": 2, "state": {"running": {}}, "lastState": ended})
    before, last = logged_runs([running])
    assert [(run.container, run.number, run.previous) for run in (before, last)] == [("a", 1, True), ("a", 2, False)]
    assert current_runs([before, last]) == [last]
    assert current_runs([before, last], previous=True) == [before]

    crashed = api_pod({"name": "a", "restartCount": 2, "state": {"waiting": {}}, "lastState": ended})
    assert [(run.number, run.previous) for run in logged_runs([crashed])] == [(2, False)]
    assert logged_runs([api_pod({"name": "a", "state": {"waiting": {}}})]) == []
