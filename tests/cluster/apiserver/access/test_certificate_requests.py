"""CertificateSigningRequests: the server says who asks, however the request is created, and who may sign.

Every test here passes unchanged on the embedded server and on the real kube-apiserver.
"""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tests.support.cluster.api_users import ApiUser, user
from tests.support.cluster.raw_api import APPLY, MERGE, RawApi, Reply
from tests.support.waiting import eventually
from trainwright.cluster.apiserver.access.certificate_signer import SIGNER
from trainwright.net.certificate_authority import new_authority
from trainwright.objects.resources import CERTIFICATE_SIGNING_REQUESTS, CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES

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


GROUP = CERTIFICATE_SIGNING_REQUESTS.group


async def grant_everywhere(api: RawApi, name: str, *rules: dict[str, Any]) -> ApiUser:
    """A user of this name with these rules for the group of the requests."""
    role = {"metadata": {"name": name}, "rules": [{"apiGroups": [GROUP], **rule} for rule in rules]}
    assert (await api.post(CLUSTER_ROLES.path(), role)).code == 201
    binding = {"metadata": {"name": name}, "roleRef": {"kind": "ClusterRole", "name": name}}
    subjects = [{"kind": "User", "name": name}]
    assert (await api.post(CLUSTER_ROLE_BINDINGS.path(), {**binding, "subjects": subjects})).code == 201
    granted = user(api, name)
    attributes = {"group": GROUP, "subresource": "status"}
    await eventually(lambda: granted.is_allowed("patch", CERTIFICATE_SIGNING_REQUESTS.plural, **attributes), bool)
    return granted


@pytest.mark.parametrize("permission", ["example.com/mine", "example.com/*"])
async def test_only_users_with_the_permission_to_sign_write_certificates(api: RawApi, permission: str) -> None:
    suffix = f"{'all' if '*' in permission else 'mine'}-{api.namespace}"
    write = {"resources": ["certificatesigningrequests/status"], "verbs": ["patch"]}
    sign = {"resources": ["signers"], "resourceNames": [permission], "verbs": ["sign"]}
    writer = await grant_everywhere(api, f"writer-{suffix}", write)
    signer = await grant_everywhere(api, f"signer-{suffix}", write, sign)
    name = f"signed-{suffix}"
    assert (await send(api, "create", certificate_request(name, signerName="example.com/mine"))).code == 201
    path = f"{CERTIFICATE_SIGNING_REQUESTS.path()}/{name}/status"
    pem = new_authority("test", now=datetime.now(UTC), lifetime=timedelta(days=1)).pem
    failed = {"conditions": [{"type": "Failed", "status": "True", "reason": "Tried"}]}

    for status in ({"certificate": base64.b64encode(pem).decode()}, failed):
        refused = await writer.send("PATCH", path, {"status": status}, content_type=MERGE)
        assert refused.code == 403
        assert refused.message == (
            f'certificatesigningrequests.certificates.k8s.io "{name}" is forbidden: user not permitted to sign '
            'requests with signerName "example.com/mine"'
        )
        signed = await signer.send("PATCH", path, {"status": status}, content_type=MERGE)
        assert signed.code == 200, signed.body
    labels = {"metadata": {"labels": {"seen": "yes"}}}
    assert (await writer.send("PATCH", path, labels, content_type=MERGE)).code == 200
