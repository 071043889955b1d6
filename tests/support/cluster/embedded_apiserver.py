"""The embedded API server in the test's process, with TLS on a free port."""

import datetime
import ipaddress
import ssl
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.cluster.addresses import locked_addresses
from trainwright.cluster.address_lock import AddressLock
from trainwright.cluster.apiserver.http.routes import ServedCluster
from trainwright.cluster.apiserver.http.server import ApiServer
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.objects import Object
from trainwright.objects.kinds.pod_subresources import LogOptions, LogUnavailable

TOKEN = "embedded-test-token"


class RecordedLogs:
    """Logs that a test provides: `NAMESPACE/POD/CONTAINER` to text."""

    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}
        self.asked: list[LogOptions] = []

    def read(self, pod: Object, container: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        self.asked.append(options)
        metadata = pod["metadata"]
        if options.previous:
            raise LogUnavailable(f'previous terminated container "{container}" in pod "{metadata["name"]}" not found')
        text = self.texts.get(f"{metadata['namespace']}/{metadata['name']}/{container}", b"")
        lines = text.splitlines(keepends=True)
        return _each(lines[-options.tail_lines :] if options.tail_lines else lines)


async def _each(lines: list[bytes]) -> AsyncGenerator[bytes, None]:
    for line in lines:
        yield line


@dataclass(frozen=True)
class Embedded:
    """A running embedded API server."""

    config: ClusterConfig
    store: ObjectStore
    logs: RecordedLogs
    ca_data: bytes
    server: ApiServer
    addresses: AddressLock


@asynccontextmanager
async def running_embedded(path: Path | None = None, *, admits_accounts: bool = False) -> AsyncIterator[Embedded]:
    """Serves a store at `path`, or in memory, until the block ends. Without controllers there are no service accounts,
    so pods need none unless `admits_accounts` says so."""
    store = ObjectStore(path)
    logs = RecordedLogs()
    context, ca_data = tls_for_loopback()
    with locked_addresses() as lock:
        served = ServedCluster(store, logs, lock.addresses.services, admits_accounts=admits_accounts)
        server = ApiServer(served, token=TOKEN, tls=context)
        port = await server.start()
        config = ClusterConfig(server=f"https://127.0.0.1:{port}", ca_data=ca_data, token=TOKEN)
        try:
            yield Embedded(config, store, logs, ca_data, server, lock)
        finally:
            await server.stop()
            store.close()


@cache
def tls_for_loopback() -> tuple[ssl.SSLContext, bytes]:
    """A server's TLS context and the certificate to trust; created once per run."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "embedded-test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(pem + secret)
        file.flush()
        context.load_cert_chain(file.name)
    return context, pem
