"""Approved requests are signed for clients of the API server; all others are left, or fail with a reason."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trainwright.cluster.apiserver.access.certificate_signer import SIGNER, CertificateSigner
from trainwright.net.certificate_authority import new_authority
from trainwright.objects import Object

NOW = datetime(2026, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=365)
AUTHORITY = new_authority("test", now=NOW, lifetime=10 * YEAR)
APPROVED = {"type": "Approved", "status": "True"}


def pem(*groups: str) -> str:
    """Asks for a certificate of jane, a member of the groups."""
    names = [(NameOID.ORGANIZATION_NAME, group) for group in groups] + [(NameOID.COMMON_NAME, "jane")]
    subject = x509.Name([x509.NameAttribute(field, value) for field, value in names])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject)
    signed = request.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return base64.b64encode(signed.public_bytes(Encoding.PEM)).decode()


def request(*groups: str, conditions: list[Object] | None = None, **spec: Any) -> Object:
    fields = {"request": pem(*groups), "signerName": SIGNER, "usages": ["client auth"], **spec}
    status = {"conditions": [APPROVED] if conditions is None else conditions}
    return {"metadata": {"name": "jane"}, "spec": fields, "status": status}


def signed(asked: Object) -> Object:
    signer = CertificateSigner(lambda: AUTHORITY)
    assert signer.is_responsible(asked)
    return signer.signed(asked, NOW)


@pytest.mark.parametrize(
    ("spec", "lifetime"),
    [({}, YEAR), ({"expirationSeconds": 600}, timedelta(minutes=10)), ({"expirationSeconds": 10**9}, YEAR)],
)
def test_certificate_is_for_the_subject_and_as_long_as_asked_within_a_year(spec: Object, lifetime: timedelta) -> None:
    status = signed(request("team", **spec))
    certificate = x509.load_pem_x509_certificate(base64.b64decode(status["certificate"]))
    assert certificate.not_valid_after_utc == NOW + lifetime
    assert certificate.subject.rfc4514_string() == "CN=jane,O=team"
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert status["conditions"] == [APPROVED]


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (request("system:masters"), "the group system:masters is not allowed"),
        (request(usages=["digital signature"]), "usages did not match: client auth is missing"),
        (request(usages=None), "usages did not match: client auth is missing"),
        (request(usages=["client auth", "server auth"]), "usages did not match: server auth not allowed"),
        (request(request=base64.b64encode(b"broken").decode()), "the request cannot be read: "),
    ],
)
def test_request_that_cannot_be_signed_fails_with_a_reason(asked: Object, problem: str) -> None:
    status = signed(asked)
    assert "certificate" not in status
    approved, failed = status["conditions"]
    assert (approved, failed["type"], failed["reason"]) == (APPROVED, "Failed", "SignerValidationFailure")
    assert failed["message"].startswith(problem)
    assert not CertificateSigner(lambda: AUTHORITY).is_responsible(asked | {"status": status})


@pytest.mark.parametrize(
    "asked",
    [
        request(conditions=[]),
        request(conditions=[APPROVED, {"type": "Denied", "status": "True"}]),
        request(conditions=[{"type": "Denied", "status": "True"}]),
        request(signerName="example.com/mine"),
        request() | {"status": {"conditions": [APPROVED], "certificate": "x"}},
        request() | {"status": None},
    ],
)
def test_request_that_is_not_approved_or_of_another_signer_is_left(asked: Object) -> None:
    assert not CertificateSigner(lambda: AUTHORITY).is_responsible(asked)
