"""A real registry on loopback, which `make kubernetes` builds: open, with passwords, or with tokens."""

import base64
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from tests.support.kubernetes.controlplane import Daemon, held_ports, newest_build
from tests.support.waiting import wait_until

USER, PASSWORD = "alice", "wonderland"
_HTPASSWD = "alice:$2b$04$abcdefghijklmnopqrstuujZkTwHUiJ9XdZPwKfcfDo7dMp5DjlTu"


def registry_binary() -> Path:
    if program := os.environ.get("TRAINWRIGHT_REGISTRY"):
        return Path(program)
    return newest_build("registry", "run `make kubernetes`, or set TRAINWRIGHT_REGISTRY") / "registry"


@contextmanager
def running_registry(directory: Path, *, passwords: bool = False, tokens: "TokenServer | None" = None) -> Iterator[str]:
    """`127.0.0.1:PORT` of an empty registry."""
    directory.mkdir(parents=True, exist_ok=True)
    with held_ports(1) as [port]:
        address = f"127.0.0.1:{port}"
        config: dict[str, object] = {
            "version": "0.1",
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": str(directory / "blobs")}, "delete": {"enabled": True}},
            "http": {"addr": address},
        }
        if passwords:
            (directory / "htpasswd").write_text(_HTPASSWD + "\n")
            config["auth"] = {"htpasswd": {"realm": "test", "path": str(directory / "htpasswd")}}
        if tokens is not None:
            (directory / "root.pem").write_bytes(tokens.certificate)
            config["auth"] = {
                "token": {
                    "realm": tokens.realm,
                    "service": "registry",
                    "issuer": "test",
                    "rootcertbundle": str(directory / "root.pem"),
                }
            }
        path = directory / "config.json"  # JSON is YAML
        path.write_bytes(msgspec.json.encode(config))
        daemon = Daemon(
            registry_binary(), "serve", path, log=directory / "registry.log", env={"OTEL_TRACES_EXPORTER": "none"}
        )
        try:
            wait_until(lambda: _answers(daemon, address))
            yield address
        finally:
            daemon.close()


def _answers(daemon: Daemon, address: str) -> bool:
    daemon.check()
    try:
        urllib.request.urlopen(f"http://{address}/v2/", timeout=5).close()
    except urllib.error.HTTPError as error:
        return error.code == 401
    except OSError:
        return False
    return True


@dataclass
class TokenServer:
    """Signs tokens for `alice`, and for everybody who pulls from `public/`, as auth.docker.io does."""

    realm: str = ""

    def __post_init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self._key.public_key())
            .serial_number(1)
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = certificate.public_bytes(serialization.Encoding.PEM)
        self._x5c = base64.b64encode(certificate.public_bytes(serialization.Encoding.DER)).decode()
        self.scopes: list[list[str]] = []
        """Those of every request."""

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        scopes = request.query.getall("scope", [])
        self.scopes.append(scopes)
        authorization = request.headers.get("Authorization")
        pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if authorization not in (None, f"Basic {pair}"):
            return web.json_response({"details": "incorrect username or password"}, status=401)
        access: list[dict[str, object]] = []
        for scope in scopes:
            kind, repository, actions = scope.split(":")
            allowed = actions.split(",") if authorization else ["pull"] if repository.startswith("public/") else []
            access.append({"type": kind, "name": repository, "actions": allowed})
        return web.json_response({"token": self._sign(access), "expires_in": 300})

    def _sign(self, access: list[dict[str, object]]) -> str:
        now = int(time.time())
        header = {"typ": "JWT", "alg": "RS256", "x5c": [self._x5c]}
        claims = {
            "iss": "test",
            "sub": USER,
            "aud": "registry",
            "exp": now + 300,
            "nbf": now - 10,
            "iat": now,
            "jti": str(now),
            "access": access,
        }
        signed = b".".join(
            base64.urlsafe_b64encode(msgspec.json.encode(part)).rstrip(b"=") for part in (header, claims)
        )
        signature = self._key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
        return (signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()
