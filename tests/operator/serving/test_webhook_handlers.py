"""Responses to admission reviews, valid and invalid ones."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.objects.jobs import JobBuilder, pair
from trainwright.api.kinds import KINDS, PYTORCH
from trainwright.objects import Object
from trainwright.operator.serving.http_server import Request, Response
from trainwright.operator.serving.webhook_handlers import admit, webhook_handlers
from trainwright.operator.setup.webhook_installation import webhook_path

PATHS = {
    kind: f"/validate-kubeflow-org-v1-{kind.lower()}"
    for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")
}


def review_of(job: object, old: object = None, **fields: object) -> Object:
    request = {"uid": "review-1", "operation": "UPDATE" if old else "CREATE", "object": job, "oldObject": old, **fields}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def send(path: str, body: bytes) -> Response:
    return await webhook_handlers(KINDS)[path](Request(path, {}, "", body))


async def response(path: str, review: Object) -> Object:
    http_response = await send(path, msgspec.json.encode(review))
    assert (http_response.status, http_response.content_type) == (200, "application/json")
    answer: Object = msgspec.json.decode(http_response.body)
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert answer["response"]["uid"] == "review-1"
    found: Object = answer["response"]
    return found


async def test_a_valid_job_is_allowed_without_warnings() -> None:
    job = JobBuilder().master().workers(2).raw()
    assert await response(webhook_path("PyTorchJob"), review_of(job)) == {"uid": "review-1", "allowed": True}


async def test_several_errors_are_one_message() -> None:
    job = JobBuilder("Bad").master().replica("Worker", 0).raw()
    denied = await response(webhook_path("PyTorchJob"), review_of(job))
    assert not denied["allowed"]
    assert (denied["status"]["code"], denied["status"]["reason"]) == (403, "Forbidden")
    message = denied["status"]["message"]
    assert message.startswith('[metadata.name: Invalid value: "Bad": should match: ')
    assert message.endswith(", spec.pytorchReplicaSpecs[Worker].replicas: Forbidden: must be at least 1]")


async def test_an_update_is_compared_with_the_old_object() -> None:
    old = JobBuilder().master().run_policy(managedBy="kubeflow.org/training-operator").raw()
    new = JobBuilder().master().run_policy(managedBy="kueue.x-k8s.io/multikueue").raw()
    denied = await response(webhook_path("PyTorchJob"), review_of(new, old))
    assert denied["status"]["message"].endswith("field is immutable")


async def test_warnings_are_passed_on() -> None:
    job = JobBuilder().workers(2).spec(elasticPolicy={"nProcPerNode": 2}).raw()
    answer = await response(webhook_path("PyTorchJob"), review_of(job))
    assert answer["allowed"]
    (warning,) = answer["warnings"]
    assert "spec.elasticPolicy.nProcPerNode is deprecated" in warning


async def test_a_deletion_is_allowed() -> None:
    answer = await response(webhook_path("PyTorchJob"), review_of(None, JobBuilder("Bad").raw(), operation="DELETE"))
    assert answer["allowed"]


@pytest.mark.parametrize("name", PATHS)
async def test_every_path_of_upstreams_configuration_validates_its_kind(name: str) -> None:
    assert webhook_path(name) == PATHS[name]
    job = pair("job", KINDS[name]).raw()
    assert await response(PATHS[name], review_of(job)) == {"uid": "review-1", "allowed": True}
    denied = await response(PATHS[name], review_of({**job, "spec": {}}))
    field = f"spec.{KINDS[name].replicas_field}"
    assert f"{field}: Required value: must be required" in denied["status"]["message"]


@pytest.mark.parametrize("name", PATHS)
async def test_jobs_of_a_kind_that_is_not_enabled_are_allowed_with_a_warning(name: str) -> None:
    handler = webhook_handlers({})[PATHS[name]]
    body = msgspec.json.encode(review_of({"kind": name}))
    answer = msgspec.json.decode((await handler(Request("", {}, "", body))).body)["response"]
    warning = f"this operator does not support {name}: it neither validates nor runs the job"
    assert (answer["allowed"], answer["warnings"]) == (True, [warning])


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not an AdmissionReview"),
        (b"[]", "not an AdmissionReview"),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "request": {}}', "but admission.k8s"),
        (b"[" * 100_000, "not an AdmissionReview"),
    ],
)
async def test_a_body_that_is_not_a_review_is_a_bad_request(body: bytes, why: str) -> None:
    http_response = await send(webhook_path("PyTorchJob"), body)
    assert http_response.status == 400
    assert why in http_response.body.decode()


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(new=junk, old=st.none() | st.text())
def test_every_object_gets_a_response(new: object, old: object) -> None:
    answer = admit(PYTORCH, {"uid": "review-1", "object": new, "oldObject": old})
    # An update may keep errors that the old object had.
    assert answer["allowed"] is not (isinstance(new, dict) and not isinstance(old, dict))


async def test_each_review_is_measured() -> None:
    measured: list[tuple[str, int]] = []
    handlers = webhook_handlers(KINDS, lambda path, code, seconds: measured.append((path, code)))
    await handlers[webhook_path("TFJob")](Request("", {}, "", b"nonsense"))
    assert measured == [("/validate-kubeflow-org-v1-tfjob", 400)]
