"""What `run` shows while it follows a job: every line, progress bars, failures that repeat, and what Ctrl-C does."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.support.cluster.embedded_cluster import UpCommand, up_command
from tests.support.commands.terminal import on_terminal
from tests.support.commands.trainwright import command_line, trainwright
from tests.support.objects.shell_jobs import shell_job, shell_job_of, write_manifest
from tests.support.waiting import wait_until
from trainwright.api.kinds import KINDS, PYTORCH
from trainwright.kube.client.errors import NotFound
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.resources import PODS


def labelled(output: str, rank: str) -> list[str]:
    """The lines of a rank's training container."""
    return re.findall(rf"^\[{rank}\] +(?!\(init-pytorch\))(.*)$", output, re.MULTILINE)


def test_no_line_of_a_short_job_is_lost_when_its_pods_are_deleted(call: Call, tmp_path: Path) -> None:
    script = "for i in 1 2 3; do echo line $i of $HOSTNAME; done"
    job = shell_job("short", script, script, runPolicy={"cleanPodPolicy": "All"})
    answer = call("run", write_manifest(tmp_path, job))
    assert answer.code == 0, answer.all
    for rank in ("master-0", "worker-0", "worker-1"):
        lines = [f"line {number} of short-{rank}" for number in (1, 2, 3)]
        # Clean-up may end a worker before it has printed everything, but what it has printed is shown.
        shown = labelled(answer.out, rank)
        assert shown == lines[: len(shown)]
    assert len(labelled(answer.out, "master-0")) == 3


def test_every_line_is_shown_once_while_the_cluster_is_down_and_started_again(tmp_path: Path) -> None:
    script = "i=0; until [ -e stop ]; do i=$((i + 1)); echo line $i; sleep 0.05; done; echo ended"
    manifest = write_manifest(tmp_path, shell_job("steady", script))
    output = tmp_path / "output"

    def wait_for(line: str) -> None:
        wait_until(lambda: line in labelled(output.read_text(), "master-0"))

    with up_command(tmp_path) as up, output.open("w") as file:
        words = command_line("run", "--data-dir", str(up.data.path), manifest)
        run = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, env=dict(up.environment))
        wait_for("line 10")
        up.kill()
        wait_for("line 40")
    with up_command(tmp_path):
        (tmp_path / "stop").touch()
        assert run.wait(60) == 0, output.read_text()
    *lines, last = labelled(output.read_text(), "master-0")
    assert lines == [f"line {number}" for number in range(1, len(lines) + 1)]
    assert last == "ended"


def test_the_output_of_every_run_of_a_restarted_container_is_shown(call: Call, tmp_path: Path) -> None:
    script = """
        n=$(cat runs 2>/dev/null || echo 0); echo $((n + 1)) >runs
        for i in 1 2 3; do echo run $n line $i; done; echo partial-$n | tr -d '\\n'; test $n = 1
    """
    answer = call("run", write_manifest(tmp_path, shell_job("again", script, policy="OnFailure")))
    assert answer.code == 0, answer.all
    expected = [[f"run {run} line {line}" for line in (1, 2, 3)] + [f"partial-{run}"] for run in (0, 1)]
    assert labelled(answer.out, "master-0") == expected[0] + expected[1]


def test_an_address_at_which_a_program_listens_is_named_once(embedded: UpCommand, tmp_path: Path) -> None:
    program = "import os, socket, time\nservers = [socket.create_server(('', port)) for port in (6006, 23456)]\n"
    program += "while not os.path.exists('stop'):\n    time.sleep(0.05)"
    job = shell_job("served", f'exec python3 -c "{program}"')
    words = command_line("run", "--data-dir", str(embedded.data.path), write_manifest(tmp_path, job))
    with on_terminal(words, embedded.environment, columns=200) as command:
        command.wait_for("master-0 Running")
        with SyncClient(embedded.config) as client:
            pod = client.get(PODS, "served-master-0", namespace="default")
        command.wait_for(f"master-0 listens at {pod['status']['podIP']}:6006")
        (tmp_path / "stop").touch()
        assert command.wait() == 0, command.output
    assert command.output.count("listens at") == 1  # 23456 is the declared port of the job


BAR = r"""
frame() { printf '\rEpoch 0: %3d%%|##| %s/100 [00:01<00:01, 9.9it/s, loss=0.%s]' $1 $1 $1; }
frame 20; until [ -e second ]; do sleep 0.05; done; frame 60; until [ -e third ]; do sleep 0.05; done
frame 100; printf '\n'; echo saved
"""


