"""`trainwright run train.py`: programs become jobs, with their environment, on the embedded and on other clusters."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.cli.conftest import Call
from tests.support.cluster.embedded_cluster import UpCommand
from tests.support.commands.trainwright import trainwright
from tests.support.objects.shell_jobs import shell_job, shell_job_of, write_manifest
from tests.support.waiting import wait_until
from trainwright.api.kinds import KINDS, PYTORCH
from trainwright.cli.main import cli
from trainwright.kube.client.errors import NotFound
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.resources import CONFIG_MAPS, PODS, SECRETS, Resource

REPORT = """
import json, os, sys
import helper
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TOKEN")
facts = {"argv": sys.argv, "cwd": os.getcwd(), "path": sys.path[0], "module": helper.__file__}
facts |= {name: os.environ.get(name) for name in names}
with open(f"report-{os.environ.get('RANK')}.json", "w") as file:
    json.dump(facts, file)
print("written", flush=True)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "report.py").write_text(REPORT)
    (tmp_path / "lib" / "helper.py").write_text("")
    return tmp_path


@pytest.fixture
def client(embedded: UpCommand) -> Iterator[SyncClient]:
    with SyncClient(embedded.config) as client:
        yield client


def exists(client: SyncClient, resource: Resource, name: str) -> bool:
    try:
        client.get(resource, name, namespace="default")
    except NotFound:
        return False
    return True


def wait_until_gone(client: SyncClient, resource: Resource, name: str) -> None:
    deadline = time.monotonic() + 30
    while exists(client, resource, name):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_program_runs_as_python_would_run_it(call: Call, project: Path) -> None:
    answer = call("run", "lib/report.py", "--", "--epochs", "3", "$(HOME)", directory=project)
    assert answer.code == 0, answer.all
    assert "lib/report.py imports no known framework: it runs as a PyTorchJob (see --framework)" in answer.err
    assert "report succeeded in" in answer.out
    assert json.loads((project / "report-0.json").read_text()) == {
        "argv": ["lib/report.py", "--epochs", "3", "$(HOME)"],
        "cwd": str(project),
        "path": str(project / "lib"),
        "module": str(project / "lib" / "helper.py"),
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "TOKEN": None,
    }


def test_workers_are_ranks_of_one_group_with_the_callers_variables(
    call: Call, embedded: UpCommand, client: SyncClient, project: Path
) -> None:
    words = ("-m", "lib.report", "--name", "group", "--workers", "2", "--env", "TOKEN=sesame", "--workdir", ".")
    (project / "helper.py").write_text("")
    answer = call("run", *words, directory=project)
    assert answer.code == 0, answer.all
    reports = [json.loads((project / f"report-{rank}.json").read_text()) for rank in (0, 1)]
    assert [report["WORLD_SIZE"] for report in reports] == ["2", "2"]
    assert [report["TOKEN"] for report in reports] == ["sesame", "sesame"]
    assert "sesame" not in answer.all
    job = client.get(PYTORCH.resource, "group", namespace="default")
    assert "sesame" not in json.dumps(job)

    # The Secret belongs to the job: it is renewed when the job runs again, and goes with it.
    answer = call("run", *words[:6], "--env", "TOKEN=changed", directory=project)
    assert answer.code == 0, answer.all
    assert json.loads((project / "report-1.json").read_text())["TOKEN"] == "changed"
    [owner] = client.get(SECRETS, "group-env", namespace="default")["metadata"]["ownerReferences"]
    assert owner["uid"] == client.get(PYTORCH.resource, "group", namespace="default")["metadata"]["uid"]
    client.delete(PYTORCH.resource, "group", namespace="default")
    wait_until_gone(client, SECRETS, "group-env")


def test_a_program_has_the_network_of_the_machine_on_request(call: Call, client: SyncClient, project: Path) -> None:
    answer = call("run", "lib/report.py", "--name", "outside", "--host-network", directory=project)
    assert answer.code == 0, answer.all
    pod = client.get(PODS, "outside-master-0", namespace="default")
    assert pod["status"]["podIP"] == pod["status"]["hostIP"] == "127.0.0.1"


