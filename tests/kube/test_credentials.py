"""How a config goes on the wire."""

import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from trainwright.kube.config import ClusterConfig, ConfigError
from trainwright.kube.credentials import Credentials, proxy_of, tls_context

SERVER = "https://10.0.0.1:6443"


def test_a_token_a_user_or_nothing() -> None:
    assert Credentials(ClusterConfig(server=SERVER)).headers() == {}
    assert Credentials(ClusterConfig(server=SERVER, token="t")).headers() == {"Authorization": "Bearer t"}
    user = ClusterConfig(server=SERVER, username="Aladdin", password="open sesame")
    assert Credentials(user).headers() == {"Authorization": "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}


def test_a_rotated_token_file_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    credentials = Credentials(ClusterConfig(server=SERVER, token="fixed", token_file=token))
    assert credentials.headers() == {"Authorization": "Bearer one"}
    rotated = tmp_path / "next"
    rotated.write_text("two\n")
    os.replace(rotated, token)  # noqa: PTH105
    assert credentials.headers() == {"Authorization": "Bearer two"}


def test_a_token_file_that_is_gone_is_named(tmp_path: Path) -> None:
    credentials = Credentials(ClusterConfig(server=SERVER, token_file=tmp_path / "token"))
    with pytest.raises(ConfigError, match=r"cannot read the token file .*token: No such file or directory"):
        credentials.headers()


def test_a_token_file_that_is_gone_for_a_moment_ends_nothing(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    credentials = Credentials(ClusterConfig(server=SERVER, token_file=token))
    assert credentials.headers() == {"Authorization": "Bearer one"}
    token.unlink()
    assert credentials.headers() == {"Authorization": "Bearer one"}
    token.write_text("another\n")
    assert credentials.headers() == {"Authorization": "Bearer another"}


def test_plain_http_has_no_tls() -> None:
    assert tls_context(ClusterConfig(server="http://127.0.0.1:1")) is None


def test_the_server_is_verified_unless_told_otherwise() -> None:
    strict = tls_context(ClusterConfig(server=SERVER))
    lax = tls_context(ClusterConfig(server=SERVER, insecure=True))
    assert strict
    assert lax
    assert (strict.verify_mode, strict.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (lax.verify_mode, lax.check_hostname) == (ssl.CERT_NONE, False)


@pytest.mark.parametrize("data", [b"nonsense", b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"])
def test_an_authority_that_is_no_certificate_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigError, match="certificate-authority of context 'c' cannot be used"):
        tls_context(ClusterConfig(server=SERVER, context="c", ca_data=data))


def test_client_certificates_leave_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    certificate, key = client_pair()
    config = ClusterConfig(server=SERVER, client_certificate_data=certificate, client_key_data=key)
    assert tls_context(config) is not None
    assert list(tmp_path.iterdir()) == []


def test_a_key_of_another_certificate_is_refused() -> None:
    certificate, _ = client_pair()
    _, key = client_pair()
    config = ClusterConfig(server=SERVER, context="c", client_certificate_data=certificate, client_key_data=key)
    with pytest.raises(ConfigError, match="client certificate and key of context 'c' cannot be used"):
        tls_context(config)


@pytest.mark.parametrize(
    ("server", "environ", "proxy"),
    [
        (SERVER, {}, None),
        (SERVER, {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        (SERVER, {"https_proxy": "p:1"}, "http://p:1"),
        (SERVER, {"HTTP_PROXY": "http://p:1"}, None),
        ("http://10.0.0.1", {"HTTP_PROXY": "http://p:1"}, "http://p:1"),
        (SERVER, {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, None),
        (SERVER, {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.1"}, None),
        (SERVER, {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "other, *"}, None),
        (SERVER, {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.2,example.com"}, "http://p:1"),
        ("https://api.example.com", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".example.com"}, None),
        ("https://api.example.com", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "example.com"}, None),
        ("https://notexample.com", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "example.com"}, "http://p:1"),
        ("https://127.0.0.1:1", {"HTTPS_PROXY": "http://p:1"}, None),
        ("https://localhost:1", {"HTTPS_PROXY": "http://p:1"}, None),
        ("https://[::1]:1", {"HTTPS_PROXY": "http://p:1"}, None),
    ],
)
def test_the_environment_names_a_proxy_as_for_kubectl(server: str, environ: dict[str, str], proxy: str | None) -> None:
    assert proxy_of(ClusterConfig(server=server), environ) == proxy


def test_the_kubeconfigs_proxy_wins() -> None:
    config = ClusterConfig(server="https://127.0.0.1", proxy_url="http://mine:1")
    assert proxy_of(config, {"HTTPS_PROXY": "http://other:1", "NO_PROXY": "*"}) == "http://mine:1"


def test_a_proxy_that_we_cannot_use_is_named() -> None:
    with pytest.raises(ConfigError, match="HTTPS_PROXY must start with http://"):
        proxy_of(ClusterConfig(server=SERVER), {"HTTPS_PROXY": "socks5://p:1"})


def client_pair() -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ada")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
