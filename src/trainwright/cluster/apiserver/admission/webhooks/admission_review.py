"""AdmissionReviews: the question to a webhook, and its checked answer."""

import base64
import binascii
from dataclasses import dataclass
from typing import Any

import msgspec

from trainwright.cluster.apiserver.admission.webhooks.registered_webhooks import AdmissionRequest, Invocation
from trainwright.cluster.apiserver.errors import StatusError
from trainwright.objects import Object
from trainwright.objects.resources import Resource

_GROUP = "admission.k8s.io"


class InvalidResponseError(Exception):
    """The webhook's answer is not one to this question; the message says why."""


@dataclass(frozen=True, slots=True)
class Verdict:
    allowed: bool
    warnings: tuple[str, ...] = ()
    patch: Any = None
    """A JSON patch, decoded; None if there is none."""
    status: Object | None = None


def review_version(invocation: Invocation) -> str:
    """The first version of AdmissionReview that both sides know."""
    for version in invocation.webhook.versions:
        if version in {"v1", "v1beta1"}:
            return version
    raise InvalidResponseError("webhook does not accept known AdmissionReview versions (v1, v1beta1)")


def review_request(uid: str, asked: AdmissionRequest, invocation: Invocation) -> Object:
    """The AdmissionReview to send. Objects are in the version that the webhook's rule names."""
    operation = asked.operation
    requested, called = operation.kind.resource, invocation.kind.resource
    request: Object = {
        "uid": uid,
        "kind": _kind(called),
        "resource": _resource(called),
        "subResource": operation.subresource,
        "requestKind": _kind(requested),
        "requestResource": _resource(requested),
        "requestSubResource": operation.subresource,
        "name": operation.name,
        "namespace": operation.namespace,
        "operation": operation.verb,
        "userInfo": operation.user.as_object(),
        "object": _in_version(asked.new, requested, called),
        "oldObject": _in_version(asked.old, requested, called),
        "dryRun": operation.dry_run,
        "options": operation.options or None,
    }
    omitted = {"subResource", "requestSubResource", "name", "namespace"}
    kept = {key: value for key, value in request.items() if value != "" or key not in omitted}
    return {"kind": "AdmissionReview", "apiVersion": f"{_GROUP}/{review_version(invocation)}", "request": kept}


class _Response(msgspec.Struct, rename="camel"):
    uid: str = ""
    allowed: bool = False
    status: dict[str, Any] | None = None
    patch: str | None = None
    patch_type: str | None = None
    warnings: list[str] | None = None


class _Review(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    response: _Response | None = None


def read_verdict(body: bytes, uid: str, version: str, *, mutating: bool) -> Verdict:
    """The verdict in a webhook's answer; raises InvalidResponseError."""
    try:
        answer = msgspec.json.decode(body, type=_Review)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidResponseError(str(error)) from error
    response = answer.response
    if response is None:
        raise InvalidResponseError("webhook response was absent")
    if version == "v1":
        if response.uid != uid:
            raise InvalidResponseError(f'expected response.uid="{uid}", got "{response.uid}"')
        if (answer.kind, answer.api_version) != ("AdmissionReview", f"{_GROUP}/v1"):
            raise InvalidResponseError(
                f"expected webhook response of {_GROUP}/v1, Kind=AdmissionReview, "
                f"got {answer.api_version or '/'}, Kind={answer.kind}"
            )
        _check_patch_type(response, mutating=mutating)
    warnings = tuple(response.warnings or ())
    return Verdict(response.allowed, warnings, _patch(response.patch) if mutating else None, response.status)


def denied(name: str, status: Object | None) -> StatusError:
    """The error that the client gets for a rejection."""
    given = status or {}
    code, reason, message = given.get("code"), given.get("reason"), given.get("message")
    text = f'admission webhook "{name}" denied the request'
    if isinstance(message, str) and message:
        text += f": {message}"
    elif isinstance(reason, str) and reason:
        text += f": {reason}"
    else:
        text += " without explanation"
    details = given.get("details")
    return StatusError(
        code if isinstance(code, int) and code >= 400 else 400,
        reason if isinstance(reason, str) else "",
        text,
        details if isinstance(details, dict) else None,
    )


def _check_patch_type(response: _Response, *, mutating: bool) -> None:
    if not mutating:
        for field, value in (("patch", response.patch), ("patchType", response.patch_type)):
            if value:
                raise InvalidResponseError(f"validating webhook may not return response.{field}")
    elif response.patch and response.patch_type is None:
        raise InvalidResponseError("webhook returned response.patch but not response.patchType")
    elif not response.patch and response.patch_type is not None:
        raise InvalidResponseError("webhook returned response.patchType but not response.patch")
    elif response.patch and response.patch_type != "JSONPatch":
        raise InvalidResponseError(f'unsupported patch type "{response.patch_type}"')


def _patch(text: str | None) -> Any:
    if not text:
        return None
    try:
        return msgspec.json.decode(base64.b64decode(text))
    except (binascii.Error, msgspec.DecodeError) as error:
        raise InvalidResponseError(f"received undecodable patch in webhook response: {error}") from error


def _in_version(obj: Object | None, requested: Resource, called: Resource) -> Object | None:
    if obj is None or requested == called or obj.get("kind") != requested.kind:
        return obj
    return obj | {"apiVersion": called.api_version}


def _kind(resource: Resource) -> Object:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _resource(resource: Resource) -> Object:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}
