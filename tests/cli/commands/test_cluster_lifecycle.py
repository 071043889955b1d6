"""`up`, `status` and `down` as a user calls them: output, what is left behind, errors."""

import contextlib
import os
import signal
import socket
import stat
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.support.cluster.embedded_cluster import UpCommand, up_command
from tests.support.cluster.supervised_pods import end_supervisors
from tests.support.commands.trainwright import Result, command_line, trainwright
from tests.support.images.builder import add_image
from tests.support.objects.shell_jobs import shell_job, write_manifest
from tests.support.waiting import wait_until
from trainwright import __version__
from trainwright.cluster.datadir import DataDir
from trainwright.cluster.images.store import ImageStore
from trainwright.kube.client.kubeconfig import load_kubeconfig
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects.resources import PODS


class User:
    """A user with an empty home directory."""

    def __init__(self, home: Path) -> None:
        self.data = DataDir(home / "data")
        self.kubeconfig = home / "kubeconfig"
        self.environment = {**os.environ, "HOME": str(home), "KUBECONFIG": str(self.kubeconfig)}

    def call(self, command: str, *arguments: str) -> Result:
        words = (command, "--data-dir", str(self.data.path), *arguments)
        return trainwright(*words, environment=self.environment)

    def pods(self) -> Counter[str]:
        """How many pods are in each phase."""
        with SyncClient(load_kubeconfig(self.data.kubeconfig)) as client:
            pods = client.list(PODS, namespace="default").items
        return Counter((pod.get("status") or {}).get("phase", "Pending") for pod in pods)


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    user = User(tmp_path)
    yield user
    if (record := user.data.running()) is not None:
        os.kill(record.pid, signal.SIGKILL)
    end_supervisors(user.data.node)


@contextlib.contextmanager
def running(user: User, *flags: str) -> Iterator[UpCommand]:
    with up_command(user.data.path.parent, *flags) as up:
        yield up


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_up_prints_the_settings_and_keeps_the_current_context(user: User) -> None:
    user.kubeconfig.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "work"}))
    with running(user) as up:
        wait_until(lambda: "Stop:  Ctrl-C" in up.log.read_text())
        banner = up.log.read_text()
        for part in (up.record.server, up.record.sandbox, up.record.python, str(user.data.path)):
            assert part in banner
        config = yaml.safe_load(user.kubeconfig.read_text())
        assert config["current-context"] == "work"
        assert [context["name"] for context in config["contexts"]] == ["trainwright"]
        assert stat.S_IMODE(user.kubeconfig.stat().st_mode) == 0o600
        status = user.call("status")
        assert status.code == 0, status.all
        assert status.out.startswith(f"embedded cluster at {up.record.server} is up\n")
        assert f"\n  network  {up.record.addresses}\n" in status.out
        assert "  nodes    1 Ready\n" in status.out
        version = user.call("version", "--server")
        assert f"embedded cluster at {up.record.server}: v" in version.out, version.all


def test_a_second_up_is_refused_unless_detached_with_the_same_settings(user: User) -> None:
    with running(user) as up:
        second = user.call("up")
        assert second.code == 1
        assert second.err.startswith(f"Error: already up at {up.record.server} (pid {up.record.pid}")
        assert "start another one with --cluster NAME" in second.err
        detached = user.call("up", "--detach")
        assert detached.code == 0, detached.all
        assert detached.out.startswith(f"already up at {up.record.server}")
        other = user.call("up", "--detach", "--port", "1")
        assert other.code == 1
        assert "with other settings (--port" in other.err
        assert "`trainwright down` first" in other.err


def test_ctrl_c_leaves_pods_running_and_down_stops_them(user: User, tmp_path: Path) -> None:
    program = ["sleep", f"9{os.getpid()}"]  # the number makes it unique
    job = shell_job("long", " ".join(program) + " & wait", policy="OnFailure")
    with running(user) as up:
        started = user.call("run", "--no-follow", write_manifest(tmp_path, job))
        assert started.code == 0, started.all
        wait_until(lambda: user.pods() == {"Running": 1})
        assert "1 Running" in user.call("status").out
        output = up.stop()
        assert up.process.returncode == 0, output
        assert "Stopped; 1 pod keeps running: `trainwright up` adopts it, `trainwright down` stops it" in output
    gone = user.call("status")
    assert gone.code == 3
    assert "`trainwright up --detach" in gone.err
    assert _runs(program)
    down = user.call("down")
    assert down.code == 0, down.all
    assert down.out == f"No cluster was running in {user.data.path}; stopped 1 pod\n"
    assert "Stopping 1 pod, at most 30s\n" in down.err
    assert not _runs(program)


