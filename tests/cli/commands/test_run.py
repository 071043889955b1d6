"""`trainwright run` on a real embedded cluster: jobs succeed, fail, are followed, replaced and refused."""

import copy
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.support.cluster.embedded_cluster import UpCommand
from tests.support.commands.trainwright import command_line
from tests.support.objects.shell_jobs import shell_job, shell_job_of, write_manifest
from trainwright.api.kinds import KINDS, PYTORCH, Kind
from trainwright.kube.client.errors import NotFound
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.resources import CONFIG_MAPS, PODS

CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "kept"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
}
TRAINING = """
for step in 0 50 100; do echo "Train Epoch: 1 [$step/100 ($step%)] loss=0.$step"; done
echo accuracy=0.9665
"""


def test_a_job_is_followed_until_it_succeeds(call: Call, embedded: UpCommand, tmp_path: Path) -> None:
    # The master decides when the job finishes: it waits until the workers have printed.
    waiting = "until [ -e heard-1 ] && [ -e heard-2 ]; do sleep 0.02; done"
    job = shell_job("good", f"{waiting}\n{TRAINING}\nhostname >/models/model", "echo rank $RANK; touch heard-$RANK")
    pod = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    pod["volumes"] = [{"name": "models", "persistentVolumeClaim": {"claimName": "kept"}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "models", "mountPath": "/models"}]
    manifest = write_manifest(tmp_path, CLAIM, job)

    answer = call("run", manifest)
    assert answer.code == 0, answer.all
    assert answer.err == f"→ embedded cluster at {embedded.record.server} (namespace default)\n"
    lines = answer.out.splitlines()
    assert lines[:2] == ["persistentvolumeclaim/kept created", "pytorchjob.kubeflow.org/good created"]
    assert "[master-0] Train Epoch: 1 [50/100 (50%)] loss=0.50" in lines
    assert "[worker-0] rank 1" in lines
    assert "[worker-1] rank 2" in lines
    assert "master-0 Succeeded" in answer.out
    verdict, volume, model, *rest = lines[-6:]
    assert verdict.startswith("good succeeded in ")
    assert verdict.endswith(": accuracy=0.9665 loss=0.1000")
    volume = volume.removeprefix("Volume models (mounted at /models): ")
    assert Path(volume, "model").read_text() == "good-master-0\n"
    assert model.split() == ["model", "14", "B"]
    assert rest == [f"Files that changed in {tmp_path} while it ran:", "  heard-1  0 B", "  heard-2  0 B"]

    again = call("run", manifest)
    assert again.code == 0, again.all
    assert "persistentvolumeclaim/kept unchanged" in again.out
    assert "pytorchjob.kubeflow.org/good has succeeded: recreating it" in again.out
    assert "[master-0] accuracy=0.9665" in again.out


def test_a_rank_that_exits_1_fails_the_job_and_is_reported(call: Call, tmp_path: Path) -> None:
    job = shell_job("bad", "sleep 60", 'if [ $RANK = 2 ]; then echo "out of luck"; exit 1; fi; sleep 60')
    answer = call("run", write_manifest(tmp_path, job))
    assert answer.code == 1, answer.all
    assert "bad failed after " in answer.out
    assert ": worker-1 failed first: exit code 1\n" in answer.out
    assert "    out of luck\n" in answer.out