def test_without_a_terminal_a_progress_bar_is_one_line(call: Call, tmp_path: Path) -> None:
    for name in ("second", "third"):
        (tmp_path / name).touch()
    answer = call("run", write_manifest(tmp_path, shell_job("plainbar", BAR)))
    assert answer.code == 0, answer.all
    assert labelled(answer.out, "master-0") == [
        "Epoch 0: 100%|##| 100/100 [00:01<00:01, 9.9it/s, loss=0.100]",
        "saved",
    ]


def test_on_a_terminal_a_progress_bar_moves_on_one_line(embedded: UpCommand, tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, shell_job("livebar", BAR))
    words = command_line("run", "--data-dir", str(embedded.data.path), manifest)
    with on_terminal(words, embedded.environment) as command:
        command.wait_for("[master-0] Epoch 0:  20%|##| 20/100")
        command.wait_for("20% of epoch 0  step 20/100  loss 0.2000")
        (tmp_path / "second").touch()
        command.wait_for("[master-0] Epoch 0:  60%|##| 60/100")
        (tmp_path / "third").touch()
        assert command.wait() == 0, command.output
    assert "livebar succeeded in " in command.output


def test_a_program_that_fails_at_once_is_explained_after_its_second_failure(
    call: Call, embedded: UpCommand, tmp_path: Path
) -> None:
    job = shell_job("typo", "exec python -c 'import torhc'", policy="OnFailure")
    words = command_line("run", "--data-dir", str(embedded.data.path), write_manifest(tmp_path, job))
    with on_terminal(words, embedded.environment, columns=200) as command:
        command.wait_for("to stop the job: trainwright stop typo")
    assert "master-0 has failed 2 times in the same way" in command.output
    assert "No module named 'torhc'" in command.output
    again = call("run", "--timeout", "1s", write_manifest(tmp_path, job))
    assert again.out.count("in the same way") == 1, again.all
    assert call("delete", "--yes", "typo").code == 0


