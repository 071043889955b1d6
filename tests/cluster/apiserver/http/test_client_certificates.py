"""Clients with a certificate of the cluster's CA: the common name is the user, organizations are groups."""

import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.support.cluster.embedded_apiserver import TOKEN, RecordedLogs
from trainwright.cluster import pki
from trainwright.cluster.apiserver.http.server import ApiServer
from trainwright.cluster.apiserver.storage.store import ObjectStore

REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[str]:
    context, _authority = pki.server_context(tmp_path / "pki")
    server = ApiServer(store=ObjectStore(None), token=TOKEN, tls=context, logs=RecordedLogs())
    yield f"https://127.0.0.1:{await server.start()}"
    await server.stop()


def client_context(directory: Path, authority: Path, name: str, *groups: str) -> ssl.SSLContext:
    """Presents a certificate that the authority in `authority` has signed."""
    issuer = x509.load_pem_x509_certificate((authority / "ca.pem").read_bytes())
    signer = load_pem_private_key((authority / "ca.key").read_bytes(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    names = [(NameOID.ORGANIZATION_NAME, group) for group in groups] + [(NameOID.COMMON_NAME, name)]
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(field, value) for field, value in names]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    file = directory / f"{name}.pem"
    file.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate.public_bytes(Encoding.PEM)
    )
    context = ssl.create_default_context(cafile=str(directory / "pki" / "ca.pem"))
    context.load_cert_chain(file)
    return context


async def test_certificate_names_user_and_groups(server: str, tmp_path: Path) -> None:
    context = client_context(tmp_path, tmp_path / "pki", "ann", "team", "system:masters")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        async with session.post(server + REVIEW, json={}) as response:
            assert (await response.json())["status"]["userInfo"] == {
                "username": "ann",
                "groups": ["team", "system:masters", "system:authenticated"],
            }
        async with session.get(f"{server}/api/v1/nodes") as response:
            assert response.status == 200


async def test_certificate_gives_no_permissions_by_itself(server: str, tmp_path: Path) -> None:
    context = client_context(tmp_path, tmp_path / "pki", "bob")
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector) as session, session.get(f"{server}/api/v1/nodes") as response:
        assert response.status == 403
        assert 'User "bob" cannot list resource "nodes"' in (await response.json())["message"]


async def test_certificate_of_another_authority_is_refused(server: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    pki.server_context(other / "pki")
    context = client_context(tmp_path, other / "pki", "eve", "system:masters")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"{server}/api/v1/nodes")