TRAINS = """
import pathlib, signal, sys, time
checkpoint = pathlib.Path.home() / "checkpoint"
step = int(checkpoint.read_text()) if checkpoint.exists() else 0
def save(*_):
    time.sleep(0.3)
    checkpoint.write_text(str(step))
    print("saved step", step, flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("start at step", step, flush=True)
while step < 5:
    step += 1
    print("step", step, flush=True)
    while step == 3 and not checkpoint.exists():
        time.sleep(0.01)
print("trained", flush=True)
"""


@pytest.mark.thorough("plain")
@pytest.mark.parametrize("sandbox", ["overlay", "plain"])
def test_a_checkpoint_written_on_sigterm_is_there_after_down_and_the_job_continues(
    user: User, tmp_path: Path, sandbox: str
) -> None:
    (tmp_path / "train.py").write_text(TRAINS)
    job = shell_job("trains", "exec python3 train.py >> log", "exec sleep 600", workers=2, policy="OnFailure")
    assert user.call("up", "--detach", "--sandbox", sandbox).code == 0
    assert user.call("run", "--no-follow", write_manifest(tmp_path, job)).code == 0
    wait_until(lambda: (tmp_path / "log").exists() and "step 3" in (tmp_path / "log").read_text())
    wait_until(lambda: user.pods() == {"Running": 3})
    down = user.call("down")
    assert down.out == "Stopped the cluster; stopped 3 pods\n", down.all
    assert (tmp_path / "checkpoint").read_text() == "3"

    assert user.call("up", "--detach", "--sandbox", sandbox).code == 0
    wait_until(lambda: user.pods()["Succeeded"] == 1)
    assert (tmp_path / "log").read_text().splitlines() == [
        *("start at step 0", "step 1", "step 2", "step 3", "saved step 3"),
        *("start at step 3", "step 4", "step 5", "trained"),
    ]


def test_down_and_up_three_times_does_not_reach_the_backoff_limit(user: User, tmp_path: Path) -> None:
    script = "trap 'exit 1' TERM; echo start >> starts; while test $(wc -l < starts) -lt 4; do sleep 0.02; done"
    job = shell_job("trains", script, policy="OnFailure", runPolicy={"backoffLimit": 1})
    starts = tmp_path / "starts"
    assert user.call("up", "--detach").code == 0
    assert user.call("run", "--no-follow", write_manifest(tmp_path, job)).code == 0
    flags: tuple[str, ...]
    for number, flags in enumerate(((), ("--now",), ()), start=1):
        _wait_for_text(starts, "start\n" * number)
        wait_until(lambda: user.pods() == {"Running": 1})
        assert user.call("down", *flags).code == 0
        assert user.call("up", "--detach").code == 0

    wait_until(lambda: user.pods() == {"Succeeded": 1})
    assert starts.read_text() == "start\n" * 4


STUBBORN = "trap '' TERM; touch ready; while :; do sleep 0.1; done"


def test_down_now_kills_pods_that_ignore_sigterm(user: User, tmp_path: Path) -> None:
    assert user.call("up", "--detach").code == 0
    user.call("run", "--no-follow", write_manifest(tmp_path, shell_job("stubborn", STUBBORN)))
    wait_until((tmp_path / "ready").exists)
    down = user.call("down", "--now")
    assert down.out == "Stopped the cluster; killed 1 pod\n", down.all
    assert user.call("down", "--now", "--keep-pods").code == 1


