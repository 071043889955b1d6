"""MPIJob: the files of mpirun, the objects of the launcher, both pods byte for byte, and what decides about the job."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.engine.planning import (
    child,
    conditions,
    created,
    decide,
    deleted,
    env,
    events,
    standing_events,
    states,
)
from tests.support.objects.jobs import NOW, JobBuilder, PodBuilder, stored, template
from trainwright.api.errors import InvalidJob
from trainwright.api.job import read_job, salvage_job
from trainwright.api.job_admission import review
from trainwright.api.kinds.mpi import MPI
from trainwright.engine import EMBEDDED, Observed, Plan, Settings, plan
from trainwright.engine.plan import PODS_WAVE
from trainwright.engine.settings import KubectlDelivery
from trainwright.objects import Object

EXTRAS = [
    ("ConfigMap", "digits-config"),
    ("ServiceAccount", "digits-launcher"),
    ("Role", "digits-launcher"),
    ("RoleBinding", "digits-launcher"),
]


def job(workers: int | None = 2, *, launcher: Object | None = None, policy: str | None = None) -> JobBuilder:
    builder = JobBuilder(kind=MPI).replica("Launcher", 1, pod=launcher, policy=policy)
    return builder if workers is None else builder.workers(workers, policy=policy)


def launcher() -> PodBuilder:
    return PodBuilder("Launcher", kind=MPI)


def worker(index: int = 0) -> PodBuilder:
    return PodBuilder("Worker", index, kind=MPI)


def config(made: Plan) -> Object:
    data: Object = child(made, "digits-config", "ConfigMap")["data"]
    return data


def extras_of(made: Plan) -> list[Object]:
    return [stored(one.render(), f"{one.name}-{one.resource.kind}") for one in made.creates if one.wave < PODS_WAVE]


def counts(made: Plan) -> Object:
    assert made.status is not None
    found: Object = made.status["replicaStatuses"]
    return found


def test_objects_of_the_launcher_come_before_the_pods() -> None:
    made = decide(job())
    assert [(one.resource.kind, one.name) for one in made.creates if one.wave < PODS_WAVE] == EXTRAS
    assert created(made) == ["digits-launcher", "digits-worker-0", "digits-worker-1"]
    assert created(made, "Service") == []


def test_the_launcher_is_created_when_its_workers_have_been() -> None:
    waves = {one.name: one.wave for one in decide(job()).creates if one.resource.kind == "Pod"}
    assert waves["digits-launcher"] > waves["digits-worker-0"] == waves["digits-worker-1"]


def test_no_launcher_starts_processes_in_a_pod_of_another_owner() -> None:
    own = template(name="main")
    own["spec"]["restartPolicy"] = "Always"
    made = decide(job(launcher=own), worker(0).owner("another"))
    assert created(made) == ["digits-worker-1"]
    assert made.events == (), "a launcher that is not created has no warnings"
    other = worker(0).owner("another").metadata(name="digits-debugger")
    assert created(decide(job(), other)) == ["digits-launcher", "digits-worker-0", "digits-worker-1"]


def test_files_of_mpirun() -> None:
    assert config(decide(job().spec(slotsPerWorker=4))) == {
        "hostfile": "digits-worker-0 slots=4\ndigits-worker-1 slots=4\n",
        "kubexec.sh": '#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n/opt/kube/kubectl exec ${POD_NAME} -- /bin/sh -c "$*"',
        "discover_hosts.sh": "#!/bin/sh\necho digits-worker-0:4\necho digits-worker-1:4",
    }


def test_main_container_is_the_one_that_kubexec_enters() -> None:
    builder = job().spec(mainContainer="main")
    assert "/opt/kube/kubectl exec ${POD_NAME} --container main -- " in config(decide(builder))["kubexec.sh"]


@pytest.mark.parametrize(
    ("resource", "is_gpu"), [("nvidia.com/gpu", True), ("vendor-domain/gpu", True), ("vendor.com/tpu", False)]
)
def test_a_launcher_with_gpus_is_a_host_too(resource: str, is_gpu: bool) -> None:
    made = decide(job(launcher=template(name="main", resources={"limits": {resource: 1}})))
    assert config(made)["hostfile"].startswith("digits-launcher slots=1\n") is is_gpu
    assert config(made)["discover_hosts.sh"].startswith("#!/bin/sh\necho digits-launcher:1\n\necho ") is is_gpu
    names = dict(env(child(made, "digits-launcher")))
    assert ("NVIDIA_VISIBLE_DEVICES" not in names) is is_gpu


def test_role_allows_exec_in_the_workers_alone() -> None:
    assert child(decide(job()), "digits-launcher", "Role")["rules"] == [
        {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]},
        {
            "verbs": ["create"],
            "apiGroups": [""],
            "resources": ["pods/exec"],
            "resourceNames": ["digits-worker-0", "digits-worker-1"],
        },
    ]
    binding = child(decide(job()), "digits-launcher", "RoleBinding")
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "digits-launcher"}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "digits-launcher", "namespace": "team"}]
    assert binding["metadata"]["labels"]["app"] == "digits"


@pytest.mark.parametrize("workers", [None, 0])
def test_without_workers_the_role_allows_no_exec(workers: int | None) -> None:
    made = decide(job(workers))
    assert len(child(made, "digits-launcher", "Role")["rules"]) == 1
    assert created(made) == ["digits-launcher"]


def test_launcher_pod() -> None:
    pod = child(
        decide(job(), settings=Settings(kubectl_delivery=KubectlDelivery(image="example/kubectl:1"))), "digits-launcher"
    )
    assert pod["metadata"]["labels"] == {
        "group-name": "kubeflow.org",
        "job-name": "digits",
        "replica-type": "launcher",
        "job-role": "master",
        "controller-name": "mpi-operator",
        "mpi-job-name": "digits",
        "mpi-replica-type": "launcher",
        "mpi-job-role": "launcher",
        "training.kubeflow.org/operator-name": "mpijob-controller",
        "training.kubeflow.org/job-name": "digits",
        "training.kubeflow.org/replica-type": "launcher",
        "training.kubeflow.org/job-role": "master",
    }
    spec = pod["spec"]
    assert spec["serviceAccountName"] == "digits-launcher"
    (main,) = spec["containers"]
    assert main["volumeMounts"] == [
        {"name": "mpi-job-kubectl", "mountPath": "/opt/kube"},
        {"name": "mpi-job-config", "mountPath": "/etc/mpi"},
    ]
    items = [
        {"key": "kubexec.sh", "path": "kubexec.sh", "mode": 0o555},
        {"key": "hostfile", "path": "hostfile", "mode": 0o444},
        {"key": "discover_hosts.sh", "path": "discover_hosts.sh", "mode": 0o555},
    ]
    assert spec["volumes"] == [
        {"name": "mpi-job-kubectl", "emptyDir": {}},
        {"name": "mpi-job-config", "configMap": {"name": "digits-config", "items": items}},
    ]
    assert env(pod) == [
        ("OMPI_MCA_plm_rsh_agent", "/etc/mpi/kubexec.sh"),
        ("OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"),
        ("NVIDIA_VISIBLE_DEVICES", ""),
        ("NVIDIA_DRIVER_CAPABILITIES", ""),
        ("I_MPI_HYDRA_BOOTSTRAP", "rsh"),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC", "/etc/mpi/kubexec.sh"),
        ("PRTE_MCA_plm_ssh_agent", "/etc/mpi/kubexec.sh"),
        ("PRTE_MCA_prte_default_hostfile", "/etc/mpi/hostfile"),
    ]
    (delivery,) = spec["initContainers"]
    assert (delivery["name"], delivery["image"], delivery["imagePullPolicy"]) == (
        "kubectl-delivery",
        "example/kubectl:1",
        "IfNotPresent",
    )
    assert delivery["env"] == [{"name": "TARGET_DIR", "value": "/opt/kube"}, {"name": "NAMESPACE", "value": "team"}]
    assert delivery["resources"]["limits"] == {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}


def test_on_one_machine_the_delivery_has_no_limits() -> None:
    (delivery,) = child(decide(job(), settings=EMBEDDED), "digits-launcher")["spec"]["initContainers"]
    assert delivery["image"] == "trainwright/kubectl-delivery"
    assert "resources" not in delivery


@pytest.fixture
def deliver(tmp_path: Path) -> Callable[..., list[str]]:
    """Runs the script of the init container with a kubectl that `answers`, and returns what it prints."""

    def run(workers: int, answers: str) -> list[str]:
        made = decide(job(workers))
        (delivery,) = child(made, "digits-launcher")["spec"]["initContainers"]
        hostfile, program = tmp_path / "hostfile", tmp_path / "kubectl"
        hostfile.write_text(config(made)["hostfile"])
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"kubectl $*\" >> {tmp_path}/calls\n{answers}\n")
        program.chmod(0o755)
        (tmp_path / "opt").mkdir()
        script = delivery["command"][-1].replace("/etc/mpi", str(tmp_path)).replace("/opt/kube", f"{tmp_path}/opt")
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "NAMESPACE": "team"}
        script = f"now=0; date() {{ echo $now; }}; sleep() {{ now=$((now + 200)); }}\n{script}"
        done = subprocess.run(["/bin/sh", "-c", script], env=env, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout.splitlines()

    return run


def calls(directory: Path) -> list[str]:
    return (directory / "calls").read_text().splitlines()


def test_launcher_waits_for_few_workers_with_one_command(deliver: Callable[..., list[str]], tmp_path: Path) -> None:
    assert deliver(2, "exit 0") == []
    assert calls(tmp_path) == [
        "kubectl wait --for=condition=Ready --timeout=10s -n team pod/digits-worker-0 pod/digits-worker-1"
    ]


def test_launcher_with_many_workers_asks_which_are_not_ready(deliver: Callable[..., list[str]], tmp_path: Path) -> None:
    """kubectl sends five requests a second, and `wait` one for each pod."""
    ready = "".join(f"digits-worker-{index} {index < 28}\\n" for index in range(30))
    assert deliver(30, f'[ "$1" != get ] || printf "{ready}"') == []
    first, get, last = calls(tmp_path)
    assert first.endswith(" -n team " + " ".join(f"pod/digits-worker-{index}" for index in range(5)))
    assert get.startswith(
        "kubectl get pods -n team -l training.kubeflow.org/job-name=digits,"
        "training.kubeflow.org/operator-name=mpijob-controller,training.kubeflow.org/replica-type=worker -o jsonpath="
    )
    assert last.endswith(" -n team pod/digits-worker-28 pod/digits-worker-29")


def test_launcher_says_why_it_waits_and_starts_after_ten_minutes(deliver: Callable[..., list[str]]) -> None:
    assert deliver(2, "echo timed out >&2; exit 1") == [
        *["waiting for workers: timed out"] * 3,
        "starting after 600 seconds although not all workers are ready: digits-worker-0 digits-worker-1",
    ]


def test_launcher_without_workers_waits_for_nothing(deliver: Callable[..., list[str]], tmp_path: Path) -> None:
    assert deliver(0, "exit 1") == []
    assert not (tmp_path / "calls").exists()


def test_variables_of_the_user_win_where_upstream_lets_them() -> None:
    own = [{"name": name, "value": "own"} for name in ("I_MPI_HYDRA_BOOTSTRAP", "PRTE_MCA_plm_ssh_agent")]
    variables = env(child(decide(job(launcher=template(name="main", env=own))), "digits-launcher"))
    assert [value for name, value in variables if name == "I_MPI_HYDRA_BOOTSTRAP"] == ["own"]
    assert [value for name, value in variables if name == "PRTE_MCA_plm_ssh_agent"] == ["own"]
    assert dict(variables)["I_MPI_HYDRA_BOOTSTRAP_EXEC"] == "/etc/mpi/kubexec.sh"


@pytest.mark.parametrize(("workers", "direct"), [(64, False), (65, True)])
def test_mpirun_starts_many_workers_itself(workers: int, direct: bool) -> None:
    variables = dict(env(child(decide(job(workers)), "digits-launcher")))
    assert (variables.get("OMPI_MCA_plm_rsh_no_tree_spawn") == "1") is direct
    assert (variables.get("PRTE_MCA_plm_ssh_no_tree_spawn") == "1") is direct


def test_worker_pod_sleeps_unless_it_has_a_command() -> None:
    builder = job().workers(1, pod=template(name="main", args=["--lost"]))
    pod = child(decide(builder), "digits-worker-0")
    (main,) = pod["spec"]["containers"]
    assert (main["command"], main["args"]) == (["sleep"], ["365d"])
    assert main["volumeMounts"] == [{"name": "mpi-job-config", "mountPath": "/etc/mpi"}]
    (volume,) = pod["spec"]["volumes"]
    assert volume["configMap"]["items"] == [{"key": "kubexec.sh", "path": "kubexec.sh", "mode": 0o555}]
    assert pod["metadata"]["labels"]["mpi-job-role"] == "worker"
    assert pod["metadata"]["labels"]["training.kubeflow.org/replica-index"] == "0"
    builder.workers(1, pod=template(name="main", command=["sshd"], args=["-D"]))
    (main,) = child(decide(builder), "digits-worker-0")["spec"]["containers"]
    assert (main["command"], main["args"]) == (["sshd"], ["-D"])


def test_service_account_of_the_template_is_used() -> None:
    own = template(name="main")
    own["spec"]["serviceAccountName"] = "robot"
    made = decide(job(launcher=own))
    assert child(made, "digits-launcher")["spec"]["serviceAccountName"] == "robot"
    assert child(made, "digits-launcher", "RoleBinding")["subjects"][0]["name"] == "robot"
    (account,) = [one for one in made.creates if one.resource.kind == "ServiceAccount"]
    assert (account.name, account.shared) == ("robot", True)
    foreign = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": "team"}}
    made = decide(job(launcher=own), extras=[stored(foreign, "robot-uid")])
    assert created(made, "ServiceAccount") == []
    assert standing_events(made) == []


def test_a_foreign_config_map_stops_the_job() -> None:
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "digits-config", "namespace": "team"}}
    made = decide(job(), extras=[stored(foreign, "other")])
    assert created(made) == []
    ((reason, message),) = standing_events(made)
    assert reason == "ErrResourceExists"
    assert message.startswith('Resource "digits-config" of Kind "ConfigMap" already exists and is not managed by ')


def running_job(workers: int) -> tuple[JobBuilder, list[Object]]:
    first = decide(job(workers))
    return job(workers).status(first.status), extras_of(first)


def test_discover_hosts_follows_the_running_workers_in_order_of_their_index() -> None:
    builder, extras = running_job(11)
    pods = [worker(index).running() for index in (10, 2)]
    made = decide(builder, launcher().running(), *pods, extras=extras)
    (update,) = made.replaces
    assert update.body["data"]["discover_hosts.sh"] == "#!/bin/sh\necho digits-worker-2:1\necho digits-worker-10:1"


def test_numbers_of_pods_are_written_with_a_change_of_discover_hosts() -> None:
    builder, extras = running_job(2)
    running = decide(builder, launcher().running(), worker(0).running(), worker(1).running(), extras=extras)
    made = decide(builder.status(running.status), launcher().running(), worker(0).running(), worker(1), extras=extras)
    assert counts(made)["Worker"] == {"active": 1}
    assert made.replaces
    assert not made.only_counts


def test_discover_hosts_names_the_workers_for_which_the_launcher_waits() -> None:
    """They run when it starts, so it is not written again."""
    builder, extras = running_job(2)
    for pods in (
        [launcher(), worker(0).running(), worker(1)],
        [launcher(), worker(0).running(), worker(1).running()],
        [launcher().running(), worker(0).running(), worker(1).running()],
    ):
        assert decide(builder, *pods, extras=extras).replaces == ()
    made = decide(builder, launcher().running(), worker(0), worker(1).running(), extras=extras)
    assert made.replaces[0].body["data"]["discover_hosts.sh"] == "#!/bin/sh\necho digits-worker-1:1"


@pytest.mark.parametrize("workers", [0, 1, 12])
def test_scaling_changes_hostfile_role_and_pods(workers: int) -> None:
    builder, extras = running_job(2)
    builder.workers(workers)
    made = decide(builder, launcher().running(), worker(0).running(), worker(1).running(), extras=extras)
    names = [f"digits-worker-{index}" for index in range(workers)]
    assert deleted(made) == ["digits-worker-0", "digits-worker-1"][workers:]
    assert created(made) == names[2:]
    config, role = made.replaces
    assert config.body["data"]["hostfile"] == "".join(f"{name} slots=1\n" for name in names)
    _, *exec_rules = role.body["rules"]
    assert [rule["resourceNames"] for rule in exec_rules] == ([names] if names else [])


def test_the_launcher_decides() -> None:
    builder, extras = running_job(1)
    made = decide(builder, launcher(), worker().running(), extras=extras)
    assert counts(made) == {"Launcher": {}, "Worker": {"active": 1}}
    made = decide(builder, launcher().running(), worker().running(), extras=extras)
    assert conditions(made)[-1] == ("Running", "True", "MPIJobRunning", "MPIJob digits is running.")
    made = decide(builder, launcher().succeeded(), worker().running(), extras=extras)
    assert conditions(made)[-1] == (
        "Succeeded",
        "True",
        "MPIJobSucceeded",
        "MPIJob digits is successfully completed.",
    )
    assert counts(made) == {"Launcher": {"succeeded": 1}, "Worker": {}}


@pytest.mark.parametrize("code", [0, 1])
def test_the_exit_code_of_a_launcher_is_recorded_if_it_failed(code: int) -> None:
    builder, extras = running_job(1)
    made = decide(builder, launcher().failed(code) if code else launcher().succeeded(), extras=extras)
    reasons = [reason for _, reason, _ in events(made)]
    assert reasons == (["ExitedWithCode", "MPIJobFailed"] if code else ["MPIJobSucceeded"])


@pytest.mark.parametrize("role", ["Launcher", "Worker"])
def test_a_failed_pod_fails_the_job_with_one_prefix_in_the_reason(role: str) -> None:
    builder, extras = running_job(1)
    other = "Worker" if role == "Launcher" else "Launcher"
    made = decide(builder, PodBuilder(role, kind=MPI).failed(), PodBuilder(other, kind=MPI).running(), extras=extras)
    message = f"MPIJob digits is failed because 1 {role} replica(s) failed."
    assert conditions(made)[-1] == ("Failed", "True", "MPIJobFailed", message)


@pytest.mark.parametrize("policy", ["OnFailure", "Always", "ExitCode"])
def test_restart_policies_replace_failed_pods(policy: str) -> None:
    builder = job(1, policy=policy).run_policy(backoffLimit=2)
    extras = extras_of(decide(builder))
    made = decide(builder, launcher().running(), worker().failed(137), extras=extras)
    assert states(made)[-1] == ("Restarting", "True")
    assert deleted(made) == ["digits-worker-0"]
    made = decide(builder, launcher().failed(137), worker().running(), extras=extras)
    assert deleted(made) == ["digits-launcher"]
    again = launcher().failed(137).metadata(uid="new")
    made = decide(builder.status(made.status), again, worker().running(), extras=extras)
    assert conditions(made)[-1][2:] == (
        "MPIJobFailed",
        "Job digits has failed because it has reached the specified backoff limit",
    )


@pytest.mark.parametrize("policy", ["OnFailure", "Always", "ExitCode"])
def test_evicted_workers_are_replaced_and_not_counted(policy: str) -> None:
    builder = job(1, policy=policy).run_policy(backoffLimit=1)
    evicted = worker().failed(None).reason("Evicted")
    made = decide(builder, launcher().running(), evicted, extras=extras_of(decide(builder)))
    assert deleted(made) == ["digits-worker-0"]
    assert states(made)[-1] == ("Restarting", "True")
    assert made.status is not None
    assert "restarts" not in made.status


def test_evicted_workers_are_named() -> None:
    builder, extras = running_job(2)
    made = decide(
        builder, launcher().running(), worker().failed(None).reason("Evicted"), worker(1).running(), extras=extras
    )
    assert conditions(made)[-1] == ("Failed", "True", "MPIJobEvicted", "1/2 workers are evicted")
    assert ("Normal", "MPIJobEvicted", "1/2 workers are evicted") in events(made)


def test_a_worker_that_takes_the_launcher_down_is_named() -> None:
    builder, extras = running_job(2)
    evicted = worker().failed(None).reason("Evicted")
    made = decide(builder, launcher().failed(), evicted, worker(1).running(), extras=extras)
    assert conditions(made)[-1] == ("Failed", "True", "MPIJobEvicted", "1/2 workers are evicted")


@pytest.mark.parametrize("policy", ["All", "Running", "None"])
@pytest.mark.parametrize("place", ["spec", "runPolicy"])
def test_clean_pod_policy_in_both_places(place: str, policy: str) -> None:
    builder, extras = running_job(1)
    builder = builder.spec(cleanPodPolicy=policy) if place == "spec" else builder.run_policy(cleanPodPolicy=policy)
    assert review(MPI, builder.raw()).warnings == ()
    made = decide(builder, launcher().succeeded(), worker().running(), extras=extras)
    expected = {"All": ["digits-launcher", "digits-worker-0"], "Running": ["digits-worker-0"], "None": []}
    assert deleted(made) == expected[policy]


def test_two_different_clean_pod_policies_are_reported() -> None:
    builder = job().spec(cleanPodPolicy="All").run_policy(cleanPodPolicy="None")
    assert review(MPI, builder.raw()).warnings == (
        "spec.cleanPodPolicy has no effect beside spec.runPolicy.cleanPodPolicy, remove one of them",
    )
    assert builder.job().run_policy.clean_pod_policy == "None"


def test_a_launcher_may_leave_out_its_number() -> None:
    builder = JobBuilder(kind=MPI).replica("Launcher", None).workers(1)
    assert review(MPI, builder.raw()).message == ""
    assert created(decide(builder)) == ["digits-launcher", "digits-worker-0"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slotsPerWorker": 0}, "spec.slotsPerWorker: Invalid value: 0: must be greater than or equal to 1"),
        (
            {"mainContainer": "other"},
            'spec.mainContainer: Invalid value: "other": must be a container of Worker: main',
        ),
    ],
)
def test_invalid_fields_are_rejected_by_name(change: Object, message: str) -> None:
    assert review(MPI, job().spec(**change).raw()).message == message


def test_an_invalid_job_fails_once_with_the_field() -> None:
    raw = job().spec(mainContainer="other").raw()
    with pytest.raises(InvalidJob) as invalid:
        read_job(raw)
    made = plan(salvage_job(raw, MPI, invalid.value), Observed(), Settings(), NOW)
    message = (
        'MPIJob failed validation because spec.mainContainer: Invalid value: "other": '
        "must be a container of Worker: main"
    )
    assert conditions(made)[-1] == ("Failed", "True", "MPIJobFailedValidation", message)
    assert events(made) == [("Warning", "MPIJobFailedValidation", message)]
    assert made.creates == ()
    again = salvage_job({**raw, "status": made.status}, MPI, invalid.value)
    assert plan(again, Observed(), Settings(), NOW).empty


def test_a_job_without_launcher_is_rejected() -> None:
    answer = review(MPI, JobBuilder(kind=MPI).workers(1).raw())
    assert answer.message == "spec.mpiReplicaSpecs[Launcher]: Required value: must be present"


def test_two_launchers_are_rejected() -> None:
    answer = review(MPI, JobBuilder(kind=MPI).replica("Launcher", 2).workers(1).raw())
    assert answer.message == "spec.mpiReplicaSpecs[Launcher].replicas: Forbidden: must be 1"
