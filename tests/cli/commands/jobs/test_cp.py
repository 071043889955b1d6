"""`trainwright cp`: private files, volumes, running pods; also after clean-up."""

from pathlib import Path

import click
import pytest

from tests.cli.commands.jobs.conftest import Cluster, in_directory
from tests.support.objects.shell_jobs import shell_job
from tests.support.waiting import wait_until
from trainwright.cli.commands.jobs.cp import Source, read_source
from trainwright.objects.resources import PODS

SAVES = """
mkdir -p /srv/out/deep
echo $RANK >/srv/out/rank
echo d >/srv/out/deep/d
if [ $RANK = 1 ]; then echo only >/srv/only; touch saved; fi
until [ -e saved ]; do sleep 0.02; done
"""


def test_private_files_are_fetched_after_their_pods_were_cleaned_up(
    embedded_namespace: Cluster, tmp_path: Path
) -> None:
    cluster = embedded_namespace
    job = shell_job("digits", SAVES, SAVES, workers=1, runPolicy={"cleanPodPolicy": "All"})
    cluster.create(in_directory(job, tmp_path))
    cluster.succeed("wait", "digits", "--timeout", "120s")
    wait_until(lambda: not cluster.client.list(PODS, namespace=cluster.namespace).items)

    copied = cluster.succeed("cp", "digits:worker-0:/srv/out/rank", str(tmp_path))
    assert copied == f"worker-0:/srv/out/rank copied to {tmp_path / 'rank'} (2 B)\n"
    assert (tmp_path / "rank").read_text() == "1\n"
    cluster.succeed("cp", "digits-master-0:/srv/out/rank", str(tmp_path / "as"))
    assert (tmp_path / "as").read_text() == "0\n"
    cluster.succeed("cp", "digits:/srv/only", str(tmp_path))
    assert (tmp_path / "only").read_text() == "only\n"
    cluster.succeed("cp", "digits:0:/srv/out", str(tmp_path))
    assert (tmp_path / "out" / "deep" / "d").read_text() == "d\n"
    assert "several ranks have /srv/out/rank: choose one of master-0, worker-0" in cluster.fail(
        "cp", "digits:/srv/out/rank", str(tmp_path)
    )
    assert (
        cluster.succeed("cp", "digits:saved", str(tmp_path))
        == f"master-0:{tmp_path}/saved is {tmp_path}/saved itself\n"
    )
    missing = cluster.fail("cp", "digits:/srv/missing", str(tmp_path))
    assert "has no file /srv/missing in its pods (private files: master-0:/srv/out/deep/d" in missing


def test_files_of_a_running_pod_are_fetched_by_its_own_view(embedded_namespace: Cluster, tmp_path: Path) -> None:
    cluster = embedded_namespace
    job = shell_job("digits", "echo v >/data/v; ln -s /data /srv/link; cd /data; touch ready; exec sleep 600")
    pod = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    pod["volumes"] = [{"name": "data", "emptyDir": {}}]
    pod["containers"][0] |= {"volumeMounts": [{"name": "data", "mountPath": "/data"}], "workingDir": "/data"}
    cluster.create(job)
    wait_until(lambda: cluster.call("cp", "digits:/srv/link/ready", str(tmp_path)).exit_code == 0)

    for path, name in (("/srv/link/v", "link"), ("v", "relative"), ("/data/v", "absolute")):
        cluster.succeed("cp", f"digits:{path}", str(tmp_path / name))
        assert (tmp_path / name).read_text() == "v\n"


HOLDS = """
mkdir -p /srv/out/deep; echo $RANK >/srv/out/rank; echo d >/srv/out/deep/d; ln -s out/rank /srv/link
if [ $RANK = 1 ]; then echo only >/srv/only; fi
echo ready; until [ -e /srv/in/more/sent ]; do sleep 0.05; done; cat /srv/in/more/sent; exec sleep 600
"""


def test_on_any_cluster_files_of_running_pods_are_copied_both_ways(by_api: Cluster, tmp_path: Path) -> None:
    by_api.create(shell_job("digits", HOLDS, HOLDS, workers=1))
    wait_until(lambda: by_api.call("logs", "digits").stdout.count("ready") == 2)

    copied = by_api.succeed("cp", "digits:worker-0:/srv/out/rank", str(tmp_path))
    assert copied == f"worker-0:/srv/out/rank copied to {tmp_path / 'rank'} (2 B)\n"
    assert (tmp_path / "rank").read_text() == "1\n"
    by_api.succeed("cp", "digits:master-0:/srv/link", str(tmp_path / "linked"))
    assert (tmp_path / "linked").read_text() == "0\n"
    by_api.succeed("cp", "digits:/srv/only", str(tmp_path))
    assert (tmp_path / "only").read_text() == "only\n"
    by_api.succeed("cp", "digits:0:/srv/out", str(tmp_path))
    assert (tmp_path / "out" / "deep" / "d").read_text() == "d\n"
    assert "several ranks have /srv/out/rank: choose one of master-0, worker-0" in by_api.fail(
        "cp", "digits:/srv/out/rank", str(tmp_path)
    )
    assert "has no file /srv/missing in its running pods" in by_api.fail("cp", "digits:/srv/missing", str(tmp_path))

    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "sent").write_text("from outside\n")
    by_api.succeed("cp", str(tmp_path / "only"), "digits:worker-0:/srv/renamed")
    assert "choose one of master-0, worker-0" in by_api.fail("cp", str(tmp_path / "more"), "digits:/srv/in")
    assert "tar failed in worker-0" in by_api.fail("cp", str(tmp_path / "more"), "digits:worker-0:/nowhere/in")
    sent = by_api.succeed("cp", str(tmp_path / "more"), "digits:worker-0:/srv/out")
    assert sent == f"{tmp_path}/more copied to worker-0:/srv/out/more\n"
    by_api.succeed("cp", "digits:worker-0:/srv/out/more/sent", str(tmp_path / "back"))
    assert (tmp_path / "back").read_text() == "from outside\n"


def test_one_side_is_a_file_of_a_job(by_api: Cluster, tmp_path: Path) -> None:
    by_api.create(shell_job("digits", "true"))
    assert "one of both must be a file of a job" in by_api.fail("cp", str(tmp_path), str(tmp_path))
    assert "one of both must be a file of a job" in by_api.fail("cp", "digits:/a", "digits:/b")
    by_api.succeed("wait", "digits", "--timeout", "120s")
    assert "has no running pod" in by_api.fail("cp", "digits:/etc/hosts", str(tmp_path))


def test_a_source_is_a_job_an_optional_rank_and_a_path() -> None:
    assert read_source("digits:/tmp/x") == Source("digits", None, "/tmp/x")
    assert read_source("digits:worker-0:x") == Source("digits", "worker-0", "x")
    assert read_source("digits:/odd:name") == Source("digits", None, "/odd:name")
    for wrong in ("file.txt", "digits:", ":x", "digits::x"):
        with pytest.raises(click.BadParameter, match="JOB:RANK:PATH"):
            read_source(wrong)