def test_a_second_ctrl_c_kills_the_pods_and_the_first_says_so(user: User, tmp_path: Path) -> None:
    assert user.call("up", "--detach").code == 0
    user.call("run", "--no-follow", write_manifest(tmp_path, shell_job("stubborn", STUBBORN)))
    wait_until((tmp_path / "ready").exists)
    words = command_line("down", "--data-dir", str(user.data.path))
    with subprocess.Popen(
        words, env=user.environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as down:
        assert down.stderr is not None
        assert down.stdout is not None
        assert "embedded cluster" in down.stderr.readline()
        assert down.stderr.readline() == "Stopping 1 pod, at most 30s\n"
        down.send_signal(signal.SIGINT)
        assert down.stderr.readline().endswith("Ctrl-C again kills them\n")
        down.send_signal(signal.SIGINT)
        assert down.stdout.read() == "Stopped the cluster; killed 1 pod\n"
    assert down.returncode == 0


def test_a_cluster_whose_data_directory_is_removed_stops_with_its_pods(user: User, tmp_path: Path) -> None:
    program = ["sleep", f"8{os.getpid()}"]
    with running(user) as up:
        user.call("run", "--no-follow", write_manifest(tmp_path, shell_job("long", " ".join(program) + " & wait")))
        wait_until(lambda: _runs(program))
        # The cluster may create a file while `rm` empties its directory.
        wait_until(lambda: subprocess.run(["rm", "-rf", user.data.path], check=False).returncode == 0)
        wait_until(lambda: up.process.poll() is not None)
        assert up.process.returncode == 1
        wait_until(lambda: not _runs(program))


def test_a_cluster_that_lost_its_record_is_stopped_before_its_directory_is_deleted(user: User) -> None:
    with running(user) as up:
        (user.data.path / "cluster.json").unlink()
        down = user.call("down", "--delete", "--yes")
        assert down.code == 0, down.all
        assert down.out == f"Stopped the cluster; no pods were running\nDeleted {user.data.path}\n"
        assert up.process.wait(timeout=60) == 0


def test_a_detached_cluster_starts_stops_and_is_deleted(user: User) -> None:
    started = user.call("up", "--detach")
    assert started.code == 0, started.all
    record = user.data.running()
    assert record is not None
    assert f"trainwright {record.version} is up at {record.server}\n" in started.out
    assert f"trainwright down --data-dir {user.data.path}" in started.out

    kept = user.call("down", "--keep-pods")
    assert kept.out == "Stopped the cluster; its pods keep running, `trainwright up` adopts them\n", kept.all
    assert user.data.running() is None
    assert user.data.store.exists()

    unconfirmed = user.call("down", "--delete")
    assert unconfirmed.code == 1
    assert "confirm it with --yes" in unconfirmed.err
    deleted = user.call("down", "--delete", "--yes")
    assert deleted.code == 0, deleted.all
    assert not user.data.path.exists()
    assert yaml.safe_load(user.kubeconfig.read_text())["contexts"] == []


def test_of_two_starts_at_the_same_time_one_starts_and_both_succeed(user: User) -> None:
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: user.call("up", "--detach"), range(2)))
    assert [answer.code for answer in answers] == [0, 0], [answer.all for answer in answers]
    assert sum(f"trainwright {__version__} is up at " in answer.out for answer in answers) == 1
    assert sum("already up at " in answer.out for answer in answers) == 1


def test_down_removes_its_context_and_up_adds_it_again(user: User) -> None:
    def contexts() -> list[str]:
        return [context["name"] for context in yaml.safe_load(user.kubeconfig.read_text())["contexts"]]

    for _ in range(2):
        assert user.call("up", "--detach").code == 0
        assert contexts() == ["trainwright"]
        assert user.call("down").code == 0
        assert contexts() == []


def test_an_ephemeral_cluster_leaves_nothing(user: User, tmp_path: Path) -> None:
    program = ["sleep", f"6{os.getpid()}"]
    started = user.call("up", "--detach", "--ephemeral")
    assert started.code == 0, started.all
    assert f"{user.data.path}, deleted when the cluster stops" in started.out
    user.call("run", "--no-follow", write_manifest(tmp_path, shell_job("long", " ".join(program) + " & wait")))
    wait_until(lambda: _runs(program))
    down = user.call("down")
    assert down.out == f"Stopped the cluster; deleted {user.data.path}\n", down.all
    assert not user.data.path.exists()
    assert not _runs(program)
    assert yaml.safe_load(user.kubeconfig.read_text())["contexts"] == []


