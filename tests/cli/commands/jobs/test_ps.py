"""`trainwright ps` on the embedded cluster and on the real kube-apiserver."""

import json
import subprocess
import sys
from typing import IO, Any

import yaml

from tests.cli.commands.jobs.conftest import Cluster
from tests.support.objects.shell_jobs import shell_job, shell_job_of
from trainwright.api.kinds import KINDS

SUSPENDED: dict[str, Any] = {"runPolicy": {"suspend": True}}
TFJOB = KINDS["TFJob"]


def test_jobs_of_all_kinds_are_listed(cluster: Cluster) -> None:
    cluster.create(shell_job("digits", "true", "true", **SUSPENDED))
    cluster.create(shell_job_of(TFJOB, "mnist", {"Worker": (2, "true")}, **SUSPENDED))

    head, *rows = [line.split() for line in cluster.succeed("ps").splitlines()]

    assert head == ["NAME", "KIND", "STATE", "RANKS", "AGE", "DURATION", "METRICS"]
    assert [(row[0], row[1], row[3]) for row in rows] == [
        ("digits", "PyTorchJob", "0/3"),
        ("mnist", "TFJob", "0/2"),
    ]
    assert cluster.succeed("get", "tfjobs", "-o", "name") == "tfjob.kubeflow.org/mnist\n"
    assert cluster.succeed("ps", "-o", "wide").splitlines()[0].split()[-5:] == [
        *("RESTARTS", "IMAGE", "LISTENS", "AT", "METRICS")
    ]
    assert cluster.namespace in cluster.succeed("ps", "-A", "-o", "table")


def test_an_empty_list_is_no_error_and_says_so_on_standard_error(cluster: Cluster) -> None:
    result = cluster.call("ps")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"No resources found in {cluster.namespace} namespace.\n"
    assert cluster.json()["items"] == []


def test_one_job_is_printed_as_json_and_yaml(cluster: Cluster) -> None:
    created = cluster.create(shell_job("digits", "true", **SUSPENDED))

    printed = cluster.json("pytorchjob/digits")
    assert printed["metadata"]["uid"] == created["metadata"]["uid"]
    assert "managedFields" not in printed["metadata"]
    assert yaml.safe_load(cluster.succeed("ps", "digits", "-o", "yaml"))["spec"] == printed["spec"]
    assert [one["metadata"]["name"] for one in cluster.json("pytorchjob")["items"]] == ["digits"]


def test_a_label_selector_chooses_jobs(cluster: Cluster) -> None:
    for name, team in (("a", "vision"), ("b", "speech")):
        job = shell_job(name, "true", **SUSPENDED)
        job["metadata"]["labels"] = {"team": team}
        cluster.create(job)
    assert cluster.succeed("ps", "-l", "team=speech", "-o", "name") == "pytorchjob.kubeflow.org/b\n"


def test_an_unknown_job_gets_a_suggestion(cluster: Cluster) -> None:
    cluster.create(shell_job("digits", "true", **SUSPENDED))
    error = cluster.fail("ps", "digit")
    assert error == f'Error: jobs "digit" not found in namespace {cluster.namespace}: did you mean digits?\n'


def test_an_ambiguous_name_lists_the_candidates(cluster: Cluster) -> None:
    cluster.create(shell_job("digits", "true", **SUSPENDED))
    cluster.create(shell_job_of(TFJOB, "digits", {"Worker": (1, "true")}, **SUSPENDED))
    assert cluster.fail("ps", "digits").endswith("write pytorchjob/digits or tfjob/digits\n")
    assert cluster.succeed("ps", "tfjob/digits", "-o", "name") == "tfjob.kubeflow.org/digits\n"


def test_watch_prints_changes_as_they_happen(cluster: Cluster) -> None:
    cluster.create(shell_job("digits", "true", **SUSPENDED))
    words = [sys.executable, "-m", "trainwright", "ps", "-w", "-o", "json", *cluster.flags, "-n", cluster.namespace]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert read_json(watching.stdout)["metadata"]["name"] == "digits"
        cluster.create(shell_job("later", "true", **SUSPENDED))
        seen = read_json(watching.stdout)
        while seen["metadata"]["name"] != "later":
            seen = read_json(watching.stdout)
        watching.terminate()


def read_json(stream: IO[str]) -> dict[str, dict[str, str]]:
    text = ""
    for line in stream:
        text += line
        if line == "}\n":
            break
    found: dict[str, dict[str, str]] = json.loads(text)
    return found
