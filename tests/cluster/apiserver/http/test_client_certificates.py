"""Clients with a certificate of the cluster's CA: the common name is the user, organizations are groups."""

import base64
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

from tests.support.cluster.addresses import SERVICES
from tests.support.cluster.embedded_apiserver import TOKEN, RecordedLogs
from trainwright.cluster import pki
from trainwright.cluster.apiserver.http.routes import ServedCluster
from trainwright.cluster.apiserver.http.server import ApiServer
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.objects import Object

REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[str]:
    context, _authority = pki.server_context(tmp_path / "pki")
    server = ApiServer(
        ServedCluster(ObjectStore(None), RecordedLogs(), SERVICES),
        token=TOKEN,
        tls=context,
        load_authority=lambda: pki.authority(tmp_path / "pki"),
    )
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


async def approved(server: str, directory: Path, key: ec.EllipticCurvePrivateKey, **spec: object) -> Object:
    """A CertificateSigningRequest for jane, after the administrator has approved it."""
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "team"), x509.NameAttribute(NameOID.COMMON_NAME, "jane")]
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names)).sign(key, hashes.SHA256())
    fields = {
        "request": base64.b64encode(request.public_bytes(Encoding.PEM)).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"],
    }
    trusting = ssl.create_default_context(cafile=str(directory / "pki" / "ca.pem"))
    path = f"{server}/apis/certificates.k8s.io/v1/certificatesigningrequests"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    connector = aiohttp.TCPConnector(ssl=trusting)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        async with session.post(path, json={"metadata": {"name": "jane"}, "spec": fields | spec}) as response:
            assert response.status == 201
        condition = {"type": "Approved", "status": "True", "reason": "Test", "message": "ok"}
        body = {"metadata": {"name": "jane"}, "spec": fields | spec, "status": {"conditions": [condition]}}
        async with session.put(f"{path}/jane/approval", json=body) as response:
            assert response.status == 200
            return dict(await response.json())


async def test_approved_request_is_signed_and_its_certificate_authenticates(server: str, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    request = await approved(server, tmp_path, key, expirationSeconds=3600)

    issued = base64.b64decode(request["status"]["certificate"])
    certificate = x509.load_pem_x509_certificate(issued)
    assert certificate.not_valid_after_utc <= datetime.now(UTC) + timedelta(hours=1)
    file = tmp_path / "jane.pem"
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + issued)
    context = ssl.create_default_context(cafile=str(tmp_path / "pki" / "ca.pem"))
    context.load_cert_chain(file)
    connector = aiohttp.TCPConnector(ssl=context)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(server + REVIEW, json={}) as response,
    ):
        user = (await response.json())["status"]["userInfo"]
    assert user == {"username": "jane", "groups": ["team", "system:authenticated"]}


async def test_request_for_other_usages_fails(server: str, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    request = await approved(server, tmp_path, key, usages=["client auth", "server auth"])

    assert "certificate" not in request["status"]
    assert [one["type"] for one in request["status"]["conditions"]] == ["Approved", "Failed"]


async def test_request_of_another_signer_is_left_to_it(server: str, tmp_path: Path) -> None:
    request = await approved(server, tmp_path, ec.generate_private_key(ec.SECP256R1()), signerName="example.com/mine")

    assert "certificate" not in request["status"]
    assert [one["type"] for one in request["status"]["conditions"]] == ["Approved"]


async def test_the_status_of_a_request_does_not_approve_it(server: str, tmp_path: Path) -> None:
    await approved(server, tmp_path, ec.generate_private_key(ec.SECP256R1()))
    trusting = ssl.create_default_context(cafile=str(tmp_path / "pki" / "ca.pem"))
    path = f"{server}/apis/certificates.k8s.io/v1/certificatesigningrequests/jane/status"
    patch = [{"op": "replace", "path": "/status/conditions", "value": [{"type": "Denied", "status": "True"}]}]
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json-patch+json"}
    connector = aiohttp.TCPConnector(ssl=trusting)
    async with (
        aiohttp.ClientSession(connector=connector, headers=headers) as session,
        session.patch(path, json=patch) as response,
    ):
        assert response.status == 200
        conditions = (await response.json())["status"]["conditions"]
        assert [condition["type"] for condition in conditions] == ["Approved"]