ROLES = {
    "PyTorchJob": {"Master": 1, "Worker": 1},
    "TFJob": {"Chief": 1, "Worker": 1, "PS": 1, "Evaluator": 1},
    "XGBoostJob": {"Master": 1, "Worker": 1},
    "PaddleJob": {"Master": 1, "Worker": 1},
    "JAXJob": {"Worker": 2},
    "MPIJob": {"Launcher": 1, "Worker": 1},
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_progress_is_that_of_the_deciding_rank(call: Call, tmp_path: Path, kind: Kind) -> None:
    roles = [(role, count) for role in kind.roles if (count := ROLES[kind.name].get(role.name))]
    first, *others = labels = [role.rank_name(index) for role, count in roles for index in range(count)]
    served = "sleep 600" if kind.name == "MPIJob" else ":"  # a launcher starts when its workers run
    told = " ".join(f"-e told-{label}" for label in others).replace(" -e", " -a -e")
    script = f"""
        rank=${{HOSTNAME#{kind.framework}-}}; echo "I am $rank"
        if [ $rank = {first} ]; then
            until [ {told} ]; do sleep 0.02; done; echo 'Epoch 2/2 loss=0.25'
        else
            echo 'Epoch 1/2 loss=0.75'; touch told-$rank; {served}
        fi
    """
    scripts = {role: (count, script) for role, count in ROLES[kind.name].items()}

    answer = call("run", write_manifest(tmp_path, shell_job_of(kind, kind.framework, scripts)))

    assert answer.code == 0, answer.all
    for label in labels:
        assert re.search(rf"^\[{label}\] +I am {label}$", answer.out, re.MULTILINE), answer.out
    assert re.search(rf"^{kind.framework} succeeded in .*: loss=0.2500$", answer.out, re.MULTILINE), answer.out


def test_parameter_servers_that_outlive_their_job_are_reported(call: Call, embedded: UpCommand, tmp_path: Path) -> None:
    trains = "until [ -e served-ps-0 ] && [ -e served-ps-1 ]; do sleep 0.02; done; echo trained"
    scripts = {"PS": (2, "touch $HOSTNAME; sleep 600"), "Worker": (1, trains)}
    manifest = write_manifest(tmp_path, shell_job_of(KINDS["TFJob"], "served", scripts))
    answer = call("run", manifest)
    assert answer.code == 0, answer.all
    assert "  ps-0, ps-1 still run: cleanPodPolicy is None, Kubeflow's default" in answer.out
    assert "  end them: trainwright stop served" in answer.out

    cleaned = shell_job_of(KINDS["TFJob"], "served", scripts, runPolicy={"cleanPodPolicy": "Running"})
    answer = call("run", write_manifest(tmp_path, cleaned))
    assert answer.code == 0, answer.all
    assert "still run" not in answer.out


def test_the_rank_that_failed_first_is_reported_for_every_framework(call: Call, tmp_path: Path) -> None:
    lost = "until [ -e failed ]; do sleep 0.02; done; echo 'F1115 Terminating process because the JAX distributed "
    script = f"""
        if [ $PROCESS_ID = 1 ]; then touch failed; echo 'out of luck'; exit 3; fi
        {lost}service detected fatal errors'; exit 134
    """
    job = shell_job_of(KINDS["JAXJob"], "unlucky", {"Worker": (3, script)})
    answer = call("run", write_manifest(tmp_path, job))
    assert answer.code == 1, answer.all
    assert ": worker-1 failed first: exit code 3\n" in answer.out


def test_a_missing_module_names_the_python_of_the_pod(call: Call, embedded: UpCommand, tmp_path: Path) -> None:
    answer = call("run", write_manifest(tmp_path, shell_job("unequipped", "python -c 'import nonexistent'")))
    assert answer.code == 1, answer.all
    assert f"module nonexistent is not installed in {embedded.record.python}, the Python of this pod" in answer.out


def test_an_image_without_a_command_is_reported_with_the_fix(call: Call, tmp_path: Path) -> None:
    job = shell_job("commandless", "true")
    container = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    del container["command"]
    container["image"] = "example/train:1"
    answer = call("run", write_manifest(tmp_path, job))
    assert answer.code == 1, answer.all
    assert "commandless cannot start: master-0 is waiting: ImageHasNoCommand" in answer.out
    assert "command:" in answer.out
    assert "--replace" in answer.out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"kind": "PyTrochJob"},
            'no matches for kind "PyTrochJob" in version "kubeflow.org/v1": did you mean PyTorchJob (kubeflow.org/v1)?',
        ),
        (
            {"apiVersion": "v1"},
            'no matches for kind "PyTorchJob" in version "v1": the apiVersion of PyTorchJob is kubeflow.org/v1',
        ),
        ({"sepc": {}}, "unknown field `sepc`: did you mean `spec`?"),
        ({"metadata": {"name": "Wrong_Name"}}, "metadata.name"),
    ],
)
def test_an_invalid_manifest_is_refused_as_a_whole(
    call: Call, embedded: UpCommand, tmp_path: Path, change: dict[str, object], words: str
) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "never"}}
    answer = call("run", write_manifest(tmp_path, config, {**shell_job("wrong", "true"), **change}))
    assert answer.code == 1, answer.all
    assert answer.out == ""
    assert re.search(rf"{tmp_path}/job\.yaml:\d+(:\d+)?: ", answer.err)
    assert words in answer.err
    with SyncClient(embedded.config) as client, pytest.raises(NotFound):
        client.get(CONFIG_MAPS, "never")


