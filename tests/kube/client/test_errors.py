"""Error responses as exceptions."""

import pickle

import msgspec
import pytest

from trainwright.kube.client import errors
from trainwright.kube.client.errors import ApiError, Cause, error_from_response, error_from_status
from trainwright.objects import Object


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Expired),
        (415, "UnsupportedMediaType", ApiError),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.ServerError),
        (503, "ServiceUnavailable", errors.Unavailable),
        (504, "Timeout", errors.ServerError),
    ],
)
def test_code_and_reason_decide_the_kind(code: int, reason: str, kind: type[ApiError]) -> None:
    status = {"kind": "Status", "code": code, "reason": reason, "message": "so"}
    error = error_from_response(code, msgspec.json.encode(status))
    assert type(error) is kind
    assert (error.code, error.reason, error.message, str(error)) == (code, reason, "so", "so")
    assert error.status == status


@pytest.mark.parametrize(
    ("body", "message"), [(b"404 page not found\n", "404 page not found"), (b"", "HTTP 404"), (b"\xff{", "\ufffd{")]
)
def test_body_that_is_not_a_status_becomes_the_message(body: bytes, message: str) -> None:
    error = error_from_response(404, body)
    assert isinstance(error, errors.NotFound)
    assert error.message == message


def test_json_that_is_no_status_is_shown_as_it_is() -> None:
    assert error_from_response(502, b'{"error":"x"}').message == '{"error":"x"}'


def test_an_already_existing_object_is_not_a_conflict() -> None:
    error = error_from_status({"code": 409, "reason": "AlreadyExists"})
    assert not isinstance(error, errors.Conflict)
    assert error.message == "AlreadyExists"


def test_errors_survive_the_way_to_another_process() -> None:
    error = pickle.loads(pickle.dumps(error_from_response(429, b"slow down", retry_after=2.0)))  # noqa: S301
    assert isinstance(error, errors.TooManyRequests)
    assert (error.message, error.retry_after) == ("slow down", 2.0)


@pytest.mark.parametrize("details", [None, {}, {"causes": None}, {"causes": []}])
def test_a_refusal_may_have_no_causes(details: Object | None) -> None:
    assert error_from_status({"code": 409, "details": details}).causes == ()


def test_causes_say_what_they_can() -> None:
    causes = [{"reason": "FieldManagerConflict", "message": "m", "field": ".spec"}, {"message": "only this"}]
    refused = error_from_status({"code": 409, "details": {"causes": causes}})
    assert refused.causes == (Cause("FieldManagerConflict", "m", ".spec"), Cause("", "only this", ""))
