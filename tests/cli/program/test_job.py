"""The job that is made of a program: its kind, roles, command, environment and volumes."""

from pathlib import Path
from typing import Any

import pytest

from trainwright.api.annotations import RESTART_SCOPE
from trainwright.api.job import read_job
from trainwright.cli.errors import CommandError
from trainwright.cli.program.job import FRAMEWORKS, JobRequest, Mount, job_name, make_job
from trainwright.cli.program.source import Program
from trainwright.objects import Object

PROGRAM = Program("train.py", Path("/here"), Path("/here/train.py"))
MODULE = Program("package.train", Path("/here"), None, is_module=True)


def job(**fields: Any) -> Object:
    defaults = {"program": PROGRAM, "framework": "pytorch", "name": "train", "image": "i", "script": "train.py"}
    made = make_job(JobRequest(**{**defaults, **fields}))
    read_job({**made, "metadata": {**made["metadata"], "namespace": "default"}})  # raises if it is not valid
    return made


def container(made: Object, role: str = "Master") -> Object:
    field = next(name for name in made["spec"] if name.endswith("ReplicaSpecs"))
    [found] = made["spec"][field][role]["template"]["spec"]["containers"]
    return dict(found)


def counts(made: Object) -> dict[str, int]:
    field = next(name for name in made["spec"] if name.endswith("ReplicaSpecs"))
    return {role: replica["replicas"] for role, replica in made["spec"][field].items()}


@pytest.mark.parametrize(
    ("framework", "alone", "three"),
    [
        ("pytorch", {"Master": 1}, {"Master": 1, "Worker": 2}),
        ("xgboost", {"Master": 1}, {"Master": 1, "Worker": 2}),
        ("tensorflow", {"Worker": 1}, {"Worker": 3}),
        ("jax", {"Worker": 1}, {"Worker": 3}),
        ("paddle", {"Worker": 1}, {"Worker": 3}),
        ("mpi", {"Launcher": 1, "Worker": 1}, {"Launcher": 1, "Worker": 3}),
    ],
)
def test_every_framework_gets_one_pod_per_worker(framework: str, alone: dict[str, int], three: dict[str, int]) -> None:
    assert counts(job(framework=framework)) == alone
    made = job(framework=framework, workers=3)
    assert counts(made) == three
    assert made["kind"] == FRAMEWORKS[framework].name
    assert made["metadata"]["annotations"] == {RESTART_SCOPE: "group"}


def test_one_process_is_started_as_a_user_would_start_it() -> None:
    program = Program("train.py", Path("/here"), Path("/here/train.py"), arguments=("--epochs", "3"))
    made = container(job(program=program, python="python3.12", workdir="/here"))
    assert made["command"] == ["python3.12", "train.py"]
    assert made["args"] == ["--epochs", "3"]
    assert made["workingDir"] == "/here"
    assert made["env"] == [{"name": "LOCAL_RANK", "value": "0"}, {"name": "LOCAL_WORLD_SIZE", "value": "1"}]


def test_every_pod_of_a_group_knows_its_node_rank_as_lightning_reads_it() -> None:
    made = job(workers=3)
    assert container(made, "Worker")["command"] == ["env", "NODE_RANK=$(RANK)", "python3", "train.py"]
    assert "env" not in container(job(starts_processes=True))
    assert container(job(nproc="2", workers=2))["command"][0] == "python3"


def test_arguments_reach_the_program_as_they_are() -> None:
    program = Program("train.py", Path("/here"), Path("/here/train.py"), arguments=("$(RANK)", "$HOME", "a$$b"))
    assert container(job(program=program))["args"] == ["$$(RANK)", "$HOME", "a$$$$b"]


def test_several_processes_per_pod_are_started_by_torchrun() -> None:
    made = job(nproc="4", workers=2)
    assert made["spec"]["nprocPerNode"] == "4"
    assert container(made, "Worker")["command"] == ["python3", "-m", "torch.distributed.run", "train.py"]
    assert "env" not in container(made)
    module = container(job(nproc="auto", program=MODULE, script="package.train"))
    assert module["command"] == ["python3", "-m", "torch.distributed.run", "-m", "package.train"]
    assert "nprocPerNode" not in job(nproc="1")["spec"]
    with pytest.raises(CommandError, match="--nproc starts torchrun in the pods, which a JAXJob cannot use"):
        job(nproc="2", framework="jax")


