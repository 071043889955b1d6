"""The certificates of the embedded API server: an authority of its own and one certificate for the loopback names.

They are made once and kept, so that kubeconfigs stay valid; the authority's key is thrown away once it has signed.
"""

import ipaddress
import os
import shutil
import ssl
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509

LIFETIME = timedelta(days=3650)
RENEW_BEFORE = timedelta(days=30)


def server_context(directory: Path) -> tuple[ssl.SSLContext, bytes]:
    """What the server needs for TLS, and the authority's certificate (PEM) that clients are to trust.

    What is missing, broken or about to expire is made anew.
    """
    if not _usable(directory):
        _make(directory)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem")
    return context, (directory / "ca.pem").read_bytes()


def _usable(directory: Path) -> bool:
    """Asked of the ssl module alone: loading `cryptography` would cost each start a tenth of a second."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(directory / "server.pem")
        authority = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        authority.load_verify_locations(directory / "ca.pem")
        # Both certificates were signed in the same moment for the same time, so the authority's end is the server's.
        ends = [ssl.cert_time_to_seconds(str(found["notAfter"])) for found in authority.get_ca_certs()]
    except (OSError, ValueError):  # ssl.SSLError is an OSError
        return False
    return bool(ends) and min(ends) > time.time() + RENEW_BEFORE.total_seconds()


def _make(directory: Path) -> None:
    """Writes the pair into a fresh directory that takes its place in one step: a crash never leaves half a pair."""
    authority, server = _issue(datetime.now(UTC))
    fresh = directory.with_name(directory.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    for name, content in (("ca.pem", authority), ("server.pem", server)):
        descriptor = os.open(fresh / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    shutil.rmtree(directory, ignore_errors=True)
    fresh.rename(directory)


def _issue(now: datetime) -> tuple[bytes, bytes]:
    """The authority's certificate, and the server's key followed by its certificate, both PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name = named("trainwright embedded cluster")
    authority_id = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    begin, end = now - timedelta(hours=1), now + LIFETIME  # an hour back, for clocks that are set right later

    def started(subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(authority_name).public_key(key)
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)
        return builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_id), critical=False
        )

    authority = (
        started(authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(authority_id, critical=False)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    loopback = [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")]
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), *(x509.IPAddress(address) for address in loopback)]
    server = (
        started(named("trainwright"), server_key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(server_key.public_key()), critical=False)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key = server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return authority.public_bytes(pem), key + server.public_bytes(pem)


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
