"""The validating webhooks at upstream's paths: reads an AdmissionReview, answers what `api` says about the job.

All of upstream's paths are served whatever kinds are enabled: a path that stayed in the cluster's configuration and
answered 404 would block every creation of its kind.
"""

from collections.abc import Callable, Mapping
from time import monotonic

import msgspec

from trainwright.api.admission import Admission, review
from trainwright.api.kinds import GROUP, VERSION, Kind
from trainwright.objects import Object
from trainwright.operator.serving.http_server import Call, Page, Reply

UPSTREAM_KINDS = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")
"""Those that upstream's configuration sends to a webhook."""

Reviewed = Callable[[str, int, float], None]
"""Is told the path, the HTTP code and the seconds of each review."""


def path_of(kind: str) -> str:
    return f"/validate-{GROUP.replace('.', '-')}-{VERSION}-{kind.lower()}"


def webhook_pages(kinds: Mapping[str, Kind], reviewed: Reviewed | None = None) -> dict[str, Page]:
    """One page for each path. A kind that we do not know is let through, with a warning that nobody looked at it."""
    names = dict.fromkeys((*UPSTREAM_KINDS, *kinds))
    return {path_of(name): _page(path_of(name), name, kinds.get(name), reviewed) for name in names}


def admit(kind: Kind, request: Object) -> Object:
    """The response to the `request` of a review."""
    new, old = request.get("object"), request.get("oldObject")
    # Without a new object there is nothing to judge: that is a deletion.
    verdict = review(kind, new, old if isinstance(old, dict) else None) if isinstance(new, dict) else Admission()
    response: Object = {"uid": request.get("uid", ""), "allowed": verdict.allowed}
    if not verdict.allowed:
        response["status"] = {"code": 403, "reason": "Forbidden", "message": verdict.message}
    if verdict.warnings:
        response["warnings"] = list(verdict.warnings)
    return response


def let_through(name: str, request: Object) -> Object:
    warning = f"this operator does not know {name} yet: it was neither validated nor will it be run by it"
    return {"uid": request.get("uid", ""), "allowed": True, "warnings": [warning]}


def _page(path: str, name: str, kind: Kind | None, reviewed: Reviewed | None) -> Page:
    async def page(call: Call) -> Reply:
        began = monotonic()
        reply = _answer(name, kind, call.body)
        if reviewed is not None:
            reviewed(path, reply.status, monotonic() - began)
        return reply

    return page


def _answer(name: str, kind: Kind | None, body: bytes) -> Reply:
    try:
        asked = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        return Reply(400, f"not an AdmissionReview: {error}\n".encode())
    if asked.kind != "AdmissionReview" or asked.api_version != "admission.k8s.io/v1":
        return Reply(
            400, f"not an AdmissionReview of admission.k8s.io/v1 but {asked.api_version} {asked.kind}\n".encode()
        )
    response = let_through(name, asked.request) if kind is None else admit(kind, asked.request)
    answer = {"apiVersion": asked.api_version, "kind": asked.kind, "response": response}
    return Reply(200, msgspec.json.encode(answer), "application/json")


class _Review(msgspec.Struct, rename="camel"):
    request: Object
    kind: str = ""
    api_version: str = ""


_decoder = msgspec.json.Decoder(_Review)
