"""TF_CONFIG byte for byte, who decides about a TFJob, and in which order failures are evaluated."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.engine.planning import DNS, child, conditions, decide, env, events, manifests, states
from tests.support.objects.jobs import JobBuilder, PodBuilder, service, template, view_service
from trainwright.api.job_admission import review
from trainwright.api.kinds import Unvalidated
from trainwright.api.kinds.tensorflow import TENSORFLOW, TensorFlowFields, longest_tf_config
from trainwright.api.parsing import parse
from trainwright.engine import Settings
from trainwright.engine.plan import JobEvent
from trainwright.objects import Object


def tfjob(**roles: int) -> JobBuilder:
    builder = JobBuilder("mnist", kind=TENSORFLOW)
    for role, count in roles.items():
        builder.replica(role, count)
    return builder


def pod(role: str, index: int = 0) -> PodBuilder:
    return PodBuilder(role, index, job="mnist", kind=TENSORFLOW)


def tf_config(rendered: Object) -> str:
    ((_, value),) = env(rendered)
    return value


def ended(made: Any) -> str:
    """The type of the last condition."""
    return states(made)[-1][0]


def test_tf_config_names_all_peers_sorted_by_role_and_the_task() -> None:
    made = decide(tfjob(Worker=1, PS=1, Evaluator=1))
    assert tf_config(child(made, "mnist-worker-0")) == (
        '{"cluster":{"evaluator":["mnist-evaluator-0.team.svc:2222"],"ps":["mnist-ps-0.team.svc:2222"],'
        '"worker":["mnist-worker-0.team.svc:2222"]},"task":{"type":"worker","index":0},"environment":"cloud"}'
    )


def test_tf_config_has_the_domain_of_the_cluster() -> None:
    made = decide(tfjob(Worker=2), settings=Settings(cluster_domain="cluster.local"))
    assert '"mnist-worker-1.team.svc.cluster.local:2222"' in tf_config(child(made, "mnist-worker-0"))


def test_tf_config_has_the_declared_port_of_each_role() -> None:
    ports = [{"name": "tfjob-port", "containerPort": 3333}]
    made = decide(tfjob(Worker=1).replica("PS", 1, pod=template(name="tensorflow", ports=ports)))
    cluster = json.loads(tf_config(child(made, "mnist-worker-0")))["cluster"]
    assert cluster == {"ps": ["mnist-ps-0.team.svc:3333"], "worker": ["mnist-worker-0.team.svc:2222"]}


def test_tf_config_is_in_the_main_container_alone() -> None:
    template_ = template(name="tensorflow")
    template_["spec"]["containers"].insert(0, {"name": "logs", "image": "example/logs:1"})
    made = child(decide(tfjob(Worker=2).replica("PS", 1, pod=template_)), "mnist-ps-0")
    assert "env" not in made["spec"]["containers"][0]
    assert env(made, 1)[0][0] == "TF_CONFIG"


@pytest.mark.parametrize("role", ["Worker", "PS", "Chief"])
def test_a_single_replica_has_no_tf_config(role: str) -> None:
    (made,) = pods_of(tfjob(**{role: 1}))
    assert "env" not in made["spec"]["containers"][0]


def test_a_dynamic_worker_knows_itself_and_the_parameter_servers() -> None:
    made = decide(tfjob(Worker=3, PS=2).spec(enableDynamicWorker=True))
    assert tf_config(child(made, "mnist-worker-1")) == (
        '{"cluster":{"worker":{"1":"mnist-worker-1.team.svc:2222"},'
        '"ps":["mnist-ps-0.team.svc:2222","mnist-ps-1.team.svc:2222"]},"task":{"type":"worker","index":1}}'
    )


def test_a_parameter_server_of_dynamic_workers_knows_itself_alone() -> None:
    made = decide(tfjob(Worker=3, PS=2).spec(enableDynamicWorker=True))
    assert tf_config(child(made, "mnist-ps-1")) == (
        '{"cluster":{"worker":{},"ps":["mnist-ps-1.team.svc:2222"]},"task":{"type":"ps","index":1}}'
    )


def test_other_roles_beside_dynamic_workers_know_nobody() -> None:
    made = decide(tfjob(Worker=1, Chief=1).spec(enableDynamicWorker=True))
    assert tf_config(child(made, "mnist-chief-0")) == (
        '{"cluster":{"worker":{},"ps":[]},"task":{"type":"chief","index":0}}'
    )
    assert '"ps":null' in tf_config(child(made, "mnist-worker-0"))


@pytest.mark.parametrize(
    ("roles", "master"),
    [
        ({"Chief": 1, "Worker": 1}, ["mnist-chief-0"]),
        ({"Master": 1, "Worker": 1}, ["mnist-master-0"]),
        ({"PS": 1, "Worker": 2}, ["mnist-worker-0"]),
        ({"Chief": 2, "Worker": 1}, ["mnist-chief-0", "mnist-chief-1"]),
        ({"PS": 2, "Evaluator": 1}, []),
    ],
)
def test_the_chief_or_worker_0_has_the_label_of_a_master(roles: dict[str, int], master: list[str]) -> None:
    labelled = [
        one["metadata"]["name"]
        for one in pods_of(tfjob(**roles))
        if "training.kubeflow.org/job-role" in one["metadata"]["labels"]
    ]
    assert labelled == master


def test_a_job_with_a_chief_runs_and_succeeds_with_it() -> None:
    builder = tfjob(Chief=1, Worker=1)
    assert ended(decide(builder, pod("Chief"), pod("Worker").running())) == "Created"
    made = decide(builder, pod("Chief").running(), pod("Worker").running())
    assert conditions(made)[-1] == ("Running", "True", "TFJobRunning", "TFJob team/mnist is running.")
    made = decide(builder, pod("Chief").succeeded(), pod("Worker").running())
    assert conditions(made)[-1] == ("Succeeded", "True", "TFJobSucceeded", "TFJob team/mnist successfully completed.")


@pytest.mark.parametrize(
    ("policy", "first", "second", "state"),
    [
        (None, "succeeded", "running", "Succeeded"),
        ("", "succeeded", "running", "Succeeded"),
        (None, "running", "succeeded", "Running"),
        ("AllWorkers", "succeeded", "running", "Running"),
        ("AllWorkers", "succeeded", "succeeded", "Succeeded"),
    ],
)
def test_without_a_chief_the_success_policy_decides(policy: str | None, first: str, second: str, state: str) -> None:
    builder = tfjob(Worker=2, PS=1)
    if policy is not None:
        builder.spec(successPolicy=policy)
    pods = (getattr(pod("Worker", 0), first)(), getattr(pod("Worker", 1), second)(), pod("PS").running())
    assert ended(decide(builder, *pods)) == state


def test_worker_0_does_not_decide_beside_a_chief() -> None:
    assert ended(decide(tfjob(Chief=1, Worker=1), pod("Chief").running(), pod("Worker").succeeded())) == "Running"


def test_a_failed_role_fails_the_job_in_upstreams_words() -> None:
    made = decide(tfjob(Worker=2, PS=1), pod("Worker", 0).running(), pod("Worker", 1).running(), pod("PS").failed())
    message = "TFJob team/mnist has failed because 1 PS replica(s) failed."
    assert conditions(made)[-1] == ("Failed", "True", "TFJobFailed", message)


def test_failures_are_evaluated_in_alphabetical_order_of_the_roles() -> None:
    builder = tfjob(Worker=1, PS=1, Chief=1, Evaluator=1)
    failed = [pod(role).failed() for role in ("Worker", "PS", "Evaluator")]
    made = decide(builder, pod("Chief").running(), *failed)
    assert conditions(made)[-1][3] == "TFJob team/mnist has failed because 1 Evaluator replica(s) failed."


def test_a_restart_is_reported_once() -> None:
    builder = JobBuilder("mnist", kind=TENSORFLOW).replica("Worker", 2, policy="OnFailure")
    made = decide(builder, pod("Worker", 0).running(), pod("Worker", 1).failed())
    message = "job mnist is restarting because Worker replica(s) failed."
    assert [event for event in events(made) if "Restarting" in event[1]] == [("Warning", "TFJobRestarting", message)]
    assert conditions(made)[-1] == ("Restarting", "True", "TFJobRestarting", message)


def test_the_job_continues_without_a_dynamic_worker_that_failed() -> None:
    builder = tfjob(Worker=2, PS=1).spec(enableDynamicWorker=True)
    made = decide(builder, pod("Worker", 0).running(), pod("Worker", 1).failed(), pod("PS").running())
    assert ended(made) == "Running"
    made = decide(builder, pod("Worker", 0).running(), pod("Worker", 1).running(), pod("PS").failed())
    assert ended(made) == "Failed"


def test_a_job_fails_when_no_dynamic_worker_is_left_that_could_succeed() -> None:
    builder = tfjob(Worker=2, PS=1).spec(enableDynamicWorker=True)
    made = decide(builder, pod("Worker", 0).failed(), pod("Worker", 1).succeeded(), pod("PS").running())
    message = "TFJob team/mnist has failed because 1 Worker replica(s) failed."
    assert conditions(made)[-1] == ("Failed", "True", "TFJobFailed", message)


def test_a_job_without_workers_may_have_dynamic_workers() -> None:
    assert ended(decide(tfjob(Chief=1, PS=1).spec(enableDynamicWorker=True), pod("Chief").running())) == "Running"


def test_a_chief_continues_without_any_dynamic_worker() -> None:
    builder = tfjob(Chief=1, Worker=1).spec(enableDynamicWorker=True)
    assert ended(decide(builder, pod("Chief").running(), pod("Worker").failed())) == "Running"


def test_the_exit_code_of_a_dynamic_worker_that_stays_failed_is_recorded_once() -> None:
    builder = tfjob(Worker=2, PS=1).spec(enableDynamicWorker=True)
    pods = (pod("Worker", 0).running(), pod("Worker", 1).failed(3), pod("PS").running())
    ranks = (("Worker", 0), ("Worker", 1), ("PS", 0))
    there = [view_service(service(role, index, job="mnist", kind=TENSORFLOW)) for role, index in ranks]

    first = decide(builder, *pods, services=there)
    second = decide(builder.status(first.status), *pods, services=there)

    exited = JobEvent("Normal", "ExitedWithCode", "Pod: team.mnist-worker-1 exited with code 3", standing=True)
    assert first.standing_events == second.standing_events == (exited,)
    assert second.empty


def test_a_dynamic_worker_is_restarted_by_its_policy() -> None:
    builder = tfjob(PS=1).replica("Worker", 2, policy="OnFailure").spec(enableDynamicWorker=True)
    made = decide(builder, pod("Worker", 0).running(), pod("Worker", 1).failed(), pod("PS").running())
    assert ended(made) == "Restarting"


@given(
    roles=st.dictionaries(st.sampled_from(["Worker", "PS", "Evaluator", "Chief"]), st.integers(0, 12)),
    dynamic=st.booleans(),
    domain=st.sampled_from(["", "cluster.local", "a.very.long.domain.of.the.cluster.example.com" * 4]),
)
def test_validation_never_underestimates_tf_config(roles: dict[str, int], dynamic: bool, domain: str) -> None:
    ports = [{"name": "tfjob-port", "containerPort": 54321}]
    builder = JobBuilder("mnist", kind=TENSORFLOW).spec(enableDynamicWorker=dynamic)
    builder.replica("Worker", 1)
    for role, count in roles.items():
        builder.replica(role, count, pod=template(name="tensorflow", ports=ports))
    manifest = parse(builder.raw(), TENSORFLOW)
    fields = builder.job().own_fields(TensorFlowFields)
    estimate = longest_tf_config(Unvalidated(manifest.metadata, fields, manifest.replicas, domain))

    pods = pods_of(builder, Settings(cluster_domain=domain))

    configs = [tf_config(one) for one in pods if "env" in one["spec"]["containers"][0]]
    assert max(map(len, configs), default=0) <= estimate


def test_a_chief_and_a_master_are_rejected() -> None:
    answer = review(TENSORFLOW, tfjob(Chief=1, Master=1).raw())
    assert answer.message == "spec.tfReplicaSpecs: Forbidden: must not have more than 1 Chief or Master role"


def test_an_unknown_success_policy_has_a_warning() -> None:
    answer = review(TENSORFLOW, tfjob(Worker=1).spec(successPolicy="OneWorker").raw())
    assert answer.warnings == ('spec.successPolicy "OneWorker" is treated as "", use "" or AllWorkers instead',)


def test_more_replicas_than_tf_config_can_name_are_rejected() -> None:
    assert review(TENSORFLOW, tfjob(Worker=3000, PS=10).raw()).allowed
    answer = review(TENSORFLOW, tfjob(Worker=6000).raw())
    assert answer.message == (
        "spec.tfReplicaSpecs: Forbidden: too many replicas: TF_CONFIG of each pod names all of them and would have "
        "up to 209200 bytes, and an environment string holds at most 131071; use fewer replicas or set "
        "spec.enableDynamicWorker"
    )
    assert review(TENSORFLOW, tfjob(Worker=6000).spec(enableDynamicWorker=True).raw()).allowed
    longer = replace(TENSORFLOW, cluster_domain="cluster.local")
    assert not review(longer, tfjob(Worker=3000, PS=10).raw()).allowed


def test_a_chief_beside_a_master_is_rejected() -> None:
    answer = review(TENSORFLOW, tfjob(Chief=1, Master=1).raw())
    assert answer.message == "spec.tfReplicaSpecs: Forbidden: must not have more than 1 Chief or Master role"


@pytest.mark.parametrize(("policy", "warned"), [(None, False), ("", False), ("AllWorkers", False), ("Some", True)])
def test_an_unknown_success_policy_is_treated_as_the_default_with_a_warning(policy: str | None, warned: bool) -> None:
    builder = tfjob(Worker=2).spec(successPolicy=policy)
    warning = 'spec.successPolicy "Some" is treated as "", use "" or AllWorkers instead'
    assert review(TENSORFLOW, builder.raw()).warnings == ((warning,) if warned else ())
    made = decide(builder, pod("Worker", 0).succeeded(), pod("Worker", 1).running())
    assert ended(made) == ("Running" if policy == "AllWorkers" else "Succeeded")


def pods_of(builder: JobBuilder, settings: Settings = DNS) -> list[Object]:
    return [one for one in manifests(decide(builder, settings=settings)) if one["kind"] == "Pod"]
