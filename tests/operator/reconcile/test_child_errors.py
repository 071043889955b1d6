"""Which refusals of a child are final, and which field of the job they are blamed on."""

import pytest

from trainwright.kube.client.errors import ApiError, BadRequest, Forbidden, Invalid, Unreachable
from trainwright.objects import Object
from trainwright.operator.reconcile.child_errors import final_refusal

TEMPLATE = "spec.pytorchReplicaSpecs[Worker].template"
FIELD = {"reason": "FieldValueInvalid", "message": "Invalid value", "field": "spec.containers[0].name"}


def said(error: type[ApiError], message: str, *causes: Object) -> ApiError:
    return error({"message": message, "details": {"causes": list(causes)}})


@pytest.mark.parametrize(
    "error",
    [
        said(Invalid, 'Pod "a" is invalid: spec.containers[0].name: Invalid value: ""', FIELD),
        said(
            BadRequest, 'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.a"'
        ),
    ],
)
def test_a_field_that_the_server_finds_wrong_is_final(error: ApiError) -> None:
    assert final_refusal(TEMPLATE, error) == f"{TEMPLATE}: {error}"


@pytest.mark.parametrize(
    "error",
    [
        said(Forbidden, 'pods "a" is forbidden: exceeded quota', FIELD),
        said(Invalid, 'admission webhook "x.example.com" denied the request: spec.a: Invalid value: 1', FIELD),
        said(BadRequest, 'admission webhook "x.example.com" denied the request: the queue is closed'),
        # A ValidatingAdmissionPolicy answers so.
        said(Invalid, 'pods "a" is forbidden: policy denied request: not today', {"message": "not today"}),
        Invalid({"message": "no details", "details": None}),
        Unreachable("cannot connect"),
    ],
)
def test_what_may_change_without_the_job_is_not_final(error: Exception) -> None:
    assert final_refusal(TEMPLATE, error) is None
