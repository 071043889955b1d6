"""Headers, TLS context and proxy of a ClusterConfig."""

import asyncio
import json
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.cluster.embedded_apiserver import tls_for_loopback
from tests.support.servers.scripted_server import answer, scripted_server
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.credentials import Credentials, proxy_for, tls_context
from trainwright.kube.client.errors import Unreachable
from trainwright.kube.client.kubeconfig import ClusterConfig, ConfigError, ExecPlugin
from trainwright.kube.client.sync_client import SyncClient

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


def test_missing_token_file_is_named(tmp_path: Path) -> None:
    credentials = Credentials(ClusterConfig(server=SERVER, token_file=tmp_path / "token"))
    with pytest.raises(ConfigError, match=r"cannot read the token file .*token: No such file or directory"):
        credentials.headers()


def test_token_file_may_be_missing_for_a_moment(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    credentials = Credentials(ClusterConfig(server=SERVER, token_file=token))
    assert credentials.headers() == {"Authorization": "Bearer one"}
    token.unlink()
    assert credentials.headers() == {"Authorization": "Bearer one"}
    token.write_text("another\n")
    assert credentials.headers() == {"Authorization": "Bearer another"}


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
def test_a_token_file_that_is_just_being_written_does_not_replace_a_good_token(tmp_path: Path, content: bytes) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    credentials = Credentials(ClusterConfig(server=SERVER, token_file=token))
    credentials.headers()
    token.write_bytes(content)
    assert credentials.headers() == {"Authorization": "Bearer one"}
    with pytest.raises(ConfigError, match=r"token file .*token( is empty|: it is not text)"):
        Credentials(ClusterConfig(server=SERVER, token_file=token)).headers()


def test_a_token_file_is_rotated_as_the_kubelet_does_it(tmp_path: Path) -> None:
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "token").write_text(f"token-{version}")
    (tmp_path / "..data").symlink_to("1")
    (tmp_path / "token").symlink_to("..data/token")
    credentials = Credentials(ClusterConfig(server=SERVER, token_file=tmp_path / "token"))
    assert credentials.headers() == {"Authorization": "Bearer token-1"}
    (tmp_path / "..tmp").symlink_to("2")
    os.replace(tmp_path / "..tmp", tmp_path / "..data")  # noqa: PTH105
    assert credentials.headers() == {"Authorization": "Bearer token-2"}


