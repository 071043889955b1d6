"""Reading a job: typed, completed, in the kind's order."""

import pytest

from tests.support.objects.flutes import FLUTE
from tests.support.objects.jobs import JOB_UID, JobBuilder
from trainwright.api.errors import InvalidJob
from trainwright.api.job import is_managed_elsewhere, read_job, salvage_job
from trainwright.api.kinds import PYTORCH
from trainwright.api.kinds.kind import NoFields
from trainwright.api.kinds.pytorch import PyTorchFields
from trainwright.api.types import RunPolicy


def test_a_job_knows_its_names_and_sizes() -> None:
    job = JobBuilder().workers(2).master().job()
    assert (job.name, job.namespace, job.metadata.uid) == ("digits", "team", JOB_UID)
    assert list(job.replicas) == ["Master", "Worker"]
    assert job.total_replicas == 3
    assert job.child_name("Worker", 1) == "digits-worker-1"
    assert job.run_policy == RunPolicy(clean_pod_policy="None")


def test_a_framework_gets_the_fields_of_its_own_type() -> None:
    job = JobBuilder().master().job()
    assert job.own_fields(PyTorchFields).nproc_per_node == "auto"
    with pytest.raises(TypeError, match="PyTorchJob has PyTorchFields, not NoFields"):
        job.own_fields(NoFields)


@pytest.mark.parametrize(
    ("manager", "elsewhere"),
    [
        (None, False),
        ("kubeflow.org/training-operator", False),
        ("", True),
        ("kueue.x-k8s.io/multikueue", True),
        ("example.com/other", True),
    ],
)
def test_item_62_job_with_another_manager_is_managed_elsewhere(manager: str | None, elsewhere: bool) -> None:
    raw = JobBuilder().master().run_policy(managedBy=manager).raw()
    assert is_managed_elsewhere(raw) is elsewhere


def test_job_with_another_manager_is_read_but_not_validated() -> None:
    builder = JobBuilder("Bad_Name").run_policy(managedBy="kueue.x-k8s.io/multikueue").replica("Chief", 3)
    job = builder.job()
    assert job.managed_elsewhere
    assert job.replicas == {}


@pytest.mark.parametrize("spec", [None, [], {"runPolicy": 3}])
def test_manager_is_found_in_malformed_objects(spec: object) -> None:
    assert not is_managed_elsewhere({"spec": spec})


def test_status_of_the_wrong_type_is_rejected_by_name() -> None:
    with pytest.raises(InvalidJob, match=r"status\.startTime: Invalid value: \"soon\""):
        JobBuilder().master().status({"startTime": "soon"}).job()


@pytest.mark.parametrize("metadata", [None, {}, {"namespace": "team"}])
def test_job_without_a_name_is_rejected(metadata: object) -> None:
    raw = {**JobBuilder().master().raw(), "metadata": metadata}
    with pytest.raises(InvalidJob, match=r"metadata(\.name: Required value: must be specified|: Invalid value: null)"):
        read_job(raw)


def test_salvaged_job_has_the_earlier_fields_of_the_run_policy() -> None:
    raw = JobBuilder().spec(cleanPodPolicy="All", backoffLimit="many", ttlSecondsAfterFinished=9).raw()
    job = salvage_job({**raw, "spec": {**raw["spec"], "runPolicy": 3}}, PYTORCH, InvalidJob([]))
    assert job.run_policy == RunPolicy(clean_pod_policy="All", ttl_seconds_after_finished=9)


@pytest.mark.parametrize("metadata", [None, 3, {}, {"name": ""}, {"name": 3}])
def test_job_without_a_name_cannot_be_salvaged(metadata: object) -> None:
    refused = InvalidJob([])
    with pytest.raises(InvalidJob) as raised:
        salvage_job({**JobBuilder().raw(), "metadata": metadata}, PYTORCH, refused)
    assert raised.value is refused


def test_salvaged_job_has_the_valid_fields_of_its_metadata() -> None:
    raw = JobBuilder().metadata(labels=3, annotations={"a": "b"}).raw()
    metadata = salvage_job(raw, PYTORCH, InvalidJob([])).metadata
    assert (metadata.name, metadata.uid, metadata.labels, metadata.annotations) == ("digits", JOB_UID, {}, {"a": "b"})


def test_salvaged_job_has_every_field_that_is_valid_by_itself() -> None:
    raw = JobBuilder().run_policy(cleanPodPolicy="All", ttlSecondsAfterFinished=9, backoffLimit="many").raw()
    job = salvage_job({**raw, "status": {"conditions": "none"}}, PYTORCH, InvalidJob([]))
    assert (job.name, job.namespace, job.metadata.uid) == ("digits", "team", JOB_UID)
    assert job.run_policy == RunPolicy(clean_pod_policy="All", ttl_seconds_after_finished=9)
    assert job.replicas == {}
    assert job.raw["status"] == {}


@pytest.mark.parametrize("spec", [None, [], {"runPolicy": 3}, {"runPolicy": {"cleanPodPolicy": 3}}])
def test_any_job_with_a_name_can_be_salvaged(spec: object) -> None:
    job = salvage_job({**JobBuilder().raw(), "spec": spec}, PYTORCH, InvalidJob([]))
    assert job.run_policy == RunPolicy(clean_pod_policy="None")


def test_name_of_the_wrong_type_is_rejected_by_name() -> None:
    with pytest.raises(InvalidJob, match=r"metadata\.annotations: Invalid value: 3: must be an object, not an integer"):
        JobBuilder().master().metadata(annotations=3).job()


def test_kind_without_own_fields_is_read() -> None:
    job = JobBuilder(kind=FLUTE).replica("player", 3).spec(backoffLimit=1).job()
    assert (job.total_replicas, job.run_policy.backoff_limit, job.fields) == (3, 1, NoFields())
    assert job.warnings == (
        "spec.backoffLimit is deprecated, use spec.runPolicy.backoffLimit instead",
        "spec.fluteReplicaSpecs[player] is deprecated, use spec.fluteReplicaSpecs[Player] instead",
    )
