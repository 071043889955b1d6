"""Answers to admission reviews, as the API server sends them and as somebody else may."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.objects.jobs import JobBuilder
from trainwright.api.kinds import KINDS, PYTORCH
from trainwright.objects import Object
from trainwright.operator.serving.http_server import Request, Response
from trainwright.operator.serving.webhooks import admit, path_of, webhook_handlers

PATHS = [f"/validate-kubeflow-org-v1-{kind}" for kind in ("pytorchjob", "tfjob", "xgboostjob", "paddlejob", "jaxjob")]


def asking(job: object, old: object = None, **fields: object) -> Object:
    request = {"uid": "review-1", "operation": "UPDATE" if old else "CREATE", "object": job, "oldObject": old, **fields}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def send(path: str, body: bytes) -> Response:
    return await webhook_handlers(KINDS)[path](Request(path, {}, "", body))


async def response(path: str, review: Object) -> Object:
    reply = await send(path, msgspec.json.encode(review))
    assert (reply.status, reply.content_type) == (200, "application/json")
    answer: Object = msgspec.json.decode(reply.body)
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert answer["response"]["uid"] == "review-1"
    found: Object = answer["response"]
    return found


async def test_a_good_job_is_admitted_without_a_word() -> None:
    job = JobBuilder().master().workers(2).raw()
    assert await response(path_of("PyTorchJob"), asking(job)) == {"uid": "review-1", "allowed": True}


async def test_several_errors_come_in_one_line() -> None:
    job = JobBuilder("Bad").master().replica("Worker", 0).raw()
    refused = await response(path_of("PyTorchJob"), asking(job))
    assert not refused["allowed"]
    assert (refused["status"]["code"], refused["status"]["reason"]) == (403, "Forbidden")
    message = refused["status"]["message"]
    assert message.startswith('[metadata.name: Invalid value: "Bad": should match: ')
    assert message.endswith(", spec.pytorchReplicaSpecs[Worker].replicas: Forbidden: must be at least 1]")


async def test_a_change_is_judged_by_what_it_changes() -> None:
    old = JobBuilder().master().run_policy(managedBy="kubeflow.org/training-operator").raw()
    new = JobBuilder().master().run_policy(managedBy="kueue.x-k8s.io/multikueue").raw()
    refused = await response(path_of("PyTorchJob"), asking(new, old))
    assert refused["status"]["message"].endswith("field is immutable")


async def test_warnings_are_passed_on() -> None:
    job = JobBuilder().workers(2).spec(elasticPolicy={"nProcPerNode": 2}).raw()
    answer = await response(path_of("PyTorchJob"), asking(job))
    assert answer["allowed"]
    (warning,) = answer["warnings"]
    assert "spec.elasticPolicy.nProcPerNode is deprecated" in warning


async def test_a_deletion_is_none_of_our_business() -> None:
    answer = await response(path_of("PyTorchJob"), asking(None, JobBuilder("Bad").raw(), operation="DELETE"))
    assert answer["allowed"]


@pytest.mark.parametrize("path", PATHS)
async def test_every_path_of_upstreams_configuration_is_served(path: str) -> None:
    answer = await response(path, asking(JobBuilder().master().raw()))
    assert answer["allowed"]
    assert ("neither validates" in str(answer.get("warnings"))) is (path != path_of(PYTORCH.name))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not an AdmissionReview"),
        (b"[]", "not an AdmissionReview"),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "request": {}}', "but admission.k8s"),
        (b"[" * 100_000, "not an AdmissionReview"),
    ],
)
async def test_what_is_no_review_is_refused_with_the_reason(body: bytes, why: str) -> None:
    reply = await send(path_of("PyTorchJob"), body)
    assert reply.status == 400
    assert why in reply.body.decode()


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(new=junk, old=st.none() | st.text())
def test_whatever_the_objects_hold_there_is_an_answer(new: object, old: object) -> None:
    answer = admit(PYTORCH, {"uid": "review-1", "object": new, "oldObject": old})
    # What has never been a job is none; what it was before, it may stay.
    assert answer["allowed"] is not (isinstance(new, dict) and not isinstance(old, dict))


async def test_each_review_is_measured() -> None:
    measured: list[tuple[str, int]] = []
    pages = webhook_handlers(KINDS, lambda path, code, seconds: measured.append((path, code)))
    await pages[path_of("TFJob")](Request("", {}, "", b"nonsense"))
    assert measured == [("/validate-kubeflow-org-v1-tfjob", 400)]
