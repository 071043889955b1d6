"""A certificate authority for the embedded API server and for the operator's webhooks.

`cryptography` is imported on use: its import takes a tenth of a second.
"""

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

_BACKDATED = timedelta(hours=1)
"""For clients whose clock is behind."""


class InvalidRequestError(ValueError):
    """A certificate signing request that cannot be signed."""


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA certificate and its key."""

    certificate: "x509.Certificate"
    key: "ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey"

    @property
    def pem(self) -> bytes:
        from cryptography.hazmat.primitives.serialization import Encoding

        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return _key_pem(self.key)

    def issue(self, names: Collection[str], *, now: datetime, lifetime: timedelta) -> tuple[bytes, bytes]:
        """A server certificate for these names and addresses, and its key, both in PEM."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = [_alternative(name) for name in sorted(names)]
        # A common name has at most 64 characters; clients check the alternative names.
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, min(names)[:64])])
        # A certificate that outlives its authority would be rejected before it expires.
        end = min(now + lifetime, self.certificate.not_valid_after_utc)
        certificate = (
            _builder(subject, self.certificate.subject, key.public_key(), now, end)
            .add_extension(_issued_by(self.key), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return certificate.public_bytes(Encoding.PEM), _key_pem(key)

    def sign_client(self, request: bytes, *, now: datetime, lifetime: timedelta) -> bytes:
        """A client certificate (PEM) for the subject and the key of a certificate signing request (PEM)."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
        from cryptography.hazmat.primitives.serialization import Encoding
        from cryptography.x509.oid import ExtendedKeyUsageOID

        try:
            wanted = x509.load_pem_x509_csr(request)
            key, valid = wanted.public_key(), wanted.is_signature_valid
        except (ValueError, TypeError) as error:
            raise InvalidRequestError(f"the request cannot be read: {error}") from error
        if not valid:
            raise InvalidRequestError("the signature of the request is not that of its key")
        if not isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey):
            raise InvalidRequestError("the key must be RSA, ECDSA or Ed25519")
        end = min(now + lifetime, self.certificate.not_valid_after_utc)
        certificate = (
            _builder(wanted.subject, self.certificate.subject, key, now, end)
            .add_extension(_issued_by(self.key), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return certificate.public_bytes(Encoding.PEM)


def organizations_of(request: bytes) -> list[str]:
    """The organizations in the subject of a certificate signing request (PEM); none if it cannot be read."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        subject = x509.load_pem_x509_csr(request).subject
        return [str(organization.value) for organization in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    except (ValueError, TypeError):
        return []


def load_authority(certificate: bytes, key: bytes) -> Authority:
    """From PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    loaded = load_pem_private_key(key, password=None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise TypeError("the key of a CA is RSA or ECDSA")
    return Authority(x509.load_pem_x509_certificate(certificate), loaded)


def new_authority(name: str, *, now: datetime, lifetime: timedelta, organization: str | None = None) -> Authority:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [(NameOID.ORGANIZATION_NAME, organization), (NameOID.COMMON_NAME, name)]
    subject = x509.Name([x509.NameAttribute(oid, text) for oid, text in attributes if text])
    certificate = (
        _builder(subject, subject, key.public_key(), now, now + lifetime)
        .add_extension(_issued_by(key), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def _builder(
    subject: "x509.Name",
    issuer: "x509.Name",
    key: "ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey",
    now: datetime,
    end: datetime,
) -> "x509.CertificateBuilder":
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - _BACKDATED)
        .not_valid_after(end.astimezone(UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _issued_by(key: "ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey") -> "x509.AuthorityKeyIdentifier":
    """Required by strict clients, such as Python 3.13."""
    from cryptography import x509

    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _alternative(name: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def new_key_pem() -> bytes:
    """A new private key in PEM."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return _key_pem(ec.generate_private_key(ec.SECP256R1()))


def _key_pem(key: "ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _key_usage(*, signs_certificates: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
