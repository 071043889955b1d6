"""The webhooks' certificates: when they are kept or renewed, and that TLS clients accept them."""

import asyncio
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from trainwright.kube.client.credentials import load_certificate
from trainwright.operator.serving.webhook_certificates import (
    AUTHORITY_LIFETIME,
    KEYS,
    RENEW_BEFORE,
    SERVER_LIFETIME,
    Certificates,
    read_certificates,
    renewed,
)

NAME = "training-operator.kubeflow.svc"
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def fresh(now: datetime = NOW, *names: str) -> Certificates:
    made = renewed(None, names or (NAME,), now)
    assert made is not None
    return made


def test_new_certificates_are_kept_until_their_renewal_is_due() -> None:
    made = fresh()
    assert renewed(made, [NAME], NOW) is None
    due = NOW + SERVER_LIFETIME - RENEW_BEFORE
    assert renewed(made, [NAME], due - timedelta(seconds=1)) is None
    assert renewed(made, [NAME], due) is not None


def test_the_authority_is_kept_when_the_server_certificate_is_renewed() -> None:
    made = fresh()
    later = renewed(made, [NAME], NOW + SERVER_LIFETIME)
    assert later is not None
    assert (later.authority, later.authority_key) == (made.authority, made.authority_key)
    assert later.server != made.server
    last = renewed(later, [NAME], NOW + AUTHORITY_LIFETIME - RENEW_BEFORE)
    assert last is not None
    assert last.authority != made.authority


def test_operators_that_share_a_secret_do_not_replace_certificates_in_turns() -> None:
    blue = fresh(NOW, "blue.kubeflow.svc")
    both = renewed(blue, ["green.kubeflow.svc"], NOW)
    assert both is not None
    assert renewed(both, ["blue.kubeflow.svc"], NOW) is None
    assert renewed(both, ["green.kubeflow.svc"], NOW) is None


def test_an_address_in_another_notation_is_the_same() -> None:
    assert renewed(fresh(NOW, "0:0:0:0:0:0:0:1"), ["0:0:0:0:0:0:0:1"], NOW) is None


def test_an_unusable_chain_is_replaced() -> None:
    made = fresh()
    stump = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    mended = renewed(replace(made, server=made.server + stump), [NAME], NOW)
    assert mended is not None
    load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), mended.server, mended.server_key)


def test_a_missing_name_causes_a_new_server_certificate_of_the_same_authority() -> None:
    made = fresh()
    wider = renewed(made, [NAME, "127.0.0.1"], NOW)
    assert wider is not None
    assert wider.authority == made.authority
    assert renewed(wider, [NAME], NOW) is None


def test_keys_and_certificates_that_do_not_match_are_replaced() -> None:
    one, other = fresh(), fresh()
    for broken in (
        replace(one, server_key=other.server_key),
        replace(one, server=other.server, server_key=other.server_key),
        replace(one, authority_key=other.authority_key),
        replace(one, authority=other.authority),
        replace(one, authority=one.server, authority_key=one.server_key),  # not allowed to sign
    ):
        mended = renewed(broken, [NAME], NOW)
        assert mended is not None
        assert renewed(mended, [NAME], NOW) is None


def test_certificates_that_are_not_valid_yet_are_replaced() -> None:
    assert renewed(fresh(NOW + timedelta(days=2)), [NAME], NOW) is not None


@given(values=st.lists(st.binary(max_size=40) | st.just(b"-----BEGIN CERTIFICATE-----\n"), min_size=4, max_size=4))
def test_invalid_data_in_the_secret_is_replaced(values: list[bytes]) -> None:
    mended = renewed(read_certificates(dict(zip(KEYS, values, strict=True))), [NAME], NOW)
    assert mended is not None
    assert renewed(mended, [NAME], NOW) is None


def test_the_secrets_keys_are_those_of_the_training_operator() -> None:
    made = fresh()
    data = made.as_data()
    assert sorted(data) == ["ca.crt", "ca.key", "tls.crt", "tls.key"]
    assert read_certificates(data) == made
    assert read_certificates({**data, "tls.key": b""}) is None
    assert read_certificates({}) is None


def test_an_authority_of_upstream_with_an_rsa_key_is_kept() -> None:
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "training-operator-ca")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(hours=1))
        .not_valid_after(NOW + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    theirs = replace(fresh(), authority=certificate.public_bytes(serialization.Encoding.PEM), authority_key=secret)
    made = renewed(theirs, [NAME], NOW)
    assert made is not None
    assert made.authority == theirs.authority
    assert renewed(made, [NAME], NOW) is None


@pytest.mark.parametrize(("host", "accepted"), [(NAME, True), ("other.kubeflow.svc", False)])
async def test_a_client_that_trusts_the_authority_accepts_the_server_under_its_name(host: str, accepted: bool) -> None:
    made = fresh(datetime.now(UTC))
    assert await greets(made, made.authority, host) is accepted


async def test_a_running_server_uses_a_new_certificate_for_the_next_connection() -> None:
    old, new = fresh(datetime.now(UTC)), fresh(datetime.now(UTC))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(context, old.server, old.server_key)
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        await greet(port, old.authority, NAME)
        load_certificate(context, new.server, new.server_key)
        await greet(port, new.authority, NAME)
        with pytest.raises(ssl.SSLCertVerificationError):
            await greet(port, old.authority, NAME)


async def greets(certificates: Certificates, trusted: bytes, host: str) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(context, certificates.server, certificates.server_key)
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context) as server:
        try:
            await greet(server.sockets[0].getsockname()[1], trusted, host)
        except ssl.SSLCertVerificationError:
            return False
    return True


async def greet(port: int, trusted: bytes, host: str) -> None:
    context = ssl.create_default_context(cadata=trusted.decode())
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host)
    writer.close()
    await writer.wait_closed()
