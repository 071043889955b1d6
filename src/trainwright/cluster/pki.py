"""The certificates of the embedded API server: an authority of its own and one certificate for the loopback names.

They are made once and kept, so that kubeconfigs stay valid; the authority's key is thrown away once it has signed.
"""

import os
import shutil
import ssl
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from trainwright.net.certificate_authority import new_authority

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
    authority = new_authority("trainwright embedded cluster", now=now, lifetime=LIFETIME)
    certificate, key = authority.issue(("localhost", "127.0.0.1", "::1"), now=now, lifetime=LIFETIME)
    return authority.pem, key + certificate
