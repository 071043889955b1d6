"""XGBoostJob, PaddleJob and JAXJob: their environments byte for byte, and the roles that decide about them."""

import pytest

from tests.support.engine.planning import child, conditions, created, decide, env, manifests, states
from tests.support.objects.jobs import JobBuilder, PodBuilder, template
from trainwright.api.job_admission import review
from trainwright.api.kinds import Kind
from trainwright.api.kinds.jax import JAX
from trainwright.api.kinds.paddle import PADDLE
from trainwright.api.kinds.xgboost import XGBOOST
from trainwright.objects import Object


def job(kind: Kind, **roles: int) -> JobBuilder:
    builder = JobBuilder(kind=kind)
    for role, count in roles.items():
        builder.replica(role, count)
    return builder


def masters(builder: JobBuilder) -> list[str]:
    pods = [one for one in manifests(decide(builder)) if one["kind"] == "Pod"]
    return [one["metadata"]["name"] for one in pods if "training.kubeflow.org/job-role" in one["metadata"]["labels"]]


def with_port(container: str, name: str, number: int) -> Object:
    return template(name=container, ports=[{"name": name, "containerPort": number}])


def test_environment_of_an_xgboost_worker() -> None:
    builder = job(XGBOOST, Master=1, Worker=2)
    assert env(child(decide(builder), "digits-worker-1")) == [
        ("MASTER_PORT", "9999"),
        ("MASTER_ADDR", "digits-master-0"),
        ("WORLD_SIZE", "3"),
        ("RANK", "2"),
        ("PYTHONUNBUFFERED", "1"),
        ("WORKER_PORT", "9999"),
        ("WORKER_ADDRS", "digits-worker-0,digits-worker-1"),
    ]
    assert dict(env(child(decide(builder), "digits-master-0")))["RANK"] == "0"
    assert masters(builder) == ["digits-master-0"]


@pytest.mark.parametrize("roles", [{"Master": 1}, {"Master": 1, "Worker": 0}])
def test_an_xgboost_master_alone_has_no_variables_of_workers(roles: dict[str, int]) -> None:
    assert env(child(decide(job(XGBOOST, **roles)), "digits-master-0")) == [
        ("MASTER_PORT", "9999"),
        ("MASTER_ADDR", "digits-master-0"),
        ("WORLD_SIZE", "1"),
        ("RANK", "0"),
        ("PYTHONUNBUFFERED", "1"),
    ]


def test_xgboost_ports_are_those_of_master_and_workers() -> None:
    builder = JobBuilder(kind=XGBOOST).replica("Master", 1, pod=with_port("xgboost", "xgboostjob-port", 1111))
    builder.replica("Worker", 1, pod=with_port("xgboost", "xgboostjob-port", 2222))
    found = dict(env(child(decide(builder), "digits-worker-0")))
    assert (found["MASTER_PORT"], found["WORKER_PORT"]) == ("1111", "2222")


def test_an_xgboost_pod_that_its_policy_restarts_does_not_fail_the_job() -> None:
    builder = JobBuilder(kind=XGBOOST).replica("Master", 1).replica("Worker", 1, policy="OnFailure")
    made = decide(builder, PodBuilder("Master", kind=XGBOOST).running(), PodBuilder("Worker", kind=XGBOOST).failed())
    assert states(made)[-1] == ("Restarting", "True")


@pytest.mark.parametrize("role", ["Master", "Worker"])
def test_an_xgboost_job_that_restarts_says_how_many_pods_failed(role: str) -> None:
    builder = JobBuilder(kind=XGBOOST).replica("Master", 1, policy="ExitCode").replica("Worker", 1, policy="ExitCode")
    other = "Worker" if role == "Master" else "Master"
    made = decide(builder, PodBuilder(role, kind=XGBOOST).failed(137), PodBuilder(other, kind=XGBOOST).running())
    message = f"XGBoostJob digits is restarting because 1 {role} replica(s) failed."
    assert conditions(made)[-1] == ("Restarting", "True", "XGBoostJobRestarting", message)


def test_an_xgboost_job_without_a_master_is_rejected() -> None:
    answer = review(XGBOOST, job(XGBOOST, Worker=1).raw())
    assert answer.message == "spec.xgbReplicaSpecs[Master]: Required value: must be present"


