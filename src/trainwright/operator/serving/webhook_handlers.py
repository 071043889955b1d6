"""Answers the reviews of the validating admission webhooks, at upstream's paths.

All of upstream's paths are served, even those of kinds that are not enabled: if a path in the
ValidatingWebhookConfiguration answered 404, no job of its kind could be created.
"""

from collections.abc import Awaitable, Callable, Mapping
from time import monotonic

import msgspec

from trainwright.api.job_admission import Admission, review
from trainwright.api.kinds import Kind
from trainwright.objects import Object
from trainwright.operator.serving.http_server import Handler, Request, Response, route
from trainwright.operator.setup.webhook_installation import webhook_path

UPSTREAM_KINDS = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")
"""The kinds in upstream's ValidatingWebhookConfiguration."""

Reviewed = Callable[[str, int, float], None]
"""Called with the path, the HTTP status code and the duration of each review."""


def webhook_handlers(kinds: Mapping[str, Kind], reviewed: Reviewed | None = None) -> dict[str, Handler]:
    """The handlers by path. Jobs of kinds that are not enabled are allowed, with a warning."""
    names = dict.fromkeys((*UPSTREAM_KINDS, *kinds))
    return {webhook_path(name): _handler(webhook_path(name), name, kinds.get(name), reviewed) for name in names}


def local_webhooks(kinds: Mapping[str, Kind]) -> Callable[[str, bytes], Awaitable[tuple[int, bytes]]]:
    """The webhooks for an API server in the same process: from path and body to status code and body."""
    handle = route(webhook_handlers(kinds))

    async def answer(path: str, body: bytes) -> tuple[int, bytes]:
        response = await handle(Request(path, {}, "", body))
        return response.status, response.body

    return answer


def admit(kind: Kind, request: Object) -> Object:
    """The response to the `request` of a review."""
    new, old = request.get("object"), request.get("oldObject")
    # A review without an object is about a deletion.
    verdict = review(kind, new, old if isinstance(old, dict) else None) if isinstance(new, dict) else Admission()
    response: Object = {"uid": request.get("uid", ""), "allowed": verdict.allowed}
    if not verdict.allowed:
        response["status"] = {"code": 403, "reason": "Forbidden", "message": verdict.message}
    if verdict.warnings:
        response["warnings"] = list(verdict.warnings)
    return response


def allow_unvalidated(name: str, request: Object) -> Object:
    warning = f"this operator does not support {name}: it neither validates nor runs the job"
    return {"uid": request.get("uid", ""), "allowed": True, "warnings": [warning]}


def _handler(path: str, name: str, kind: Kind | None, reviewed: Reviewed | None) -> Handler:
    async def handle(request: Request) -> Response:
        started = monotonic()
        response = _review(name, kind, request.body)
        if reviewed is not None:
            reviewed(path, response.status, monotonic() - started)
        return response

    return handle


def _review(name: str, kind: Kind | None, body: bytes) -> Response:
    try:
        asked = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        return Response(400, f"not an AdmissionReview: {error}\n".encode())
    if asked.kind != "AdmissionReview" or asked.api_version != "admission.k8s.io/v1":
        return Response(
            400, f"not an AdmissionReview of admission.k8s.io/v1 but {asked.api_version} {asked.kind}\n".encode()
        )
    response = allow_unvalidated(name, asked.request) if kind is None else admit(kind, asked.request)
    body = msgspec.json.encode({"apiVersion": asked.api_version, "kind": asked.kind, "response": response})
    return Response(200, body, "application/json")


class _AdmissionReview(msgspec.Struct, rename="camel"):
    request: Object
    kind: str = ""
    api_version: str = ""


_decoder = msgspec.json.Decoder(_AdmissionReview)
