"""Which manifests are rejected, with upstream's messages."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.objects.jobs import JobBuilder, template
from tests.support.objects.junk import hostile, jobs, junk, nested, of_any_kind, specs_of
from trainwright.api.errors import InvalidJob
from trainwright.api.job import read_job, salvage_job
from trainwright.api.kinds import PYTORCH, Kind, Role
from trainwright.api.kinds.mpi import MPI
from trainwright.api.validation import validate
from trainwright.objects import Object
from trainwright.objects.field_errors import ErrorType

MIN_RESOURCES = "runPolicy.schedulingPolicy.minResources"
MASTER = "spec.pytorchReplicaSpecs[Master]"
CONTAINERS = f"{MASTER}.template.spec.containers"


def errors(builder: JobBuilder) -> list[str]:
    return [str(error) for error in validate(builder.raw(), builder.kind)]


def test_a_usual_job_is_accepted() -> None:
    assert errors(JobBuilder().master().workers(2)) == []


def test_name_that_is_not_a_dns_label_is_rejected() -> None:
    (error,) = validate(JobBuilder("0-digits").master().raw(), PYTORCH)
    assert (error.path, error.type, error.shown) == ("metadata.name", ErrorType.INVALID, '"0-digits"')
    assert error.detail.startswith("should match: a DNS-1035 label must consist of")


def test_a_template_without_containers_gives_both_errors() -> None:
    assert errors(JobBuilder().master(pod={"spec": {"containers": []}})) == [
        f"{CONTAINERS}: Required value: must be specified",
        f"{CONTAINERS}: Required value: must have at least one container with name pytorch",
    ]


def test_empty_image_is_rejected() -> None:
    assert errors(JobBuilder().master(pod=template(image=""))) == [
        f"{CONTAINERS}[0].image: Required value: must be required"
    ]


def test_one_container_must_have_the_required_name() -> None:
    assert errors(JobBuilder().master(pod=template(name="main"))) == [
        f"{CONTAINERS}: Required value: must have at least one container with name pytorch"
    ]


@pytest.mark.parametrize("spec", [{}, {"pytorchReplicaSpecs": {}}, {"pytorchReplicaSpecs": {"Master": None}}, None])
def test_job_without_replicas_is_rejected(spec: Object | None) -> None:
    raw = {**JobBuilder().raw(), "spec": spec}
    assert [str(error) for error in validate(raw, PYTORCH)] == [
        "spec.pytorchReplicaSpecs: Required value: must be required"
    ]


def test_unknown_role_is_rejected_with_the_supported_ones() -> None:
    assert errors(JobBuilder().replica("Chief", 1)) == [
        'spec.pytorchReplicaSpecs[Chief]: Unsupported value: "Chief": supported values: "Master", "Worker"'
    ]


def test_known_roles_are_accepted_in_any_letter_case() -> None:
    builder = JobBuilder().replica("MASTER", 1).replica("worker", 2).spec(elasticPolicy={})
    assert errors(builder) == []
    assert {role: replica.count for role, replica in builder.job().replicas.items()} == {"Master": 1, "Worker": 2}


@pytest.mark.parametrize("key", ["master", "Worker", "wORKER"])
def test_errors_name_a_role_as_the_manifest_spells_it(key: str) -> None:
    (error,) = errors(JobBuilder().replica(key, 1, pod=template(image="")))
    assert (
        error == f"spec.pytorchReplicaSpecs[{key}].template.spec.containers[0].image: Required value: must be required"
    )


@pytest.mark.parametrize("count", [0, 2, None])
def test_there_is_exactly_one_master(count: int | None) -> None:
    assert errors(JobBuilder().replica("Master", count)) == [
        "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1"
    ]


def test_operator_completes_a_missing_number_of_masters_but_rejects_two() -> None:
    assert JobBuilder().replica("Master", None).job().replicas["Master"].count == 1
    with pytest.raises(InvalidJob, match="must be 1"):
        JobBuilder().replica("Master", 2).job()


def test_admission_requires_a_worker_but_a_job_may_be_scaled_to_0() -> None:
    builder = JobBuilder().master().workers(0)
    assert errors(builder) == ["spec.pytorchReplicaSpecs[Worker].replicas: Forbidden: must be at least 1"]
    assert builder.job().replicas["Worker"].count == 0


def test_a_negative_number_is_one_error() -> None:
    assert errors(JobBuilder().workers(-1)) == [
        "spec.pytorchReplicaSpecs[Worker].replicas: Forbidden: must be at least 1"
    ]
    assert errors(JobBuilder().replica("Master", -1)) == [
        "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1"
    ]


def test_operator_has_the_same_messages_as_admission() -> None:
    builder = JobBuilder("Bad").replica("Chief", 100_001, policy="Sometimes").replica("Master", 2)
    builder.replica("Worker", 1, pod=template(name="main", image=""))
    with pytest.raises(InvalidJob) as refused:
        builder.job()
    messages = sorted(map(str, refused.value.errors))
    assert messages == sorted(errors(builder))
    assert len(messages) == 7


def test_admission_rejects_an_impossible_number_of_pods() -> None:
    assert errors(JobBuilder().workers(100_000)) == []
    (error,) = errors(JobBuilder().workers(100_001))
    assert error == (
        "spec.pytorchReplicaSpecs[Worker].replicas: Invalid value: 100001: must be less than or equal to 100000"
    )


@pytest.mark.parametrize(
    ("count", "detail"), [(-1, "should be a non-negative integer"), (100_001, "must be less than or equal to 100000")]
)
def test_operator_rejects_an_impossible_number_of_pods(count: int, detail: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        JobBuilder().workers(count).job()
    assert str(refused.value) == f"spec.pytorchReplicaSpecs[Worker].replicas: Invalid value: {count}: {detail}"


def test_unknown_restart_policy_is_rejected() -> None:
    (error,) = errors(JobBuilder().master(policy="Sometimes"))
    assert error == (
        'spec.pytorchReplicaSpecs[Master].restartPolicy: Unsupported value: "Sometimes": '
        'supported values: "Always", "OnFailure", "Never", "ExitCode"'
    )


@pytest.mark.parametrize("manager", ["kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"])
def test_known_managers_are_accepted(manager: str) -> None:
    assert errors(JobBuilder().master().run_policy(managedBy=manager)) == []


@pytest.mark.parametrize("manager", ["", "example.com/other"])
def test_unknown_managers_are_rejected(manager: str) -> None:
    (error,) = errors(JobBuilder().master().run_policy(managedBy=manager))
    assert error == (
        f'spec.runPolicy.managedBy: Unsupported value: "{manager}": supported values: '
        '"kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"'
    )


def test_elastic_jobs_need_workers() -> None:
    assert errors(JobBuilder().master().spec(elasticPolicy={})) == [
        "spec.pytorchReplicaSpecs[Worker]: Required value: must be configured if elastic policy is used"
    ]


def test_only_one_of_the_two_fields_for_processes_per_node() -> None:
    builder = JobBuilder().workers(1).spec(elasticPolicy={"nProcPerNode": 2}, nprocPerNode="2")
    assert errors(builder) == ["spec.elasticPolicy.nProcPerNode: Forbidden: must not be used with spec.nprocPerNode"]


@pytest.mark.parametrize(
    ("elastic", "message"),
    [
        ({"minReplicas": 0}, "spec.elasticPolicy.minReplicas: Invalid value: 0: must be at least 1"),
        ({"maxReplicas": 0}, "spec.elasticPolicy.maxReplicas: Invalid value: 0: must be at least 1"),
        (
            {"minReplicas": 2, "maxReplicas": 1},
            "spec.elasticPolicy.maxReplicas: Invalid value: 1: must be at least minReplicas, which is 2",
        ),
        (
            {"minReplicas": 3, "maxReplicas": 2},
            "spec.elasticPolicy.maxReplicas: Invalid value: 2: must be at least minReplicas, which is 3",
        ),
        (
            {"metrics": [{"type": "Resource"}, {"type": "Resource", "resource": {"name": "cpu"}}]},
            "spec.elasticPolicy.metrics[1].resource.target: Required value: must be specified",
        ),
    ],
)
def test_invalid_elastic_policies_are_rejected(elastic: Object, message: str) -> None:
    builder = JobBuilder().workers(2).spec(elasticPolicy=elastic)
    assert errors(builder) == [message]
    with pytest.raises(InvalidJob) as refused:
        builder.job()
    assert str(refused.value) == message


def test_valid_elastic_policies_are_accepted() -> None:
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
    assert errors(JobBuilder().workers(2).spec(elasticPolicy={"minReplicas": 1, "maxReplicas": 1})) == []
    assert errors(JobBuilder().workers(2).spec(elasticPolicy={"maxReplicas": 1})) == []
    assert errors(JobBuilder().workers(2).spec(elasticPolicy={"maxReplicas": 4, "metrics": [cpu]})) == []


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"minAvailable": -1}, "minAvailable: Invalid value: -1: should be a non-negative integer"),
        ({"scheduleTimeoutSeconds": -5}, "scheduleTimeoutSeconds: Invalid value: -5: should be a non-negative integer"),
        (
            {"minResources": {"cpu": "lots"}},
            (
                'minResources[cpu]: Invalid value: "lots": '
                "must be a quantity: a number and a unit such as 500m, 2 or 1.5Gi"
            ),
        ),
        (
            {"minResources": {"cpu": "9" * 5000}},
            (
                f'minResources[cpu]: Invalid value: "{"9" * 256}...": '
                "must be a quantity: a number and a unit such as 500m, 2 or 1.5Gi"
            ),
        ),
        (
            {"minResources": {"cpu": 1, "x": "-1"}},
            'minResources[x]: Invalid value: "-1": must be greater than or equal to 0',
        ),
    ],
)
def test_invalid_scheduling_policy_is_rejected(policy: Object, message: str) -> None:
    builder = JobBuilder().master().run_policy(schedulingPolicy=policy)
    assert errors(builder) == [f"spec.runPolicy.schedulingPolicy.{message}"]
    with pytest.raises(InvalidJob) as refused:
        builder.job()
    assert str(refused.value) == f"spec.runPolicy.schedulingPolicy.{message}"


def test_valid_scheduling_policy_is_accepted() -> None:
    policy = {
        "minAvailable": 0,
        "queue": "night",
        "priorityClass": "high",
        "minResources": {"cpu": "500m", "memory": "1.5Gi", "nvidia.com/gpu": 2, "example.com/none": "0"},
        "scheduleTimeoutSeconds": 0,
    }
    assert errors(JobBuilder().master().run_policy(schedulingPolicy=policy)) == []


@pytest.mark.parametrize("path", ["spec.runPolicy.cleanPodPolicy", "spec.cleanPodPolicy"])
def test_unknown_clean_pod_policy_is_rejected_by_admission_but_not_by_the_operator(path: str) -> None:
    builder = JobBuilder().master()
    builder = builder.run_policy(cleanPodPolicy="none") if "run" in path else builder.spec(cleanPodPolicy="none")
    assert errors(builder) == [f'{path}: Unsupported value: "none": supported values: "All", "Running", "None"']
    assert builder.job().run_policy.clean_pod_policy == "none"


def test_names_of_children_must_fit_into_63_characters() -> None:
    assert errors(JobBuilder("x" * 54).master()) == []
    (error,) = errors(JobBuilder("x" * 54).master().workers(11))
    child = "x" * 54 + "-worker-10"
    assert error.startswith(f'metadata.name: Invalid value: "{"x" * 54}": must be no more than 53 characters: ')
    assert child in error


def test_longest_name_of_all_children_counts() -> None:
    kind = replace(PYTORCH, roles=(Role("Zebra"), Role("Alligator")))
    raw = JobBuilder("x" * 54).replica("Zebra").replica("Alligator").raw()
    (error,) = validate(raw, kind)
    child = "x" * 54 + "-alligator-0"
    assert f"must be no more than 51 characters: pod and service {child} would have 66" in error.detail


def test_pods_without_service_need_a_hostname_of_63_characters() -> None:
    (error,) = errors(JobBuilder("x" * 55, kind=MPI).replica("Launcher"))
    assert f"must be no more than 54 characters: pod {'x' * 55}-launcher would have 64" in error


def test_a_name_of_63_characters_leaves_no_room_for_children() -> None:
    (error,) = errors(JobBuilder("x" * 63).master())
    assert "must be no more than 54 characters: " in error


def test_a_name_that_is_too_long_by_itself_is_reported_once() -> None:
    (error,) = errors(JobBuilder("x" * 64).master())
    assert "must be no more than 63 characters" in error


def test_name_with_two_errors_reports_both() -> None:
    (error,) = errors(JobBuilder("X" * 64).master())
    assert ": should match: must be no more than 63 characters,a DNS-1035 label must consist of" in error


def test_the_length_of_a_name_is_counted_in_bytes() -> None:
    (error,) = errors(JobBuilder("ä" * 40).master())
    assert "must be no more than 63 characters,a DNS-1035" in error
    assert '"' + "ä" * 40 + '"' in error


def test_errors_come_in_a_fixed_order() -> None:
    builder = JobBuilder("Bad").run_policy(managedBy="x")
    builder.spec(elasticPolicy={"nProcPerNode": 2}, nprocPerNode="2")
    builder.replica("Worker", 0, policy="Sometimes").replica("Master", 2)
    del builder.object["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["image"]
    paths = [error.path for error in validate(builder.raw(), PYTORCH)]
    assert paths == [
        "metadata.name",
        "spec.runPolicy.managedBy",
        "spec.elasticPolicy.nProcPerNode",
        "spec.pytorchReplicaSpecs[Worker].template.spec.containers[0].image",
        "spec.pytorchReplicaSpecs[Worker].replicas",
        "spec.pytorchReplicaSpecs[Worker].restartPolicy",
        "spec.pytorchReplicaSpecs[Master].replicas",
    ]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (["x"], 'spec: Invalid value: "list": must be an object, not a list'),
        ("", 'spec: Invalid value: "": must be an object, not a string'),
        ({"runPolicy": 3}, "spec.runPolicy: Invalid value: 3: must be an object, not an integer"),
        ({"runPolicy": ""}, 'spec.runPolicy: Invalid value: "": must be an object, not a string'),
        ({"backoffLimit": "three"}, 'spec.backoffLimit: Invalid value: "three": must be an integer, not a string'),
        (
            {"pytorchReplicaSpecs": {"Master": {"replicas": 10**5000}}},
            f"{MASTER}.replicas: Invalid value: a number of 16610 bits: expected int <= 2147483647",
        ),
        (
            {"pytorchReplicaSpecs": {"Master": {"replicas": float("nan")}}},
            "spec.pytorchReplicaSpecs[Master].replicas: Invalid value: NaN: must be an integer, not a number",
        ),
        (
            {"pytorchReplicaSpecs": {"Master": {"replicas": "\ud800"}}},
            f'{MASTER}: Invalid value: "dict": contains text that is not valid Unicode',
        ),
        (
            {"pytorchReplicaSpecs": {"a\x00\ud800": 1}},
            "spec.pytorchReplicaSpecs[a\\x00\\ud800]: Invalid value: 1: must be an object, not an integer",
        ),
        (
            {"runPolicy": {"backoffLimit": "three"}},
            'spec.runPolicy.backoffLimit: Invalid value: "three": must be an integer, not a string',
        ),
        (
            {"runPolicy": {"backoffLimit": 2**31}},
            "spec.runPolicy.backoffLimit: Invalid value: 2147483648: expected int <= 2147483647",
        ),
        (
            {"runPolicy": {"schedulingPolicy": {"minResources": {"cpu": []}}}},
            f'spec.{MIN_RESOURCES}[...]: Invalid value: "dict": must be an integer or a string, not a list',
        ),
        (
            {"pytorchReplicaSpecs": "all"},
            'spec.pytorchReplicaSpecs: Invalid value: "all": must be an object, not a string',
        ),
        (
            {"pytorchReplicaSpecs": {"Master": 1}},
            "spec.pytorchReplicaSpecs[Master]: Invalid value: 1: must be an object, not an integer",
        ),
        (
            {"pytorchReplicaSpecs": {"Master": {"template": {"spec": {"containers": [{"image": "x"}]}}}}},
            f"{CONTAINERS}[0].name: Required value: must be specified",
        ),
        (
            {"pytorchReplicaSpecs": {"Master": {"template": {"spec": {"containers": [{"name": "a"}, 4]}}}}},
            f"{CONTAINERS}[1]: Invalid value: 4: must be an object, not an integer",
        ),
        (
            {"pytorchReplicaSpecs": {"Master": {"template": {"spec": {"securityContext": "x"}}}}},
            f'{MASTER}.template.spec.securityContext: Invalid value: "x": must be an object, not a string',
        ),
        (
            {"pytorchReplicaSpecs": {"Master": {"template": template(securityContext=[1])}}},
            f'{CONTAINERS}[0].securityContext: Invalid value: "list": must be an object, not a list',
        ),
        (
            {"pytorchReplicaSpecs": {"Master": {"template": template(securityContext={"capabilities": {"drop": 5}})}}},
            f"{CONTAINERS}[0].securityContext.capabilities.drop: Invalid value: 5: must be a list, not an integer",
        ),
        (
            {"elasticPolicy": {"rdzvConf": [{"key": 1}]}},
            "spec.elasticPolicy.rdzvConf[0].key: Invalid value: 1: must be a string, not an integer",
        ),
    ],
)
def test_wrong_types_are_named_with_their_field(spec: Any, message: str) -> None:
    raw = {**JobBuilder().raw(), "spec": spec}
    assert [str(error) for error in validate(raw, PYTORCH)] == [message]
    with pytest.raises(InvalidJob) as refused:
        read_job(raw)
    assert str(refused.value) == message


@given(st.integers(0, 3000))
@example(95)
@example(96)
def test_spec_that_is_nested_too_deeply_is_rejected(levels: int) -> None:
    raw = JobBuilder().master().raw()
    raw["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["volumes"] = nested(levels)
    messages = [str(error) for error in validate(raw, PYTORCH)]
    assert messages in ([], ['spec: Invalid value: "dict": must not be nested deeper than 100 levels'])
    assert bool(messages) == (levels > 100 - len(["spec", "pytorchReplicaSpecs", "Master", "template", "spec"]))


@given(of_any_kind(lambda kind: specs_of(hostile, kind) | hostile), hostile, hostile, hostile)
def test_reading_any_object_raises_only_invalid_job(
    drawn: tuple[Kind, Any], status: Any, labels: Any, name: Any
) -> None:
    kind, spec = drawn
    raw = {**JobBuilder(kind=kind).raw(), "spec": spec, "status": status}
    usual = raw["metadata"]
    for metadata in (usual, name, {"name": name}, {**usual, "annotations": name}, {**usual, "labels": labels}):
        broken = {**raw, "metadata": metadata}
        refused = [*validate(broken, kind), *validate(broken, kind, raw)]
        with suppress(InvalidJob):
            read_job(broken)
        with suppress(InvalidJob):
            job = salvage_job(broken, kind, InvalidJob(refused))
            assert job.run_policy.clean_pod_policy is not None
        assert str(InvalidJob(refused)).isprintable()


@given(jobs, junk, junk)
def test_any_malformed_manifest_is_rejected_with_field_errors(
    drawn: tuple[Kind, Any], status: Any, labels: Any
) -> None:
    kind, spec = drawn
    raw = {**JobBuilder(kind=kind).metadata(labels=labels).raw(), "spec": spec, "status": status}
    refused = validate(raw, kind)
    try:
        job = read_job(raw)
    except InvalidJob as refusal:
        refused += refusal.errors
        job = None
    assert refused or job is not None
    assert all(error.path and error.detail and str(error) for error in refused)
    assert job is None or job.replicas or job.managed_elsewhere
