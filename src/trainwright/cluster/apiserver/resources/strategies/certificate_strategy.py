"""CertificateSigningRequests: their checks, and the conditions that approve or deny them."""

import base64
import binascii
import re
from collections.abc import Iterator

from trainwright.cluster.apiserver.resources.resource_type import Strategy, clear_status, keep_spec
from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError, invalid, not_supported, required

_USAGES = (
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment",
    "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel",
    "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime",
    "server auth", "signing", "timestamping",
)  # fmt: skip
_SIGNER = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?\.[a-z0-9]([-a-z0-9]*[a-z0-9])?/\S+")
_SHORTEST_SECONDS = 600
_PEM = re.compile(
    rb"\s*-----BEGIN CERTIFICATE REQUEST-----\s+([A-Za-z0-9+/=\s]+)-----END CERTIFICATE REQUEST-----\s*", re.DOTALL
)
DECIDED = {"Approved": "Denied", "Denied": "Approved"}
"""The condition that excludes another one."""


def _set_user(request: Object, user: Object) -> None:
    """The server says who asks: what the client sends about that is ignored."""
    for field in ("username", "uid", "groups", "extra"):
        request["spec"].pop(field, None)
    request["spec"] |= user


def _keep_decisions(new: Object, old: Object) -> None:
    """Requests are approved and denied by another subresource, which needs the permission of the signer."""
    status = dict(new.get("status") or {})
    others = [condition for condition in status.pop("conditions", None) or () if condition.get("type") not in DECIDED]
    before = (old.get("status") or {}).get("conditions") or ()
    kept = [condition for condition in before if condition.get("type") in DECIDED]
    new["status"] = status | ({"conditions": [*kept, *others]} if kept or others else {})


def pem_of(request: Object) -> bytes:
    """The PEM of a request that is valid."""
    return base64.b64decode(request["spec"]["request"])


def _errors(request: Object) -> Iterator[FieldError]:
    spec = request.get("spec") or {}
    text = spec.get("request") or ""
    if problem := _request_problem(text):
        yield invalid("spec.request", text, problem)
    if not spec.get("usages"):
        yield required("spec.usages")
    for index, usage in enumerate(spec.get("usages") or ()):
        if usage not in _USAGES:
            yield not_supported(f"spec.usages[{index}]", usage, _USAGES)
    signer = spec.get("signerName") or ""
    if not signer:
        yield required("spec.signerName")
    elif not _SIGNER.fullmatch(signer):
        yield invalid(
            "spec.signerName", signer, "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        )
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < _SHORTEST_SECONDS:
        detail = f"may not specify a duration less than {_SHORTEST_SECONDS} seconds (10 minutes)"
        yield invalid("spec.expirationSeconds", seconds, detail)


def _request_problem(text: str) -> str | None:
    try:
        found = _PEM.fullmatch(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        found = None
    if found is None:
        return "PEM block type must be CERTIFICATE REQUEST"
    try:
        der = base64.b64decode(b"".join(found[1].split()), validate=True)
    except binascii.Error:
        return "PEM block type must be CERTIFICATE REQUEST"
    return None if _is_whole(der) else "asn1: syntax error: data truncated"


def _is_whole(der: bytes) -> bool:
    """Whether it is one ASN.1 sequence with all its bytes; the signer reads what is in it."""
    if len(der) < 2 or der[0] != 0x30:
        return False
    if der[1] < 0x80:
        return len(der) == 2 + der[1]
    size = der[1] & 0x7F
    return len(der) == 2 + size + int.from_bytes(der[2 : 2 + size])


def condition_errors(new: Object, old: Object) -> list[FieldError]:
    """Errors of the conditions that a client wants to set: a decision is final."""
    before = {condition.get("type"): condition for condition in (old.get("status") or {}).get("conditions") or ()}
    after = {condition.get("type"): condition for condition in (new.get("status") or {}).get("conditions") or ()}
    found = [
        invalid("status.conditions", kind, f"updates may not remove a condition of type {kind!r}")
        for kind in sorted(before.keys() - after.keys())
    ]
    for index, condition in enumerate((new.get("status") or {}).get("conditions") or ()):
        path = f"status.conditions[{index}]"
        if not condition.get("type"):
            found.append(required(f"{path}.type"))
        elif condition["type"] in DECIDED and condition.get("status") != "True":
            found.append(not_supported(f"{path}.status", condition.get("status", ""), ["True"]))
        elif DECIDED.get(condition["type"]) in after:
            found.append(
                invalid(f"{path}.type", condition["type"], "Approved and Denied conditions are mutually exclusive")
            )
    return found


CERTIFICATE_SIGNING_REQUEST = Strategy(
    set_user=_set_user,
    prepare_for_create=clear_status,
    prepare_for_update=keep_spec,
    prepare_for_status_update=_keep_decisions,
    validate=_errors,
)