def test_a_token_is_never_older_than_a_minute(tmp_path: Path) -> None:
    """Not every file system tells of every change."""
    now = 1000.0
    token = tmp_path / "token"
    token.write_text("one")
    credentials = Credentials(ClusterConfig(server=SERVER, token_file=token), monotonic=lambda: now)
    credentials.headers()
    before = token.stat()
    token.write_text("two")
    os.utime(token, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert credentials.headers() == {"Authorization": "Bearer one"}
    now += 60
    assert credentials.headers() == {"Authorization": "Bearer two"}


def test_token_file_is_read_again_after_a_401(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    credentials = Credentials(ClusterConfig(server=SERVER, token_file=token))
    credentials.headers()
    refused = credentials.generation
    assert not credentials.refresh_after_unauthorized(refused)
    token.write_text("two")
    assert credentials.refresh_after_unauthorized(refused)
    assert credentials.refresh_after_unauthorized(refused), "somebody else has found it already"
    assert credentials.headers() == {"Authorization": "Bearer two"}


def test_static_token_is_not_refreshed_after_a_401() -> None:
    credentials = Credentials(ClusterConfig(server=SERVER, token="t"))
    assert not credentials.refresh_after_unauthorized(credentials.generation)
    assert not credentials.needs_plugin


class Login:
    """A plugin that counts how often it is run and says what the test wants."""

    def __init__(self, directory: Path) -> None:
        self._runs, self._answer = directory / "runs", directory / "answer"
        program = directory / "login"
        program.write_text(f"#!/bin/sh\necho run >> {self._runs}\ncat {self._answer}\n")
        program.chmod(0o755)
        self.plugin = ExecPlugin(
            where="exec of user 'u' in config",
            command=str(program),
            api_version="client.authentication.k8s.io/v1",
            interactive_mode="Never",
        )

    def answers(self, **status: str) -> None:
        kind = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
        self._answer.write_text(json.dumps({**kind, "status": status}))

    def fails(self) -> None:
        self._answer.unlink()

    @property
    def runs(self) -> int:
        return len(self._runs.read_text().splitlines()) if self._runs.exists() else 0


@pytest.fixture
def login(tmp_path: Path) -> Login:
    return Login(tmp_path)


class TestPlugin:
    def test_plugin_runs_before_the_first_request_and_after_expiry(self, login: Login) -> None:
        now = datetime(2026, 11, 15, 4, 0, tzinfo=UTC)
        credentials = Credentials(ClusterConfig(server=SERVER, exec_plugin=login.plugin), clock=lambda: now)
        login.answers(token="one", expirationTimestamp="2026-11-15T05:00:00Z")
        assert credentials.needs_plugin
        credentials.run_plugin()
        assert credentials.headers() == {"Authorization": "Bearer one"}
        assert not credentials.needs_plugin
        credentials.run_plugin()
        assert login.runs == 1
        now = datetime(2026, 11, 15, 5, 0, tzinfo=UTC)
        login.answers(token="two")
        assert credentials.needs_plugin
        credentials.run_plugin()
        assert credentials.headers() == {"Authorization": "Bearer two"}
        now = datetime(2036, 11, 15, tzinfo=UTC)
        assert not credentials.needs_plugin, "an answer without an end is good until it is refused"

    def test_plugin_runs_once_for_all_requests_that_got_a_401(self, login: Login) -> None:
        credentials = Credentials(ClusterConfig(server=SERVER, exec_plugin=login.plugin))
        login.answers(token="one")
        credentials.run_plugin()
        refused = credentials.generation
        login.answers(token="two")
        assert [credentials.refresh_after_unauthorized(refused) for _ in range(3)] == [True] * 3
        assert credentials.headers() == {"Authorization": "Bearer two"}
        assert login.runs == 2

    def test_last_credentials_stay_in_use_while_the_plugin_fails(
        self, login: Login, caplog: pytest.LogCaptureFixture
    ) -> None:
        now, monotonic = datetime(2026, 11, 15, 4, 0, tzinfo=UTC), 0.0
        credentials = Credentials(
            ClusterConfig(server=SERVER, exec_plugin=login.plugin), clock=lambda: now, monotonic=lambda: monotonic
        )
        login.answers(token="one", expirationTimestamp="2026-11-15T05:00:00Z")
        credentials.run_plugin()
        login.fails()
        now = datetime(2026, 11, 15, 6, 0, tzinfo=UTC)
        credentials.run_plugin()
        assert credentials.headers() == {"Authorization": "Bearer one"}
        assert "login exited with code 1" in caplog.text
        assert not credentials.needs_plugin, "it is not run for every request while it fails"
        assert not credentials.refresh_after_unauthorized(credentials.generation)
        assert login.runs == 2
        monotonic = 10.0
        login.answers(token="two")
        assert credentials.needs_plugin
        credentials.run_plugin()
        assert credentials.headers() == {"Authorization": "Bearer two"}

    def test_nothing_is_sent_before_the_plugin_has_succeeded(self, login: Login) -> None:
        monotonic = 0.0
        credentials = Credentials(ClusterConfig(server=SERVER, exec_plugin=login.plugin), monotonic=lambda: monotonic)
        for _ in range(3):
            assert credentials.needs_plugin
            with pytest.raises(ConfigError, match=r"exec of user 'u' in config: .*login exited with code 1"):
                credentials.run_plugin()
        assert login.runs == 1
        monotonic = 10.0
        login.answers(token="one")
        credentials.run_plugin()
        assert credentials.headers() == {"Authorization": "Bearer one"}

    def test_a_certificate_makes_another_tls_context_only_when_it_changes(self, login: Login) -> None:
        credentials = Credentials(ClusterConfig(server=SERVER, exec_plugin=login.plugin))
        plain = credentials.tls
        contexts = []
        for pair in (client_pair(),) * 2 + (client_pair(),):
            login.answers(clientCertificateData=pair[0].decode(), clientKeyData=pair[1].decode())
            assert credentials.refresh_after_unauthorized(credentials.generation)
            contexts.append(credentials.tls)
        assert credentials.headers() == {}
        assert contexts[0] is contexts[1]
        assert len({plain, *contexts}) == 3

    @pytest.mark.parametrize("blocking", [True, False])
    async def test_certificate_of_a_plugin_is_used(self, login: Login, blocking: bool) -> None:
        door, authority = tls_for_loopback.__wrapped__()
        good, unknown = client_pair(), client_pair()
        door.verify_mode = ssl.CERT_REQUIRED
        door.load_verify_locations(cadata=good[0].decode())
        async with scripted_server(door) as server:
            config = ClusterConfig(server=server.url, ca_data=authority, exec_plugin=login.plugin)

            async def version() -> bytes:
                if blocking:
                    with SyncClient(config, retries=False) as sync:
                        return await asyncio.to_thread(sync.raw, "GET", "/version")
                async with Client(config, retries=False) as client:
                    return await client.raw("GET", "/version")

            server.will(answer(b"1"))
            login.answers(clientCertificateData=unknown[0].decode(), clientKeyData=unknown[1].decode())
            with pytest.raises(Unreachable):
                await version()
            login.answers(clientCertificateData=good[0].decode(), clientKeyData=good[1].decode())
            assert await version() == b"1"

    def test_invalid_certificate_of_a_plugin_is_named(self, login: Login) -> None:
        config = ClusterConfig(server=SERVER, context="c", exec_plugin=login.plugin)
        login.answers(clientCertificateData="x", clientKeyData="y")
        with pytest.raises(ConfigError, match="client certificate and key of context 'c' cannot be used"):
            Credentials(config).run_plugin()


def test_plain_http_has_no_tls() -> None:
    assert tls_context(ClusterConfig(server="http://127.0.0.1:1")) is None


def test_server_is_verified_by_default() -> None:
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
    assert proxy_for(ClusterConfig(server=server), environ) == proxy


def test_the_kubeconfigs_proxy_wins() -> None:
    config = ClusterConfig(server="https://127.0.0.1", proxy_url="http://mine:1")
    assert proxy_for(config, {"HTTPS_PROXY": "http://other:1", "NO_PROXY": "*"}) == "http://mine:1"


def test_a_proxy_that_we_cannot_use_is_named() -> None:
    with pytest.raises(ConfigError, match="HTTPS_PROXY must start with http://"):
        proxy_for(ClusterConfig(server=SERVER), {"HTTPS_PROXY": "socks5://p:1"})


def test_a_proxys_password_is_never_shown() -> None:
    with pytest.raises(ConfigError) as refused:
        proxy_for(ClusterConfig(server=SERVER), {"HTTPS_PROXY": "socks5://ada:hunter2@p:1"})
    assert "hunter2" not in str(refused.value)
    assert "hunter2" not in repr(ClusterConfig(server=SERVER, proxy_url="http://ada:hunter2@p:1"))


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
