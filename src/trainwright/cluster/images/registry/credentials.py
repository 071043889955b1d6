"""Credentials for registries: Docker's config.json, its credential helpers, and image pull secrets."""

import base64
import binascii
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol, Self

from trainwright.atomic_files import write_atomically
from trainwright.cluster.images.reference import DEFAULT_REGISTRY, ImageReference
from trainwright.programs import find_program

DOCKER_HUB = "https://index.docker.io/v1/"
"""The name of docker.io in Docker's files."""
_HELPER_SECONDS = 30.0
_TOKEN_USER = "<token>"  # noqa: S105 (what helpers answer in place of a user name)


class CredentialsError(Exception):
    """The file or the helper with the credentials cannot be used; one line."""


@dataclass(frozen=True, slots=True)
class Credential:
    username: str
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    """In place of a password: the registry exchanges it for tokens."""


class Keyring(Protocol):
    def lookup(self, reference: ImageReference) -> Sequence[Credential]:
        """What to try for this image, the best first."""
        ...


def server_key(server: str) -> str:
    """The name under which Docker's files have a registry."""
    return DOCKER_HUB if server in (DEFAULT_REGISTRY, "index.docker.io", "registry-1.docker.io", DOCKER_HUB) else server


class DockerConfig:
    """A config.json as Docker writes it."""

    def __init__(self, document: Mapping[str, Any], path: Path | None = None) -> None:
        self._document = dict(document)
        self._path = path

    @classmethod
    def of_user(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """`$DOCKER_CONFIG/config.json` or `~/.docker/config.json`; empty if there is none."""
        directory = Path(environment.get("DOCKER_CONFIG") or Path.home() / ".docker")
        path = directory / "config.json"
        try:
            document = json.loads(path.read_bytes())
        except FileNotFoundError:
            document = {}
        except (OSError, ValueError, RecursionError) as error:
            raise CredentialsError(f"cannot read {path}: {error}") from error
        if not isinstance(document, dict):
            raise CredentialsError(f"cannot read {path}: it is not a JSON object")
        return cls(document, path)

    @classmethod
    def of_pull_secret(cls, data: bytes) -> Self:
        """The value of `.dockerconfigjson`, or of the older `.dockercfg`, which is its `auths` alone."""
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise CredentialsError(f"the pull secret is not JSON: {error}") from error
        if not isinstance(document, dict):
            raise CredentialsError("the pull secret is not a JSON object")
        return cls(document if isinstance(document.get("auths"), dict) else {"auths": document})

    def lookup(self, reference: ImageReference) -> list[Credential]:
        """By the longest entry that names this registry or a part of its repositories."""
        helper = self._helper(reference.registry)
        if helper:
            found = _ask_helper(helper, server_key(reference.registry))
            if found:
                return [found]
        matches = [key for key in self._auths() if _matches(key, reference)]
        matches.sort(key=lambda key: (-len(_without_scheme(key)), key))
        return [credential for key in matches if (credential := _decode(self._auths()[key]))]

    def set(self, server: str, credential: Credential) -> str:
        """Stores the credential; returns where."""
        helper = self._helper(server)
        if helper:
            request = {"ServerURL": server_key(server), "Username": credential.username, "Secret": credential.password}
            _run_helper(helper, "store", json.dumps(request))
            return f"docker-credential-{helper}"
        secret = f"{credential.username}:{credential.password}".encode()
        entry = {"auth": base64.b64encode(secret).decode()}
        self._document["auths"] = {**self._auths(), server_key(server): entry}
        return str(self._write())

    def remove(self, server: str) -> bool:
        """False if there was none."""
        helper = self._helper(server)
        if helper and _ask_helper(helper, server_key(server)):
            _run_helper(helper, "erase", server_key(server))
            return True
        auths = dict(self._auths())
        wanted = _host(server_key(server))
        gone = [key for key in auths if _host(key) == wanted]
        for key in gone:
            del auths[key]
        if gone:
            self._document["auths"] = auths
            self._write()
        return bool(gone)

    def _auths(self) -> dict[str, Any]:
        auths = self._document.get("auths")
        return auths if isinstance(auths, dict) else {}

    def _helper(self, server: str) -> str:
        helpers = self._document.get("credHelpers")
        named = helpers.get(server_key(server)) or helpers.get(server) if isinstance(helpers, dict) else None
        name = named or self._document.get("credsStore") or ""
        if not isinstance(name, str) or "/" in name:
            raise CredentialsError(f"{self._path or 'the pull secret'} names a credential helper {name!r}")
        # A pull secret comes from the cluster: it must not start programs here.
        return name if self._path is not None else ""

    def _write(self) -> Path:
        assert self._path is not None  # noqa: S101 (for the type checker)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(self._path, json.dumps(self._document, indent="\t").encode() + b"\n")
        except OSError as error:
            raise CredentialsError(f"cannot write {self._path}: {error.strerror}") from error
        return self._path


def choices(keyring: Keyring | None, reference: ImageReference) -> list[Credential | None]:
    """The credentials to try, one after the other; None stands for an anonymous request."""
    found = keyring.lookup(reference) if keyring else ()
    return [*found] if found else [None]


@dataclass(frozen=True)
class Keyrings:
    """Several sources, in this order."""

    sources: Sequence[Keyring] = ()

    def lookup(self, reference: ImageReference) -> list[Credential]:
        return [credential for source in self.sources for credential in source.lookup(reference)]


def _decode(entry: Any) -> Credential | None:
    if not isinstance(entry, dict):
        return None
    username, password = str(entry.get("username") or ""), str(entry.get("password") or "")
    encoded = entry.get("auth")
    if isinstance(encoded, str) and encoded:
        try:
            text = base64.b64decode(encoded, validate=False).decode().rstrip("\0")
        except (binascii.Error, UnicodeDecodeError):
            return None
        username, _, password = text.partition(":")
    token = str(entry.get("identitytoken") or "")
    return Credential(username, password, token) if username or token else None


def _matches(key: str, reference: ImageReference) -> bool:
    """Hosts may have `*` in place of labels, and a path names repositories below it, as in Kubernetes."""
    host, _, path = _without_scheme(key).partition("/")
    if host in ("index.docker.io", "registry-1.docker.io"):
        host = DEFAULT_REGISTRY
    wanted = reference.registry
    if host.count(".") != wanted.count(".") or not fnmatchcase(wanted, host):
        return False
    path = path.strip("/")
    return path in ("", "v1", "v2") or reference.repository == path or reference.repository.startswith(f"{path}/")


def _without_scheme(key: str) -> str:
    return key.removeprefix("https://").removeprefix("http://")


def _host(key: str) -> str:
    return _without_scheme(key).partition("/")[0]


def _ask_helper(name: str, server: str) -> Credential | None:
    answer = _run_helper(name, "get", server)
    if answer is None:
        return None
    try:
        document = json.loads(answer)
        username, secret = str(document["Username"]), str(document["Secret"])
    except (ValueError, KeyError, TypeError) as error:
        raise CredentialsError(f"docker-credential-{name} answered something else than credentials") from error
    return Credential("", identity_token=secret) if username == _TOKEN_USER else Credential(username, secret)


def _run_helper(name: str, action: str, request: str) -> str | None:
    """None if the helper has no credentials for the server."""
    program = f"docker-credential-{name}"
    found = find_program(program)
    if found is None:
        raise CredentialsError(f"{program}, which Docker's config.json names, is not on the PATH")
    try:
        result = subprocess.run(
            [found, action], input=request, capture_output=True, text=True, timeout=_HELPER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        raise CredentialsError(f"{program} {action} failed: {error}") from error
    output = (result.stdout or result.stderr).strip()
    if result.returncode == 0:
        return result.stdout
    if action == "get" and "not found" in output.lower():
        return None
    raise CredentialsError(f"{program} {action} failed: {output[:300] or f'exit code {result.returncode}'}")