def hosted(job: Object, path: str) -> Object:
    pod = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    pod["volumes"] = [{"name": "data", "hostPath": {"path": path, "type": "Directory"}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return job


def test_a_container_that_waits_for_something_missing_says_so(call: Call, tmp_path: Path) -> None:
    job = hosted(shell_job("waiting", "true"), f"{tmp_path}/missing")
    assert call("run", "--no-follow", write_manifest(tmp_path, job)).code == 0
    wait_until(lambda: "FailedMount" in call("describe", "waiting").out)
    answer = call("run", "--timeout", "1s", write_manifest(tmp_path, job))
    assert answer.code == 124, answer.all
    assert 'MountVolume.SetUp failed for volume "data"' in answer.out
    assert f"{tmp_path}/missing" in answer.out
    assert "waiting has not started: master-0 " in answer.out


@pytest.mark.thorough  # waits for half a minute of silence
def test_a_job_that_hangs_is_noticed_with_the_command_that_shows_where(call: Call, tmp_path: Path) -> None:
    job = shell_job("hangs", "echo begun; exec sleep 600", runPolicy={"cleanPodPolicy": "Running"})
    answer = call("run", "--timeout", "35s", write_manifest(tmp_path, job))
    assert answer.code == 124, answer.all
    assert re.search(
        r"no output for 3\ds; running: master-0; to see where they are: trainwright stack hangs", answer.out
    )
    call("delete", "--yes", "hangs")


ABORTS_AT_EXIT = """
import os, socket, time
address = os.environ["COORDINATOR_ADDRESS"], int(os.environ["COORDINATOR_PORT"])
if os.environ["PROCESS_ID"] == "0":
    with socket.create_server(("", address[1])) as server:
        server.accept()[0].recv(1)  # the other rank has joined, and the training ends
else:
    while True:
        try:
            with socket.create_connection(address) as peer:
                peer.send(b"x")
                peer.recv(1)
            os.abort()
        except OSError:
            time.sleep(0.1)  # as torch does for half an hour
"""


@pytest.mark.thorough  # a rank that waits is noticed after ten seconds
def test_a_rank_that_waits_for_one_that_has_succeeded_is_named(call: Call, tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(ABORTS_AT_EXIT)
    script = f"exec python {tmp_path}/rank.py"
    job = shell_job_of(KINDS["JAXJob"], "late", {"Worker": (2, script)}, policy="OnFailure")
    sentence = (
        r"worker-1 was started again after exit code 134 and waits for worker-0, which succeeded \d+s ago "
        r"and does not come back; to end it: trainwright stop late"
    )
    answer = call("run", "--timeout", "25s", write_manifest(tmp_path, job))
    assert answer.code == 124, answer.all
    assert len(re.findall(sentence, answer.out)) == 1, answer.all
    described = call("describe", "late")
    assert re.search(sentence, described.out), described.all
    call("delete", "--yes", "late")


def test_ctrl_c_explains_then_asks_and_stop_keeps_the_job(embedded: UpCommand, tmp_path: Path) -> None:
    script = "trap 'echo saving; touch saved; exit 0' TERM; echo begun; while true; do sleep 0.1; done"
    words = command_line(
        "run", "--data-dir", str(embedded.data.path), write_manifest(tmp_path, shell_job("asked", script))
    )
    with on_terminal(words, embedded.environment) as command:
        command.wait_for("[master-0] begun")
        command.interrupt()
        command.wait_for("The job keeps running. Ctrl-C again to choose: stop it, or leave it running.")
        command.interrupt()
        command.wait_for("Stop asked?")
        command.type("s\n")
        assert command.wait() == 130, command.output
    assert "[master-0] saving" in command.output
    assert "asked is stopped after " in command.output
    assert "Traceback" not in command.output
    assert (tmp_path / "saved").exists()
    with SyncClient(embedded.config) as client:
        assert client.get(PYTORCH.resource, "asked", namespace="default")["spec"]["runPolicy"]["suspend"] is True
        client.delete(PYTORCH.resource, "asked", namespace="default")


def test_ctrl_c_after_down_says_that_the_pods_have_ended(tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, shell_job("downed", "echo begun; exec sleep 600"))
    with up_command(tmp_path) as up:
        words = command_line("run", "--data-dir", str(up.data.path), manifest)
        with on_terminal(words, up.environment) as command:
            command.wait_for("[master-0] begun")
            assert trainwright("down", "--now", "--data-dir", str(up.data.path), environment=up.environment).code == 0
            command.wait_for(" waiting for the cluster  ")  # the status line
            command.interrupt()
            command.wait_for("The cluster is not running; the pods of the job have ended.")
            command.interrupt()
            assert command.wait() == 130, command.output
    assert "keeps running" not in command.output
    assert f"start the cluster: trainwright up --detach --data-dir {up.data.path}" in command.output


def test_stop_of_another_terminal_ends_following(call: Call, embedded: UpCommand, tmp_path: Path) -> None:
    script = "trap 'echo saving; exit 0' TERM; echo begun; while true; do sleep 0.1; done"
    words = command_line(
        "run", "--rm", "--data-dir", str(embedded.data.path), write_manifest(tmp_path, shell_job("halted", script))
    )
    with on_terminal(words, embedded.environment) as command:
        command.wait_for("[master-0] begun")
        assert call("stop", "halted").code == 0
        assert command.wait() == 130, command.output
    assert "[master-0] saving" in command.output
    assert "halted is stopped after " in command.output
    assert "trainwright resume halted" in command.output
    assert call("delete", "halted").code == 0  # --rm keeps what `stop` keeps


def test_rm_deletes_the_job_at_its_end_and_after_ctrl_c(call: Call, embedded: UpCommand, tmp_path: Path) -> None:
    ended = call("run", "--rm", write_manifest(tmp_path, shell_job("brief", "echo done")))
    assert ended.code == 0, ended.all
    assert ended.out.endswith("pytorchjob.kubeflow.org/brief deleted\n")
    manifest = write_manifest(tmp_path, shell_job("gone", "echo begun; sleep 600"))
    words = command_line("run", "--rm", "--data-dir", str(embedded.data.path), manifest)
    with on_terminal(words, embedded.environment) as command:
        command.wait_for("[master-0] begun")
        command.interrupt()
        assert command.wait() == 130, command.output
    with SyncClient(embedded.config) as client:
        for name in ("brief", "gone"):
            with pytest.raises(NotFound):
                client.get(PYTORCH.resource, name, namespace="default")


def test_a_job_that_cannot_start_is_reported_although_another_rank_runs_on(call: Call, tmp_path: Path) -> None:
    job = shell_job("halfway", "while true; do echo on; sleep 0.1; done", "true", workers=1)
    container = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    del container["command"]
    container["image"] = "example/train:1"
    answer = call("run", "--timeout", "60s", write_manifest(tmp_path, job))
    assert answer.code == 1, answer.all
    assert "halfway cannot start: worker-0 is waiting: ImageHasNoCommand" in answer.out
    call("delete", "halfway")


def test_a_failed_job_offers_to_end_the_ranks_that_run_on(embedded: UpCommand, tmp_path: Path) -> None:
    job = shell_job("uneven", "until [ -e up ]; do sleep 0.05; done; exit 3", "touch up; sleep 600", workers=1)
    words = command_line("run", "--data-dir", str(embedded.data.path), write_manifest(tmp_path, job))
    with on_terminal(words, embedded.environment, columns=200) as command:
        command.wait_for("End worker-0 now? [Y/n]")
        command.type("\n")
        assert command.wait() == 1, command.output
    assert "uneven failed after " in command.output
    assert "worker-0 still runs: cleanPodPolicy is None, Kubeflow's default" in command.output