def test_an_ephemeral_cluster_that_was_killed_leaves_nothing_to_the_next_one(user: User, tmp_path: Path) -> None:
    with running(user, "--ephemeral") as up:
        user.call("run", "--no-follow", write_manifest(tmp_path, shell_job("long", "sleep 600 & wait")))
        up.process.kill()
        up.process.wait()
    with running(user):
        assert "jobs     none" in user.call("status").out
        user.call("down")
    kept = user.call("up", "--ephemeral")
    assert kept.code == 1
    assert f"and {user.data.path} has data: choose another cluster with --cluster NAME" in kept.err


def test_delete_kills_pods_and_deletes_their_files(user: User, tmp_path: Path) -> None:
    program = ["sleep", f"7{os.getpid()}"]
    with running(user):
        user.call("run", "--no-follow", write_manifest(tmp_path, shell_job("long", " ".join(program) + " & wait")))
        wait_until(lambda: _runs(program))
        deleted = user.call("down", "--delete", "--yes")
    assert deleted.code == 0, deleted.all
    assert not user.data.path.exists()
    assert not _runs(program)


def test_delete_keeps_images(user: User) -> None:
    user.data.create()
    store = ImageStore(user.data.path / "images")
    image = add_image(store)

    answer = user.call("down", "--delete", "--yes")

    assert f"Deleted {user.data.path} except 1 image, which `trainwright image prune --all` removes" in answer.out
    assert [path.name for path in user.data.path.iterdir()] == ["images"]
    assert [kept.id for kept in store.images()] == [image.id]


def test_delete_refuses_a_directory_that_is_not_a_data_directory(user: User) -> None:
    user.data.path.mkdir()
    (user.data.path / "thesis.tex").write_text("precious")
    answer = user.call("down", "--delete", "--yes")
    assert answer.code == 1
    assert "is not a data directory of trainwright: nothing was deleted" in answer.err
    assert (user.data.path / "thesis.tex").exists()


@pytest.mark.parametrize("flags", [[], ["--detach"]])
def test_a_port_that_is_taken_is_named(user: User, taken_port: int, flags: list[str]) -> None:
    answer = user.call("up", *flags, "--port", str(taken_port))
    assert answer.code == 1, answer.all
    assert str(taken_port) in answer.err
    assert "choose another port with --port" in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("flags", [[], ["--detach"]])
def test_a_data_directory_of_a_newer_version_is_refused(user: User, flags: list[str]) -> None:
    user.data.path.mkdir()
    (user.data.path / "format").write_text("99\n")
    answer = user.call("up", *flags)
    assert answer.code == 1, answer.all
    assert f"{user.data.path}/format says 99" in answer.err
    assert "newer version" in answer.err


def test_a_kubeconfig_that_is_broken_is_named_and_left_as_it_is(user: User) -> None:
    user.kubeconfig.write_text("clusters: [")
    started = user.call("up", "--detach")
    assert started.code == 0, started.all
    assert f"Note: failed to add the context to {user.kubeconfig}" in started.out
    assert user.kubeconfig.read_text() == "clusters: ["
    user.call("down")
    asked = user.call("up", "--kubeconfig", str(user.kubeconfig))
    assert asked.code == 1, asked.all
    assert f"failed to add the context to {user.kubeconfig}" in asked.err


def test_a_python_that_does_not_exist_is_refused(user: User) -> None:
    answer = user.call("up", "--python", "/no/such/python")
    assert answer.code == 2
    assert "/no/such/python does not exist" in answer.err


@pytest.mark.parametrize("flags", [["--context", "nope"], []])
def test_the_status_of_an_unknown_context_is_an_error(user: User, flags: list[str]) -> None:
    environment = {**user.environment, "TRAINWRIGHT_CONTEXT": "nope"}
    answer = trainwright("status", *flags, environment=environment)
    assert answer.code == 1
    assert answer.err.startswith("Error: no kubeconfig")


def test_without_a_cluster_commands_say_how_to_start_one(user: User) -> None:
    answer = user.call("events", "early")
    assert answer.code == 1
    assert f"`trainwright up --detach --data-dir {user.data.path}`" in answer.err


def _wait_for_text(file: Path, text: str) -> None:
    wait_until(lambda: file.exists() and file.read_text() == text)


def _runs(program: list[str]) -> bool:
    """True if a process of this machine has exactly this command line."""
    wanted = b"".join(word.encode() + b"\0" for word in program)
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if command.read_bytes() == wanted:
                return True
    return False
