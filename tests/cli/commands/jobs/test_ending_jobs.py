"""`stop`, `suspend`, `resume`, `scale`, `delete` and `wait` on real clusters."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cli.commands.jobs.conftest import Cluster
from tests.support.cluster.embedded_cluster import UpCommand
from tests.support.objects.shell_jobs import shell_job, shell_job_of
from tests.support.waiting import wait_until
from trainwright.api.kinds import KINDS, PYTORCH
from trainwright.cli.commands.jobs.wait import read_goal
from trainwright.cli.history import read_history
from trainwright.cli.jobs.references import FoundJob
from trainwright.kube.client.errors import NotFound
from trainwright.objects.resources import PODS

SUSPENDED: dict[str, Any] = {"runPolicy": {"suspend": True}}
SAVES_ON_SIGTERM = "trap 'echo saved; exit 0' TERM; echo started loss=0.25; while true; do sleep 0.05; done"


def test_stop_waits_until_programs_have_ended_by_themselves(embedded_namespace: Cluster) -> None:
    cluster = embedded_namespace
    cluster.create(shell_job("digits", SAVES_ON_SIGTERM, SAVES_ON_SIGTERM, workers=1))
    cluster.succeed("wait", "digits", "--for=running", "--timeout", "120s")

    stopped = cluster.call("stop", "digits")

    assert stopped.exit_code == 0, stopped.output
    assert stopped.stdout == "pytorchjob.kubeflow.org/digits stopped\n"
    assert "SIGTERM was sent to 2 pods; they have 30 s to end" in stopped.stderr
    assert "master-0 ended" in stopped.stderr
    assert "trainwright resume digits" in stopped.stderr
    assert cluster.succeed("wait", "digits", "--for=suspended", "--timeout=120") == (
        "pytorchjob.kubeflow.org/digits suspended\n"
    )
    assert cluster.succeed("resume", "digits") == "pytorchjob.kubeflow.org/digits resumed\n"
    cluster.succeed("wait", "digits", "--for=condition=Running", "--timeout", "120s")
    deleted = cluster.call("delete", "digits", "--now")
    assert deleted.stdout == 'pytorchjob.kubeflow.org "digits" deleted\n', deleted.output
    assert cluster.client.list(PODS, namespace=cluster.namespace).items == []


def test_a_deleted_run_stays_in_the_history_with_its_metrics(embedded_namespace: Cluster, embedded: UpCommand) -> None:
    cluster = embedded_namespace
    created = cluster.create(shell_job("digits", SAVES_ON_SIGTERM))
    cluster.succeed("wait", "digits", "--for=running", "--timeout", "120s")
    wait_until(lambda: logs_contain(embedded, "loss=0.25"))
    cluster.succeed("delete", "digits")

    runs = [run for run in read_history(embedded.data.path / "history.jsonl") if run.uid == created["metadata"]["uid"]]
    assert [(run.state, run.metrics) for run in runs] == [("Deleted", {"loss": 0.25})]


def logs_contain(embedded: UpCommand, text: str) -> bool:
    return any(text in log.read_text() for log in embedded.data.node.glob("pods/*/logs/*/*.log"))


def test_a_job_is_suspended_and_resumed_on_any_cluster(cluster: Cluster) -> None:
    created = cluster.create(shell_job("digits", "sleep 60"))
    resource = PYTORCH.resource

    assert cluster.succeed("suspend", "digits") == "pytorchjob.kubeflow.org/digits suspended\n"
    assert cluster.client.get(resource, "digits", namespace=cluster.namespace)["spec"]["runPolicy"]["suspend"] is True
    assert cluster.succeed("suspend", "digits") == "pytorchjob.kubeflow.org/digits is already suspended\n"
    assert cluster.succeed("resume", "pytorchjob/digits") == "pytorchjob.kubeflow.org/digits resumed\n"
    assert cluster.succeed("resume", "digits") == "pytorchjob.kubeflow.org/digits is not suspended\n"
    found = cluster.client.get(resource, "digits", namespace=cluster.namespace)
    assert found["metadata"]["uid"] == created["metadata"]["uid"]
    assert found["spec"]["runPolicy"]["suspend"] is False


def test_workers_are_scaled(cluster: Cluster) -> None:
    cluster.create(shell_job("digits", "true", "true", **SUSPENDED))
    scaled = cluster.succeed("scale", "digits", "--replicas", "4")
    assert scaled == "pytorchjob.kubeflow.org/digits scaled: worker from 2 to 4\n"
    assert cluster.json("digits")["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 4


def test_the_processes_of_mpirun_do_not_follow_its_workers(cluster: Cluster) -> None:
    cluster.create(shell_job_of(KINDS["MPIJob"], "sums", {"Launcher": (1, "true"), "Worker": (2, "true")}, **SUSPENDED))
    scaled = cluster.call("scale", "sums", "--replicas", "3")
    assert scaled.stdout == "mpijob.kubeflow.org/sums scaled: worker from 2 to 3\n"
    assert "as many as the option -n in the command of the launcher says" in scaled.stderr
    assert "trainwright resume" not in scaled.stderr


def test_what_cannot_be_scaled_is_named(cluster: Cluster) -> None:
    cluster.create(shell_job("digits", "true", **SUSPENDED))
    cluster.create(shell_job_of(KINDS["TFJob"], "mnist", {"PS": (1, "true"), "Worker": (1, "true")}, **SUSPENDED))
    assert "has no worker, and so no template for its pods: it has master" in cluster.fail(
        "scale", "digits", "--replicas", "2"
    )
    assert "has exactly 1 master" in cluster.fail("scale", "digits", "--replicas=2", "--role=master")
    unknown = cluster.fail("scale", "mnist", "--replicas=2", "--role=pilot")
    assert "has no role pilot: it has chief, master, worker, ps, evaluator" in unknown
    assert "ps from 1 to 2" in cluster.succeed("scale", "mnist", "--replicas", "2", "--role", "ps")


def test_all_jobs_are_deleted_only_after_confirmation(cluster: Cluster) -> None:
    for name in ("a", "b"):
        cluster.create(shell_job(name, "true", **SUSPENDED))

    refused = cluster.fail("delete", "--all")
    assert "--all deletes pytorchjob/a, pytorchjob/b: confirm it with --yes" in refused
    assert len(cluster.json()["items"]) == 2
    assert cluster.succeed("delete", "--all", "--yes").count("deleted") == 2
    assert cluster.json()["items"] == []
    assert cluster.call("delete", "--all").stderr == f"No resources found in {cluster.namespace} namespace.\n"


def test_delete_needs_a_name_and_finds_the_nearest(cluster: Cluster) -> None:
    cluster.create(shell_job("digits", "true", **SUSPENDED))
    assert "name the jobs" in cluster.fail("delete")
    assert "did you mean digits?" in cluster.fail("delete", "digits", "digitz")
    assert cluster.json("digits")["metadata"]["name"] == "digits", "nothing is deleted if one of the names is wrong"
    assert cluster.succeed("delete", "digits") == 'pytorchjob.kubeflow.org "digits" deleted\n'
    with pytest.raises(NotFound):
        cluster.client.get(PYTORCH.resource, "digits", namespace=cluster.namespace)


def test_wait_for_success_ends_with_1_when_the_job_fails(embedded_namespace: Cluster) -> None:
    cluster = embedded_namespace
    cluster.create(shell_job("bad", "exit 3"))
    failed = cluster.call("wait", "bad", "--timeout", "120s")
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert failed.stderr.startswith("pytorchjob/bad has failed; it cannot become succeeded\n")
    assert cluster.succeed("wait", "bad", "--for=finished") == "pytorchjob.kubeflow.org/bad finished\n"
    assert "has failed already" in cluster.fail("suspend", "bad")


def test_wait_times_out_with_124(cluster: Cluster) -> None:
    cluster.create(shell_job("slow", "true", **SUSPENDED))
    result = cluster.call("wait", "slow", "--timeout", "10ms")
    assert (result.exit_code, result.stderr) == (124, "timed out waiting for succeeded of pytorchjob/slow\n")


def test_stop_ends_the_ranks_that_outlive_a_failed_job(embedded_namespace: Cluster) -> None:
    cluster = embedded_namespace
    cluster.create(shell_job("bad", "exec sleep 600", "exit 1", workers=1))
    cluster.succeed("wait", "bad", "--for=failed", "--timeout", "120s")
    stopped = cluster.call("stop", "bad")
    assert "master-0 ended" in stopped.stderr, stopped.output
    assert "has failed already" in cluster.fail("stop", "bad")


@pytest.mark.parametrize(
    ("text", "conditions", "met"),
    [
        ("Succeeded", {"Succeeded": "True"}, True),
        ("finished", {"Failed": "True"}, True),
        ("running", {"Running": "False"}, False),
        ("condition=Running=False", {"Running": "False"}, True),
        ("condition=running", {"Running": "True"}, True),
        ("delete", {"Succeeded": "True"}, False),
    ],
)
def test_a_goal_is_met_by_conditions(text: str, conditions: dict[str, str], met: bool) -> None:
    listed = [{"type": type_, "status": status} for type_, status in conditions.items()]
    job = FoundJob(PYTORCH, {"metadata": {"name": "x"}, "status": {"conditions": listed}})
    assert read_goal(text).is_met(job) is met


def test_an_unknown_goal_lists_the_known_ones(tmp_path: Path) -> None:
    from trainwright.cli.main import cli

    result = CliRunner().invoke(cli, ["wait", "x", "--for=done", "--data-dir", str(tmp_path)])
    assert result.exit_code == 2
    assert "succeeded, finished" in result.output
