"""The certificates of the admission webhooks: a certificate authority of the operator and a server certificate.

The Secret has the same keys as training-operator's, so that either operator can replace the other. This module decides
whether certificates are still valid; `webhook_server` reads and writes the Secret.
"""

import ipaddress
import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from trainwright.kube.client.credentials import load_certificate
from trainwright.net.certificate_authority import Authority, load_authority, new_authority

if TYPE_CHECKING:
    from cryptography import x509

AUTHORITY_LIFETIME = timedelta(days=3650)
SERVER_LIFETIME = timedelta(days=365)
RENEW_BEFORE = timedelta(days=90)

KEYS = ("ca.crt", "ca.key", "tls.crt", "tls.key")


@dataclass(frozen=True, slots=True)
class Certificates:
    """All fields are PEM."""

    authority: bytes
    authority_key: bytes
    server: bytes
    server_key: bytes

    def as_data(self) -> dict[str, bytes]:
        """By the keys of the Secret."""
        return dict(zip(KEYS, (self.authority, self.authority_key, self.server, self.server_key), strict=True))


def read_certificates(data: Mapping[str, bytes]) -> Certificates | None:
    """The certificates in the Secret; None if a key is missing, as in the empty Secret of a new installation."""
    values = [data.get(key) or b"" for key in KEYS]
    return Certificates(*values) if all(values) else None


def renewed(present: Certificates | None, names: Collection[str], now: datetime) -> Certificates | None:
    """New certificates to replace the present ones; None if the present ones are valid and cover the names.

    A valid authority is kept: clients that trust it trust the next server certificate too. The names of the present
    certificate are kept as well: otherwise two operators that share a Secret would replace it in turns.
    """
    wanted = {_canonical(name) for name in names}
    authority = None if present is None else _read_authority(present, now)
    server = None if present is None or authority is None else _read_server(present, authority)
    known = set[str]() if server is None else _names_of(server)
    if server is not None and _is_valid(server, now) and wanted <= known:
        return None
    if authority is None:
        authority = new_authority(
            "training-operator-ca", organization="training-operator", now=now, lifetime=AUTHORITY_LIFETIME
        )
    pem, key = authority.issue(wanted | known, now=now, lifetime=SERVER_LIFETIME)
    return Certificates(authority.pem, authority.key_pem, pem, key)


def _read_authority(present: Certificates, now: datetime) -> Authority | None:
    """None if it expires soon, or if key and certificate do not match or cannot sign."""
    from cryptography import x509

    try:
        authority = load_authority(present.authority, present.authority_key)
        certificate = authority.certificate
        can_sign = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (ValueError, TypeError, x509.ExtensionNotFound):
        return None
    is_pair = certificate.public_key() == authority.key.public_key()
    return authority if is_pair and can_sign and _is_valid(certificate, now) else None


def _read_server(present: Certificates, authority: Authority) -> "x509.Certificate | None":
    """None if the authority has not issued it, or if it cannot be served."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import serialization

    try:
        certificate = x509.load_pem_x509_certificate(present.server)
        key = serialization.load_pem_private_key(present.server_key, password=None)
        certificate.verify_directly_issued_by(authority.certificate)
        # The ssl module rejects more: a truncated chain, or a key that is too short.
        load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), present.server, present.server_key)
    except (ValueError, TypeError, InvalidSignature, ssl.SSLError):
        return None
    return certificate if certificate.public_key() == key.public_key() else None


def _names_of(certificate: "x509.Certificate") -> set[str]:
    from cryptography import x509

    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = alternatives.get_values_for_type(x509.IPAddress)
    return {*alternatives.get_values_for_type(x509.DNSName), *map(str, addresses)}


def _canonical(name: str) -> str:
    """The canonical form of an address, as in certificates."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def _is_valid(certificate: "x509.Certificate", now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now and now + RENEW_BEFORE < certificate.not_valid_after_utc
