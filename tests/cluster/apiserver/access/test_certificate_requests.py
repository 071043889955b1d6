"""CertificateSigningRequests: the server says who asks, however the request is created.

Every test here passes unchanged on the embedded server and on the real kube-apiserver.
"""

import base64
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tests.support.cluster.raw_api import APPLY, RawApi, Reply
from trainwright.cluster.apiserver.access.certificate_signer import SIGNER
from trainwright.objects.resources import CERTIFICATE_SIGNING_REQUESTS

FORGED = {"username": "boss", "uid": "1", "groups": ["system:nodes"], "extra": {"scopes": ["all"]}}


def certificate_request(name: str, *groups: str, **spec: Any) -> dict[str, Any]:
    """For jane, a member of the groups."""
    names = [(NameOID.ORGANIZATION_NAME, group) for group in groups] + [(NameOID.COMMON_NAME, "jane")]
    subject = x509.Name([x509.NameAttribute(field, value) for field, value in names])
    signed = x509.CertificateSigningRequestBuilder().subject_name(subject)
    pem = signed.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(Encoding.PEM)
    fields = {"request": base64.b64encode(pem).decode(), "signerName": SIGNER, "usages": ["client auth"]}
    return {
        "apiVersion": CERTIFICATE_SIGNING_REQUESTS.api_version,
        "kind": CERTIFICATE_SIGNING_REQUESTS.kind,
        "metadata": {"name": name},
        "spec": fields | spec,
    }


@pytest.fixture(params=["create", "apply"])
def verb(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def send(api: RawApi, verb: str, body: dict[str, Any]) -> Reply:
    path = CERTIFICATE_SIGNING_REQUESTS.path()
    if verb == "create":
        return await api.post(path, body)
    return await api.patch(f"{path}/{body['metadata']['name']}?fieldManager=jane", body, APPLY)


async def test_the_requestor_is_the_sender_whatever_the_request_says(api: RawApi, verb: str) -> None:
    review = await api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    name = f"{verb}-{api.namespace}"
    reply = await send(api, verb, certificate_request(name, "team", **FORGED))
    assert reply.code == 201, reply.body
    sender = review.body["status"]["userInfo"]
    assert {field: reply.body["spec"][field] for field in FORGED if field in reply.body["spec"]} == sender
    changed = await api.patch(f"{CERTIFICATE_SIGNING_REQUESTS.path()}/{name}", {"spec": FORGED})
    assert changed.body["spec"] == reply.body["spec"]


async def test_nobody_asks_for_the_group_of_administrators(api: RawApi, verb: str) -> None:
    name = f"masters-{verb}-{api.namespace}"
    reply = await send(api, verb, certificate_request(name, "team", "system:masters"))
    assert reply.code == 403
    assert reply.message.endswith(f"use of {SIGNER} signer with system:masters group is not allowed")
    other = certificate_request(name, "system:masters", signerName="example.com/mine")
    assert (await send(api, verb, other)).code == 201
