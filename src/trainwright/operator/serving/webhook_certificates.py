"""The certificates of the admission webhooks, as values: an authority of our own and the server's certificate.

They live in one Secret under the keys that training-operator uses, so that either can follow the other. Whether a set
is still good is decided here; `webhook_setup` moves it to and from the cluster.
"""

import ipaddress
import os
import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from trainwright.net.certificate_authority import Authority, new_authority

if TYPE_CHECKING:
    from cryptography import x509

AUTHORITY_LIFETIME = timedelta(days=3650)
SERVER_LIFETIME = timedelta(days=365)
RENEW_BEFORE = timedelta(days=90)

KEYS = ("ca.crt", "ca.key", "tls.crt", "tls.key")


@dataclass(frozen=True, slots=True)
class Certificates:
    """All in PEM."""

    authority: bytes
    authority_key: bytes
    server: bytes
    server_key: bytes

    def as_data(self) -> dict[str, bytes]:
        """By the Secret's keys."""
        return dict(zip(KEYS, (self.authority, self.authority_key, self.server, self.server_key), strict=True))


def read_certificates(data: Mapping[str, bytes]) -> Certificates | None:
    """What the Secret holds; None if a part is missing, as in the empty Secret of a fresh installation."""
    parts = [data.get(key) or b"" for key in KEYS]
    return Certificates(*parts) if all(parts) else None


def renewed(present: Certificates | None, names: Collection[str], now: datetime) -> Certificates | None:
    """The set that shall take the place of the present one; None if that will do.

    An authority that is good stays: whoever trusts it trusts the next server's certificate too. The names of the
    present certificate stay as well: two operators that share a Secret would else replace it in turns, for ever.
    """
    wanted = {_spelling(name) for name in names}
    authority = None if present is None else _read_authority(present, now)
    server = None if present is None or authority is None else _read_server(present, authority)
    known = set[str]() if server is None else _names_of(server)
    if server is not None and _lasts(server, now) and wanted <= known:
        return None
    if authority is None:
        authority = new_authority(
            "training-operator-ca", organization="training-operator", now=now, lifetime=AUTHORITY_LIFETIME
        )
    pem, key = authority.issue(wanted | known, now=now, lifetime=SERVER_LIFETIME)
    return Certificates(authority.pem, authority.key_pem, pem, key)


def load_into(context: ssl.SSLContext, certificates: Certificates) -> None:
    """Puts the server's certificate into a context, for all connections that begin from now on.

    The ssl module reads files alone; this one is in memory and has no name that another process could open.
    """
    descriptor = os.memfd_create("webhook-certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, certificates.server_key + b"\n" + certificates.server)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _read_authority(present: Certificates, now: datetime) -> Authority | None:
    """None if it is about to expire, or if key and certificate are not a pair that can sign."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    try:
        certificate = x509.load_pem_x509_certificate(present.authority)
        key = serialization.load_pem_private_key(present.authority_key, password=None)
        may_sign = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (ValueError, TypeError, x509.ExtensionNotFound):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        return None
    pair = certificate.public_key() == key.public_key()
    return Authority(certificate, key) if pair and may_sign and _lasts(certificate, now) else None


def _read_server(present: Certificates, authority: Authority) -> "x509.Certificate | None":
    """None if it is not the authority's, or cannot be served."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import serialization

    try:
        certificate = x509.load_pem_x509_certificate(present.server)
        key = serialization.load_pem_private_key(present.server_key, password=None)
        certificate.verify_directly_issued_by(authority.certificate)
        # The last word is that of the library which has to serve it: a chain with a broken end, a key too short.
        load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), present)
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


def _spelling(name: str) -> str:
    """Certificates have one spelling of an address."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def _lasts(certificate: "x509.Certificate", now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now and now + RENEW_BEFORE < certificate.not_valid_after_utc