def test_misspelled_fields_are_reported_also_in_the_template(call: Call, tmp_path: Path) -> None:
    job = shell_job("misspelled", "true", "true")
    job["spec"]["runPolicy"] = {"backofLimit": 3}
    container = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["comand"] = container.pop("command")
    answer = call("run", write_manifest(tmp_path, job))
    assert answer.code == 1, answer.all
    assert "unknown field `spec.runPolicy.backofLimit`: did you mean `backoffLimit`?" in answer.err
    path = "spec.pytorchReplicaSpecs[Worker].template.spec.containers[0].comand"
    assert f"unknown field `{path}`: did you mean `command`?" in answer.err


def test_a_job_without_containers_is_refused(call: Call, tmp_path: Path) -> None:
    job = shell_job("empty", "true")
    job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"] = []
    answer = call("run", write_manifest(tmp_path, job))
    assert answer.code == 1, answer.all
    assert "spec.pytorchReplicaSpecs[Master].template.spec.containers: Required value" in answer.err


def test_invalid_yaml_is_refused_with_its_place(call: Call, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("apiVersion: v1\nkind: [unclosed\n")
    answer = call("run", str(tmp_path / "job.yaml"))
    assert answer.code == 1, answer.all
    assert answer.err.startswith(f"Error: {tmp_path}/job.yaml:3:1: invalid YAML")


def test_a_namespace_that_does_not_exist_is_named(call: Call, tmp_path: Path) -> None:
    answer = call("run", "-n", "nowhere", write_manifest(tmp_path, shell_job("lost", "true")))
    assert answer.code == 1, answer.all
    assert 'namespace "nowhere" not found: create it with `kubectl create namespace nowhere`' in answer.err


def test_the_suggested_command_has_the_namespace_flag(call: Call, embedded: UpCommand, tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, shell_job("placed", "true"))
    answer = call("run", "--no-follow", "-n", "kube-public", manifest)
    assert answer.out.endswith(
        f"follow with: trainwright logs -f placed -n kube-public --data-dir {embedded.data.path}\n"
    )


def test_a_deprecation_warning_is_shown_once(call: Call, tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, shell_job("earlier", "true", backoffLimit=2))
    warning = "spec.backoffLimit is deprecated, use spec.runPolicy.backoffLimit instead"
    assert call("run", "--no-follow", manifest).out.count(warning) == 1
    assert call("run", manifest).out.count(warning) == 1


def test_a_manifest_may_contain_its_namespace(call: Call, tmp_path: Path) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own"}}
    job = shell_job("inside", "echo at home")
    job["metadata"]["namespace"] = "own"
    answer = call("run", write_manifest(tmp_path, job, space))
    assert answer.code == 0, answer.all
    assert "[master-0] at home" in answer.out


def test_a_running_job_is_followed_replaced_or_refused(call: Call, tmp_path: Path) -> None:
    first = shell_job("busy", "echo begun; sleep 600")
    manifest = write_manifest(tmp_path, first)
    started = call("run", "--no-follow", manifest)
    assert started.code == 0, started.all
    assert "follow with: trainwright logs -f busy --data-dir" in started.out

    assert call("wait", "busy", "--for=running").code == 0
    followed = call("run", "--timeout", "1s", manifest)
    assert followed.code == 124, followed.all
    assert "pytorchjob.kubeflow.org/busy is already running: following it" in followed.out
    assert "busy is still running" in followed.out

    other = copy.deepcopy(first)
    other["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["command"][2] = "echo instead"
    changed = write_manifest(tmp_path, other, name="other.yaml")
    refused = call("run", changed)
    assert refused.code == 1, refused.all
    assert "busy is running with a different spec: delete and recreate it with --replace" in refused.err

    assert call("stop", "busy").code == 0
    stopped = call("run", manifest)
    assert stopped.code == 1, stopped.all
    assert "busy is stopped: continue it with `trainwright resume busy --data-dir" in stopped.err
    assert "busy is stopped, with a different spec: continue it with" in call("run", changed).err

    replaced = call("run", "--replace", changed)
    assert replaced.code == 0, replaced.all
    assert "busy is stopped: replacing it" in replaced.out
    assert "[master-0] instead" in replaced.out


def test_one_refused_job_stops_all(call: Call, embedded: UpCommand, tmp_path: Path) -> None:
    call("run", "--no-follow", write_manifest(tmp_path, shell_job("way", "sleep 600")))
    answer = call("run", write_manifest(tmp_path, CLAIM, shell_job("first", "true"), shell_job("way", "sleep 1")))
    assert answer.code == 1, answer.all
    assert answer.out == ""
    assert "way is running with a different spec" in answer.err
    with SyncClient(embedded.config) as client:
        with pytest.raises(NotFound):
            client.get(PYTORCH.resource, "first", namespace="default")
        client.delete(PYTORCH.resource, "way", namespace="default")


def test_ctrl_c_leaves_the_job_running(call: Call, embedded: UpCommand, tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, shell_job("left", "echo begun; sleep 600"))
    words = command_line("run", "--data-dir", str(embedded.data.path), manifest)
    seen = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=dict(embedded.environment)) as process:
        assert process.stdout is not None
        last_resort = threading.Timer(
            60, process.kill
        )  # otherwise a process that ignores the signal would block the test
        last_resort.start()
        for line in process.stdout:
            seen.append(line)
            if "[master-0] begun" in line:
                process.send_signal(signal.SIGINT)
        last_resort.cancel()
    assert process.returncode == 130, "".join(seen)
    assert "left is still running\n" in seen
    with SyncClient(embedded.config) as client:
        assert client.get(PODS, "left-master-0", namespace="default")["status"]["phase"] == "Running"
        client.delete(PYTORCH.resource, "left", namespace="default")


def test_other_objects_are_applied(call: Call, embedded: UpCommand, tmp_path: Path) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "options"}, "data": {"a": "1", "b": "2"}}
    claim: Object = {**copy.deepcopy(CLAIM), "metadata": {"name": "grown"}}
    assert call("run", write_manifest(tmp_path, config, claim)).out.splitlines() == [
        "persistentvolumeclaim/grown created",
        "configmap/options created",
    ]
    assert "configmap/options unchanged" in call("run", write_manifest(tmp_path, config)).out
    config["data"] = {"a": "3"}
    claim["spec"]["resources"]["requests"]["storage"] = "9Mi"
    changed = call("run", write_manifest(tmp_path, config, claim)).out.splitlines()
    assert changed == [
        "persistentvolumeclaim/grown unchanged, although the manifest differs in spec.resources.requests.storage",
        "configmap/options configured",
    ]
    with SyncClient(embedded.config) as client:
        assert client.get(CONFIG_MAPS, "options", namespace="default")["data"] == {"a": "3"}


