"""Which errors about a child are permanent, and which field of the job they name."""

import pytest

from trainwright.kube.client.errors import ApiError, BadRequest, Forbidden, Invalid, Unreachable
from trainwright.objects import Object
from trainwright.operator.reconcile.child_write_events import permanent_error

TEMPLATE = "spec.pytorchReplicaSpecs[Worker].template"
FIELD = {"reason": "FieldValueInvalid", "message": "Invalid value", "field": "spec.containers[0].name"}


def api_error(error: type[ApiError], message: str, *causes: Object) -> ApiError:
    return error({"message": message, "details": {"causes": list(causes)}})


@pytest.mark.parametrize(
    "error",
    [
        api_error(Invalid, 'Pod "a" is invalid: spec.containers[0].name: Invalid value: ""', FIELD),
        api_error(
            BadRequest, 'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.a"'
        ),
    ],
)
def test_rejected_field_is_a_permanent_error(error: ApiError) -> None:
    assert permanent_error(TEMPLATE, error) == f"{TEMPLATE}: {error}"


@pytest.mark.parametrize(
    "error",
    [
        api_error(Forbidden, 'pods "a" is forbidden: exceeded quota', FIELD),
        api_error(Invalid, 'admission webhook "x.example.com" denied the request: spec.a: Invalid value: 1', FIELD),
        api_error(BadRequest, 'admission webhook "x.example.com" denied the request: the queue is closed'),
        # The response of a ValidatingAdmissionPolicy.
        api_error(Invalid, 'pods "a" is forbidden: policy denied request: not today', {"message": "not today"}),
        Invalid({"message": "no details", "details": None}),
        Unreachable("cannot connect"),
    ],
)
def test_error_that_may_end_without_a_change_of_the_job_is_not_permanent(error: Exception) -> None:
    assert permanent_error(TEMPLATE, error) is None