@pytest.mark.parametrize(("restarts", "limit"), [(0, 0), (1, 2), (3, 4)])
def test_the_limit_allows_that_many_restarts(restarts: int, limit: int) -> None:
    assert job(max_restarts=restarts)["spec"]["runPolicy"]["backoffLimit"] == limit


def test_tensorflow_waits_for_all_workers_and_paddle_has_its_launcher() -> None:
    assert job(framework="tensorflow", workers=2)["spec"]["successPolicy"] == "AllWorkers"
    assert "successPolicy" not in job(framework="tensorflow")["spec"]
    assert "paddle.distributed.launch" in container(job(framework="paddle", workers=2), "Worker")["command"]
    assert container(job(framework="paddle"), "Worker")["command"] == ["python3", "train.py"]


def test_mpirun_starts_the_program_in_workers_that_end_with_the_job() -> None:
    program = Program("train.py", Path("/here"), Path("/here/train.py"), arguments=("--epochs", "3"))
    made = job(framework="mpi", program=program, workers=3, nproc="2", gpus=1, mounts=(Mount("/data", "/data"),))
    launcher, worker = container(made, "Launcher"), container(made, "Worker")
    assert launcher["command"] == ["mpirun", "-n", "6", "python3", "train.py"]
    assert launcher["args"] == ["--epochs", "3"]
    assert {"name": "OMPI_ALLOW_RUN_AS_ROOT", "value": "1"} in launcher["env"]
    mpi4py = container(job(framework="mpi", uses_mpi4py=True), "Launcher")["command"]
    assert mpi4py == ["mpirun", "-n", "1", "python3", "-m", "mpi4py", "train.py"]
    assert "command" not in worker
    assert ("resources" in launcher, worker["resources"]) == (False, {"limits": {"nvidia.com/gpu": 1}})
    assert launcher["volumeMounts"] == worker["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]
    assert made["spec"]["slotsPerWorker"] == 2
    assert made["spec"]["runPolicy"]["cleanPodPolicy"] == "Running"
    assert job(framework="mpi")["spec"]["slotsPerWorker"] == 1
    with pytest.raises(CommandError, match="--nproc auto is for torchrun: write the number of processes"):
        job(framework="mpi", nproc="auto")


def test_gpus_are_limits_of_every_pod() -> None:
    made = job(gpus=2, workers=2)
    for role in ("Master", "Worker"):
        assert container(made, role)["resources"] == {"limits": {"nvidia.com/gpu": 2}}


def test_mounts_are_volumes_with_names_of_their_own() -> None:
    mounts = (Mount("/data", "/in/data"), Mount("/other", "/out/data", read_only=True), Mount("c", "/c", is_claim=True))
    pod = job(mounts=mounts)["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    assert pod["volumes"] == [
        {"name": "data", "hostPath": {"path": "/data"}},
        {"name": "data-2", "hostPath": {"path": "/other"}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "c"}},
    ]
    assert pod["containers"][0]["volumeMounts"] == [
        {"name": "data", "mountPath": "/in/data"},
        {"name": "data-2", "mountPath": "/out/data", "readOnly": True},
        {"name": "c", "mountPath": "/c"},
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("train.py", "train"),
        ("../a/Train_MNIST.py", "train-mnist"),
        ("01-train.py", "job-01-train"),
        ("__.py", "job"),
        (f"{'long_' * 20}.py", "long-long-long-long-long-long-long-long"),
    ],
)
def test_the_name_of_the_job_is_valid_for_kubernetes(name: str, expected: str) -> None:
    program = Program(name, Path("/here"), Path("/here", name))
    assert job_name(program) == expected
    job(name=job_name(program), workers=2)


def test_a_module_names_the_job_too() -> None:
    assert job_name(MODULE) == "package-train"


@pytest.mark.parametrize("framework", ["pytorch", "mpi"])
def test_all_pods_get_the_network_of_their_node_on_request(framework: str) -> None:
    made = job(framework=framework, workers=2, host_network=True)
    field = next(name for name in made["spec"] if name.endswith("ReplicaSpecs"))
    for replica in made["spec"][field].values():
        spec = replica["template"]["spec"]
        assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert "hostNetwork" not in str(job(framework=framework, workers=2))
