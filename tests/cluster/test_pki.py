import socket
import ssl
import stat
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from trainwright.cluster import pki


def shake_hands(context: ssl.SSLContext, authority: bytes, name: str) -> str:
    """What a client that trusts only this authority negotiates with the server under this name."""
    client = ssl.create_default_context(cadata=authority.decode())
    near, far = socket.socketpair()

    def serve() -> None:
        with context.wrap_socket(far, server_side=True) as tls:
            tls.recv(1)

    server = threading.Thread(target=serve)
    server.start()
    with client.wrap_socket(near, server_hostname=name) as tls:
        version = tls.version()
        tls.sendall(b"x")
    server.join()
    return version or ""


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "::1"])
def test_a_client_with_the_authority_trusts_the_server_under_its_loopback_names(tmp_path: Path, name: str) -> None:
    context, authority = pki.server_context(tmp_path / "pki")
    assert shake_hands(context, authority, name) == "TLSv1.3"


def test_certificates_are_private_and_kept(tmp_path: Path) -> None:
    _, authority = pki.server_context(tmp_path / "pki")
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "pki").iterdir()} == {
        "ca.pem": 0o600,
        "ca.key": 0o600,
        "server.pem": 0o600,
    }
    assert pki.server_context(tmp_path / "pki")[1] == authority


@pytest.mark.parametrize("name", ["ca.pem", "server.pem"])
@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_missing_or_broken_files_are_created_again(tmp_path: Path, name: str, content: bytes | None) -> None:
    directory = tmp_path / "pki"
    _, before = pki.server_context(directory)
    (directory / name).unlink()
    if content is not None:
        (directory / name).write_bytes(content)
    context, after = pki.server_context(directory)
    assert after != before
    assert shake_hands(context, after, "127.0.0.1") == "TLSv1.3"


@pytest.mark.parametrize("before", [None, "127.16.0.1", "127.7.0.1"])
def test_certificate_follows_the_address_of_the_service_and_the_authority_stays(
    tmp_path: Path, before: str | None
) -> None:
    directory = tmp_path / "pki"
    _, authority = pki.server_context(directory, address=before)
    certificate = (directory / "server.pem").read_bytes()

    context, after = pki.server_context(directory, address="127.7.0.1")

    assert after == authority
    assert shake_hands(context, authority, "127.7.0.1") == "TLSv1.3"
    assert shake_hands(context, authority, "kubernetes.default.svc") == "TLSv1.3"
    assert ((directory / "server.pem").read_bytes() == certificate) == (before == "127.7.0.1")


def test_certificates_near_their_expiry_are_renewed(tmp_path: Path) -> None:
    directory = tmp_path / "pki"
    issued = datetime.now(UTC) - pki.LIFETIME + timedelta(days=29)
    _, authority = pki.server_context(directory, now=issued)

    assert pki.server_context(directory, now=issued)[1] == authority
    assert pki.server_context(directory)[1] != authority


def test_files_that_a_crash_left_are_replaced(tmp_path: Path) -> None:
    half = tmp_path / "pki.new"
    half.mkdir()
    (half / "ca.pem").write_bytes(b"half")
    context, authority = pki.server_context(tmp_path / "pki")
    assert shake_hands(context, authority, "localhost") == "TLSv1.3"
    assert not half.exists()


def test_a_start_with_existing_certificates_does_not_load_cryptography(tmp_path: Path) -> None:
    pki.server_context(tmp_path / "pki")
    program = (
        "import sys; from pathlib import Path; from trainwright.cluster import pki\n"
        "pki.server_context(Path(sys.argv[1])); print('cryptography' in sys.modules)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "pki")], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "False\n"


def test_key_of_service_account_tokens_is_private_and_kept(tmp_path: Path) -> None:
    key = pki.service_account_key(tmp_path / "sa.key")
    assert stat.S_IMODE((tmp_path / "sa.key").stat().st_mode) == 0o600
    assert pki.service_account_key(tmp_path / "sa.key") == key