def test_several_jobs_are_followed_together(call: Call, tmp_path: Path) -> None:
    answer = call(
        "run", write_manifest(tmp_path, shell_job("one", "echo first"), shell_job("two", "echo second; exit 3"))
    )
    assert answer.code == 1, answer.all
    assert "[one/master-0] first" in answer.out
    assert "[two/master-0] second" in answer.out
    assert "one succeeded in " in answer.out
    assert "master-0 failed first: exit code 3" in answer.out


def test_a_job_runs_in_the_directory_of_its_manifest_with_the_given_python(call: Call, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    (tmp_path / "where.py").write_text("import sys; print('prefix', sys.prefix)")
    manifest = write_manifest(tmp_path, shell_job("elsewhere", "pwd; python where.py"))
    answer = call("run", "--python", str(tmp_path / "env/bin/python"), manifest)
    assert answer.code == 0, answer.all
    assert f"[master-0] {tmp_path}\n" in answer.out
    assert f"[master-0] prefix {tmp_path}/env\n" in answer.out


def test_a_manifest_may_come_from_standard_input(call: Call, tmp_path: Path) -> None:
    manifest = Path(write_manifest(tmp_path, shell_job("piped", "echo from a pipe")))
    answer = call("run", "-", stdin=manifest.read_text())
    assert answer.code == 0, answer.all
    assert "[master-0] from a pipe" in answer.out


def test_an_unknown_image_runs_and_one_line_says_what_is_used_instead(call: Call, tmp_path: Path) -> None:
    job = shell_job("foreign", "echo hello")
    container = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    container["image"] = "example/train:1"
    answer = call("run", write_manifest(tmp_path, job))
    assert answer.code == 0, answer.all
    assert answer.out.count("\nimage example/train:1 is not on this machine: the pod uses the machine's own files") == 1
    assert "Warning" not in answer.out
