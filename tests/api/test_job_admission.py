"""Admission reviews: upstream's errors, warnings and rules for updates."""

from typing import Any

import pytest
from hypothesis import given

from tests.support.objects.jobs import JobBuilder, template
from tests.support.objects.junk import jobs, junk
from trainwright.api.job_admission import Admission, review, warnings
from trainwright.api.kinds import PYTORCH, Kind
from trainwright.objects import Object

MASTER = "spec.pytorchReplicaSpecs[Master]"
CONTAINERS = f"{MASTER}.template.spec.containers"
MANAGERS = '"kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"'
DNS_1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def without_replicas(spec: Any) -> Object:
    return {**JobBuilder().raw(), "spec": spec}


@pytest.mark.parametrize(
    ("new", "message"),
    [
        pytest.param(JobBuilder().master().workers(1).raw(), "", id="valid"),
        pytest.param(
            JobBuilder("0-digits").master().raw(),
            f'metadata.name: Invalid value: "0-digits": should match: {DNS_1035}',
            id="bad name",
        ),
        pytest.param(
            JobBuilder().master(pod={"spec": {"containers": []}}).raw(),
            f"[{CONTAINERS}: Required value: must be specified, "
            f"{CONTAINERS}: Required value: must have at least one container with name pytorch]",
            id="no containers",
        ),
        pytest.param(
            JobBuilder().master(pod=template(image="")).raw(),
            f"{CONTAINERS}[0].image: Required value: must be required",
            id="empty image",
        ),
        pytest.param(
            JobBuilder().master(pod=template(name="main")).raw(),
            f"{CONTAINERS}: Required value: must have at least one container with name pytorch",
            id="missing default container",
        ),
        pytest.param(
            without_replicas(None), "spec.pytorchReplicaSpecs: Required value: must be required", id="no spec"
        ),
        pytest.param(without_replicas({}), "spec.pytorchReplicaSpecs: Required value: must be required", id="nil map"),
        pytest.param(
            JobBuilder().master().run_policy(managedBy="other").raw(),
            f'spec.runPolicy.managedBy: Unsupported value: "other": supported values: {MANAGERS}',
            id="bad managedBy",
        ),
        pytest.param(
            JobBuilder().master().run_policy(managedBy="").raw(),
            f'spec.runPolicy.managedBy: Unsupported value: "": supported values: {MANAGERS}',
            id="empty managedBy",
        ),
        pytest.param(
            JobBuilder().replica("Master", 2).raw(), f"{MASTER}.replicas: Forbidden: must be 1", id="two masters"
        ),
        pytest.param(
            JobBuilder().replica("Master", None).raw(),
            f"{MASTER}.replicas: Forbidden: must be 1",
            id="master without a number",
        ),
        pytest.param(
            JobBuilder().workers(1).spec(elasticPolicy={"nProcPerNode": 1}, nprocPerNode="1").raw(),
            "spec.elasticPolicy.nProcPerNode: Forbidden: must not be used with spec.nprocPerNode",
            id="both nproc fields",
        ),
        pytest.param(
            JobBuilder().master().spec(elasticPolicy={}).raw(),
            "spec.pytorchReplicaSpecs[Worker]: Required value: must be configured if elastic policy is used",
            id="elastic without worker",
        ),
        pytest.param(
            JobBuilder().master().workers(0).raw(),
            "spec.pytorchReplicaSpecs[Worker].replicas: Forbidden: must be at least 1",
            id="worker 0",
        ),
        pytest.param(
            JobBuilder().replica("Chief", 1).raw(),
            'spec.pytorchReplicaSpecs[Chief]: Unsupported value: "Chief": supported values: "Master", "Worker"',
            id="unknown role",
        ),
    ],
)
def test_item_72_verdicts_on_new_jobs(new: Object, message: str) -> None:
    answer = review(PYTORCH, new)
    assert (answer.allowed, answer.message) == (not message, message)