def test_a_program_elsewhere_is_found_and_its_files_are_kept(
    call: Call, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    caller = tmp_path_factory.mktemp("caller")
    answer = call("run", str(project / "lib" / "report.py"), "--name", "elsewhere", directory=caller)
    assert answer.code == 0, answer.all
    facts = json.loads((caller / "report-0.json").read_text())
    assert (facts["cwd"], facts["path"]) == (str(caller), str(project / "lib"))


def test_names_of_files_cannot_control_the_terminal(call: Call, tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text("open('red\\x1b[31m', 'w').write('x')\n")
    answer = call("run", "odd.py", directory=tmp_path)
    assert answer.code == 0, answer.all
    assert "red  1 B" in answer.out
    assert "\x1b" not in answer.out


def test_variables_reach_the_training_containers_of_a_manifest(call: Call, client: SyncClient, tmp_path: Path) -> None:
    job = shell_job("tokens", "echo token-${#TOKEN}", "echo token-${#TOKEN}")
    answer = call("run", "--env", "TOKEN=12345", write_manifest(tmp_path, job))
    assert answer.code == 0, answer.all
    assert "[master-0] token-5" in answer.out
    client.delete(PYTORCH.resource, "tokens", namespace="default")
    wait_until_gone(client, SECRETS, "tokens-env")


def test_a_job_that_is_refused_leaves_no_secret(call: Call, client: SyncClient, tmp_path: Path) -> None:
    client.create(
        SECRETS,
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine-env"}, "data": {}},
        namespace="default",
    )
    answer = call("run", "--env", "TOKEN=1", write_manifest(tmp_path, shell_job("mine", "true", "true")))
    assert answer.code == 1
    assert "Secret mine-env exists already and does not belong to the job" in answer.err
    assert not exists(client, PYTORCH.resource, "mine")
    assert "labels" not in client.get(SECRETS, "mine-env", namespace="default")["metadata"]


def test_jobs_of_two_kinds_and_one_name_do_not_share_a_secret(call: Call, client: SyncClient, tmp_path: Path) -> None:
    first = shell_job_of(KINDS["TFJob"], "both", {"Worker": (1, "true")})
    first["spec"]["runPolicy"] = {"suspend": True}
    assert call("run", "--no-follow", "--env", "TOKEN=1", write_manifest(tmp_path, first)).code == 0
    secret = client.get(SECRETS, "both-env", namespace="default")

    answer = call("run", "--env", "TOKEN=2", write_manifest(tmp_path, shell_job("both", "true", "true")))

    assert answer.code == 1
    assert "Secret both-env exists already and does not belong to the job" in answer.err
    assert client.get(SECRETS, "both-env", namespace="default")["data"] == secret["data"]


def test_an_edited_program_is_reported_and_replaced_on_request(call: Call, project: Path) -> None:
    program = project / "waits.py"
    program.write_text("import time\nprint('first', flush=True)\ntime.sleep(600)\n")
    assert call("run", "waits.py", "--no-follow", directory=project).code == 0

    same = call("run", "waits.py", "--no-follow", directory=project)
    assert "pytorchjob.kubeflow.org/waits is already running: following it\n" in same.out
    assert "edited" not in same.out

    wait_until(lambda: "first" in call("logs", "waits").out)  # else the edited program would start
    program.write_text("print('second')\n")
    kept = call("run", "waits.py", "--no-follow", directory=project)
    assert "waits.py has been edited since the job started: to restart the job, use --replace" in kept.out
    replaced = call("run", "waits.py", "--replace", directory=project)
    assert replaced.code == 0, replaced.all
    assert "pytorchjob.kubeflow.org/waits is running an earlier program: replacing it" in replaced.out
    assert "[master-0] second" in replaced.out


def test_the_same_program_of_another_directory_is_another_job(call: Call, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same.py").write_text("import time; time.sleep(600)\n")
    assert call("run", "same.py", "--no-follow", directory=tmp_path / "a").code == 0
    answer = call("run", "same.py", "--no-follow", directory=tmp_path / "b")
    assert answer.code == 1
    assert "same is running with a different spec: delete and recreate it with --replace" in answer.err
    assert "--name" in answer.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent.py"], "absent.py does not exist"),
        (["lib"], "no manifests found in directory lib: to run a program in it, name its file"),
        (["lib/report.py", "job.yaml"], "run one program at a time, and manifests without a program"),
        (
            ["lib/report.py", "3"],
            "write the arguments of lib/report.py after --: trainwright run lib/report.py -- 3",
        ),
        (["lib/report.py", "--epochs", "3"], "run --dry-run lib/report.py -- --epochs 3"),
        (["notes.txt"], "notes.txt is neither a manifest (.yaml, .yml, .json) nor a Python program (.py)"),
        (["lib/report.py", "--env", "NOT_SET_HERE"], "--env NOT_SET_HERE: the variable is not set here: export it"),
        (["lib/report.py", "--mount", "./absent:/data"], "absent does not exist: create it first"),
        (["lib/report.py", "--mount", "lib:data"], "data must be an absolute path below /"),
        (["lib/report.py", "--workdir", "absent"], "--workdir absent is not a directory of this machine"),
        (["lib/report.py", "--host-network", "--workers", "2"], "every pod would have port 23456 of this machine"),
        (["job.yaml", "--host-network"], "--host-network is for programs such as train.py"),
        (["lib/report.py", "--nproc", "0"], "write a number from 1 on, or auto"),
        (["lib/report.py", "--", "a\udcff"], r"'a\udcff' is not UTF-8 text: a job cannot contain it"),
        (["tr\udcffain.py"], r"'tr\udcffain.py' is not UTF-8 text"),
        (["lib/report.py", "--mount", "da\udcffta:/data"], r"--mount 'da\udcffta:/data' is not UTF-8 text"),
        (["lib/report.py", "--workdir", "caf\udce9"], r"caf\xe9 is not a UTF-8 name, so a job cannot contain it"),
        (["lib/report.py", "-o", "yaml"], "-o is the format of --dry-run"),
        ([], "name a program (train.py) or a manifest (job.yaml)"),
    ],
)
def test_a_mistake_is_one_clear_error(
    project: Path, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "notes.txt").write_text("- remember\n")
    (project / "caf\udce9").mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("XDG_DATA_HOME", str(project))
    # --dry-run: otherwise a mistake that is not noticed would start a cluster.
    result = CliRunner().invoke(
        cli, ["run", *(["--dry-run"] if "-o" not in words else []), *words], prog_name="trainwright"
    )
    assert result.exit_code in {1, 2}
    assert message in result.stderr
    assert result.stdout == ""


def test_a_dry_run_prints_the_manifest_without_the_values_of_variables(
    project: Path, tmp_path: Path, call: Call
) -> None:
    nowhere = tmp_path / "nowhere"  # no cluster runs there, and none is started
    words = ("run", "--data-dir", str(nowhere), "lib/report.py", "--dry-run", "--env", "TOKEN=sesame", "-n", "team")
    answer = trainwright(*words, environment={"HOME": str(tmp_path)}, directory=project)
    assert answer.code == 0, answer.all
    assert not nowhere.exists()
    assert "# Secret report-env (not shown) has the values of TOKEN\n" in answer.out
    assert "sesame" not in answer.out
    job = yaml.safe_load(answer.out)
    assert job["metadata"]["namespace"] == "team"
    [variable] = [one for one in container_of(job)["env"] if one["name"] == "TOKEN"]
    assert variable["valueFrom"] == {"secretKeyRef": {"name": "report-env", "key": "TOKEN"}}

    # What it prints is a manifest, and the cluster accepts it.
    manifest = tmp_path / "made.json"
    printed = call("run", "lib/report.py", "--name", "made", "--dry-run", "-o", "json", directory=project)
    manifest.write_text(printed.out)
    assert call("run", str(manifest)).code == 0
    assert (project / "report-0.json").exists()


def container_of(job: Object) -> Object:
    [container] = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    return dict(container)


def test_on_another_cluster_the_program_travels_in_a_config_map(
    embedded: UpCommand, client: SyncClient, project: Path, tmp_path: Path
) -> None:
    # For a kubeconfig that is not that of the default data directory, a cluster is like any other.
    context = ("--kubeconfig", str(embedded.data.kubeconfig), "--context", "trainwright")
    environment = {**embedded.environment, "HOME": str(tmp_path)}
    refused = trainwright("run", *context, "lib/report.py", environment=environment, directory=project)
    assert "--image is required for context trainwright" in refused.err

    words = ("run", *context, "lib/report.py", "--name", "travels", "--image", "trainwright/host")
    answer = trainwright(*words, "--", "3", environment=environment, directory=project)
    assert answer.code == 0, answer.all
    assert "Files that the program writes are lost with its pods" in answer.err
    assert "[master-0] written" in answer.out
    code = client.get(CONFIG_MAPS, "travels-code", namespace="default")
    assert code["data"] == {"report.py": REPORT, "helper.py": ""}
    assert code["metadata"]["ownerReferences"][0]["name"] == "travels"

    (project / "lib" / "helper.py").write_text("#" * (1 << 20))
    large = trainwright(*words, environment=environment, directory=project)
    assert large.code == 1
    assert "and the 1 modules that it imports have 1.0 MiB, and a ConfigMap holds 1 MiB" in large.err
    assert "  FROM trainwright/host\n  WORKDIR /app\n" in large.err


def test_run_starts_the_embedded_cluster_if_none_is_running(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text("print('hello')\n")
    data = tmp_path / "data"
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    try:
        words = ("run", "--data-dir", str(data), "hello.py")
        answer = trainwright(*words, environment=environment, directory=tmp_path)
        assert answer.code == 0, answer.all
        assert "Started the embedded cluster at https://127.0.0.1:" in answer.err
        assert f"`trainwright down --data-dir {data}` stops it" in answer.err
        assert "[master-0] hello" in answer.out
        assert "Started" not in trainwright(*words, environment=environment, directory=tmp_path).err
    finally:
        trainwright("down", "--data-dir", str(data), environment=environment)


def test_an_interrupted_start_leaves_nothing_behind(embedded: UpCommand, client: SyncClient, project: Path) -> None:
    """A Secret without a job, as a killed `run` leaves it, is replaced by the next one."""
    leftover = {"name": "again-env", "labels": {"trainwright.dev/job": "again"}}
    client.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": leftover}, namespace="default")
    words = ("run", "--data-dir", str(embedded.data.path), "lib/report.py", "--name", "again", "--env", "TOKEN=new")
    answer = trainwright(*words, environment=embedded.environment, directory=project)
    assert answer.code == 0, answer.all
    assert json.loads((project / "report-0.json").read_text())["TOKEN"] == "new"


def test_a_worker_starts_although_its_master_has_ended_already(call: Call, tmp_path: Path) -> None:
    """Programs that are not distributed do not wait for each other."""
    (tmp_path / "brief.py").write_text("import os; print('rank', os.environ['RANK'], flush=True)\n")
    answer = call("run", "brief.py", "--workers", "3", directory=tmp_path)
    assert answer.code == 0, answer.all
    for rank in range(3):
        assert re.search(rf"] +rank {rank}$", answer.out, re.MULTILINE), answer.out


def test_ranks_that_wait_for_a_failed_one_are_ended_with_the_program(call: Call, tmp_path: Path) -> None:
    (tmp_path / "uneven.py").write_text(
        "import os, pathlib, time\n"
        "if os.environ['RANK'] == '0':\n"
        "    pathlib.Path('up').touch()\n"
        "    time.sleep(600)\n"
        "while not os.path.exists('up'):\n"
        "    time.sleep(0.05)\n"
        "raise ValueError('boom')\n"
    )
    answer = call("run", "uneven.py", "--workers", "2", "--max-restarts", "0", directory=tmp_path)
    assert answer.code == 1, answer.all
    assert "  ended master-0, which waited for it\n" in answer.out
    assert "still runs" not in answer.out