def test_more_workers_than_worker_addrs_can_name_are_rejected() -> None:
    answer = review(XGBOOST, job(XGBOOST, Master=1, Worker=9000).raw())
    assert answer.message == (
        "spec.xgbReplicaSpecs[Worker].replicas: Forbidden: too many replicas: WORKER_ADDRS of each pod names all of "
        "them and would have up to 169903 bytes, and an environment string holds at most 131071; use fewer replicas"
    )


def test_environment_of_a_paddle_job_without_master() -> None:
    builder = job(PADDLE, Worker=2)
    first = child(decide(builder), "digits-worker-0")["spec"]["containers"][0]["env"]
    assert first == [
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        {"name": "PADDLE_JOB_ID", "value": "digits"},
        {"name": "PADDLE_NNODES", "value": "2"},
        {"name": "POD_IP_DUMMY", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "PADDLE_MASTER", "value": "$(POD_IP_DUMMY):36543"},
    ]
    assert env(child(decide(builder), "digits-worker-1"))[3:] == [("PADDLE_MASTER", "digits-worker-0:36543")]
    assert masters(builder) == []


def test_environment_of_a_paddle_job_with_parameter_servers() -> None:
    builder = job(PADDLE, Master=2, Worker=1)
    first = child(decide(builder), "digits-master-0")["spec"]["containers"][0]["env"]
    assert first[4:] == [
        {"name": "PADDLE_MASTER", "value": "$(POD_IP_DUMMY):36543"},
        {"name": "PADDLE_SERVER_NUM", "value": "1"},
    ]
    at_master = ("PADDLE_MASTER", "digits-master-0:36543")
    assert env(child(decide(builder), "digits-master-1"))[3:] == [at_master, ("PADDLE_SERVER_NUM", "1")]
    assert env(child(decide(builder), "digits-worker-0"))[3:] == [at_master, ("PADDLE_TRAINER_NUM", "1")]
    assert masters(builder) == ["digits-master-0", "digits-master-1"]


def test_the_manifest_that_ends_upstreams_process_runs() -> None:
    builder = job(PADDLE, Master=1).spec(elasticPolicy={})
    assert created(decide(builder)) == ["digits-master-0"]
    answer = review(PADDLE, builder.raw())
    warning = "spec.elasticPolicy has no effect for PaddleJob, use kubectl scale and spec.runPolicy instead"
    assert (answer.allowed, answer.warnings) == (True, (warning,))


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"Master": 1, "Worker": 1}, "PaddleJob digits is running."),
        ({"Worker": 1}, "PaddleJob team/digits is running."),
    ],
)
def test_a_paddle_job_has_the_texts_of_a_pytorch_job(roles: dict[str, int], message: str) -> None:
    pods = [PodBuilder(role, kind=PADDLE).running() for role in roles]
    assert conditions(decide(job(PADDLE, **roles), *pods))[-1][3] == message


def test_environment_of_a_jax_worker() -> None:
    builder = job(JAX, Worker=3)
    assert env(child(decide(builder), "digits-worker-2")) == [
        ("PYTHONUNBUFFERED", "1"),
        ("COORDINATOR_PORT", "6666"),
        ("COORDINATOR_ADDRESS", "digits-worker-0"),
        ("NUM_PROCESSES", "3"),
        ("PROCESS_ID", "2"),
    ]
    assert masters(builder) == ["digits-worker-0"]


def test_a_jax_job_succeeds_when_all_workers_have() -> None:
    builder = job(JAX, Worker=2)
    first, second = (PodBuilder("Worker", index, kind=JAX) for index in (0, 1))
    made = decide(builder, first.succeeded(), second.running())
    assert conditions(made)[-1][3] == "JAXJob team/digits is running."
    made = decide(builder, first, second.succeeded())
    assert conditions(made)[-1][3] == "JAXJob team/digits successfully completed."


def test_a_jax_job_of_another_controller_is_left_alone() -> None:
    assert decide(job(JAX, Worker=1).run_policy(managedBy="kueue.x-k8s.io/multikueue")).empty