def test_item_72_the_deprecated_field_is_accepted_with_upstreams_warning() -> None:
    answer = review(PYTORCH, JobBuilder().workers(1).spec(elasticPolicy={"nProcPerNode": 1}).raw())
    assert answer == Admission(
        warnings=("spec.elasticPolicy.nProcPerNode is deprecated, use spec.nprocPerNode instead",)
    )


OWN, OTHER = "kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [(OWN, OTHER, f'"{OTHER}"'), (None, OWN, f'"{OWN}"'), (OTHER, None, "null")],
)
def test_item_72_the_manager_cannot_be_changed(before: str | None, after: str | None, shown: str) -> None:
    old = JobBuilder().master().run_policy(managedBy=before).raw()
    new = JobBuilder().master().run_policy(managedBy=after).raw()
    answer = review(PYTORCH, new, old)
    assert answer.message == f"spec.runPolicy.managedBy: Invalid value: {shown}: field is immutable"
    assert review(PYTORCH, old, old).allowed


def test_a_manager_that_is_new_and_unknown_gives_both_errors_in_upstreams_order() -> None:
    old = JobBuilder().master().raw()
    new = JobBuilder().master().run_policy(managedBy="x").raw()
    immutable, unsupported = review(PYTORCH, new, old).errors
    assert immutable.detail == "field is immutable"
    assert unsupported.detail == f"supported values: {MANAGERS}"


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [("a", "a", True), ("a", "b", False), (None, "a", True), ("a", None, True), (None, None, True)],
)
def test_a_queue_that_is_set_cannot_be_changed(before: str | None, after: str | None, allowed: bool) -> None:
    old = JobBuilder().master().run_policy(schedulingPolicy={"queue": before}).raw()
    new = JobBuilder().master().run_policy(schedulingPolicy={"queue": after}).raw()
    path = "spec.runPolicy.schedulingPolicy.queue"
    message = "" if allowed else f'{path}: Invalid value: "b": {path} is immutable'
    assert review(PYTORCH, new, old).message == message


def test_update_is_not_rejected_for_errors_of_the_stored_job() -> None:
    old = JobBuilder().master().workers(0).raw()
    new = JobBuilder().master().workers(0).annotation("a", "b").raw()
    assert review(PYTORCH, new, old).allowed


def test_update_is_rejected_for_new_errors() -> None:
    old = JobBuilder().master().workers(2).raw()
    answer = review(PYTORCH, JobBuilder().master().workers(0).raw(), old)
    assert answer.message == "spec.pytorchReplicaSpecs[Worker].replicas: Forbidden: must be at least 1"


def test_earlier_spellings_are_accepted_with_warnings() -> None:
    answer = review(PYTORCH, JobBuilder().replica("master").spec(cleanPodPolicy="None").raw())
    assert answer == Admission(
        warnings=(
            "spec.cleanPodPolicy is deprecated, use spec.runPolicy.cleanPodPolicy instead",
            "spec.pytorchReplicaSpecs[master] is deprecated, use spec.pytorchReplicaSpecs[Master] instead",
        )
    )


def test_job_with_wrong_types_has_no_deprecation_warnings() -> None:
    raw = {**JobBuilder().raw(), "spec": {"backoffLimit": "three"}}
    assert warnings(raw, PYTORCH) == []


@given(jobs, jobs)
def test_review_of_any_object_returns_an_admission(new: tuple[Kind, Any], old: tuple[Kind, Any]) -> None:
    kind, spec = new
    job = {**JobBuilder(kind=kind).raw(), "spec": spec}
    answer = review(kind, job, {**job, "spec": old[1]})
    assert answer.allowed == (answer.message == "")
    assert review(kind, job, job).allowed


@given(junk)
def test_review_of_an_object_without_a_name_returns_an_admission(metadata: Any) -> None:
    assert not review(PYTORCH, {"metadata": metadata, "spec": {}}).allowed
