"""The keys of the embedded cluster: a CA of its own, a serving certificate for the loopback names, and the key of
service account tokens.

They are kept, so that kubeconfigs and tokens stay valid. The CA signs the certificates of clients, too.
"""

import ipaddress
import shutil
import ssl
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from trainwright.atomic_files import write_atomically
from trainwright.net.certificate_authority import Authority, load_authority, new_authority

SERVER_NAMES = (
    "localhost", "127.0.0.1", "::1",
    # The Service through which pods reach the server.
    "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
)  # fmt: skip
LIFETIME = timedelta(days=3650)
RENEW_BEFORE = timedelta(days=30)


def server_context(
    directory: Path, *, address: str | None = None, now: datetime | None = None
) -> tuple[ssl.SSLContext, bytes]:
    """The TLS context of the server, and the CA certificate (PEM) for clients. `address` is that of the Service through
    which pods reach it.

    A client may present a certificate of the CA. Files that are missing, broken or about to expire are created again,
    and the server's certificate alone if it lacks the address.
    """
    now = now or datetime.now(UTC)
    names = [*SERVER_NAMES, *([address] if address else [])]
    if not _is_valid(directory, now):
        _create(directory, names, now)
    elif address and not _has_address(directory, address):
        write_atomically(directory / "server.pem", _issue(authority(directory), names, now))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem")
    context.load_verify_locations(directory / "ca.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    return context, (directory / "ca.pem").read_bytes()


def authority(directory: Path) -> Authority:
    """The CA that `server_context` has created."""
    return load_authority((directory / "ca.pem").read_bytes(), (directory / "ca.key").read_bytes())


def service_account_key(path: Path) -> bytes:
    """The private key (PEM) that signs the tokens of service accounts; created on first use."""
    from trainwright.net.certificate_authority import new_key_pem

    with suppress(FileNotFoundError):
        return path.read_bytes()
    key = new_key_pem()
    write_atomically(path, key)
    return key


def _is_valid(directory: Path, now: datetime) -> bool:
    """Checked with the ssl module: importing `cryptography` takes a tenth of a second at every start."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(directory / "server.pem")
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(directory / "ca.pem", directory / "ca.key")
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.load_verify_locations(directory / "ca.pem")
        # The server's certificate expires with that of the CA.
        expiries = [ssl.cert_time_to_seconds(str(found["notAfter"])) for found in trusting.get_ca_certs()]
    except (OSError, ValueError):  # ssl.SSLError is an OSError
        return False
    return bool(expiries) and min(expiries) > (now + RENEW_BEFORE).timestamp()


def _has_address(directory: Path, address: str) -> bool:
    """Checked without `cryptography` too: an iPAddress of subjectAltName has tag 7 in DER."""
    pem = (directory / "server.pem").read_text()
    packed = ipaddress.ip_address(address).packed
    return bytes([0x87, len(packed)]) + packed in ssl.PEM_cert_to_DER_cert(pem[pem.index(ssl.PEM_HEADER) :])


def _create(directory: Path, names: Collection[str], now: datetime) -> None:
    """Writes the files into a new directory and renames it: a crash never leaves one without the others."""
    ca = new_authority("trainwright embedded cluster", now=now, lifetime=LIFETIME)
    server = _issue(ca, names, now)
    fresh = directory.with_name(directory.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    for name, content in (("ca.pem", ca.pem), ("ca.key", ca.key_pem), ("server.pem", server)):
        write_atomically(fresh / name, content)
    shutil.rmtree(directory, ignore_errors=True)
    fresh.rename(directory)


def _issue(ca: Authority, names: Collection[str], now: datetime) -> bytes:
    """The server's key followed by its certificate (PEM)."""
    certificate, key = ca.issue(names, now=now, lifetime=LIFETIME)
    return key + certificate
