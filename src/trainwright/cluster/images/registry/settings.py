"""How registries are reached: mirrors, plain HTTP, certificates, deadlines; and what transfers report meanwhile."""

import ipaddress
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trainwright.cluster.images.reference import DEFAULT_REGISTRY

_MIRROR = re.compile(r"(https?://)?[\w.-]+(:\d+)?/?|(https?://)?\[[0-9a-fA-F:]+\](:\d+)?/?", re.ASCII)
_HOSTS = {DEFAULT_REGISTRY: "registry-1.docker.io"}
"""Where registries are that have another name."""
_CERTIFICATES = (Path("/etc/docker/certs.d"), Path("/etc/containers/certs.d"))


@dataclass(frozen=True)
class RegistrySettings:
    mirrors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Hosts that are asked before the registry, by registry; `http://HOST` without encryption."""
    plain_http: frozenset[str] = frozenset()
    """Registries that are reached without encryption."""
    connect_seconds: float = 10.0
    read_seconds: float = 60.0
    """Without a byte for so long, a response is given up and continued by another request."""
    attempts: int = 5
    """For one request without progress."""
    first_pause: float = 0.25
    """Before the second attempt; doubled for every further one."""
    longest_pause: float = 30.0
    """A registry that asks for a longer pause (Retry-After) is not asked again."""
    parallel: int = 4
    """Layers at a time."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address of a registry."""

    registry: str
    """The name for messages."""
    schemes: tuple[str, ...]
    """Tried in this order."""
    host: str

    @property
    def is_secure(self) -> bool:
        """True if nothing may be sent without encryption."""
        return "http" not in self.schemes


def check_mirror(address: str) -> str:
    """Raises ValueError."""
    if not _MIRROR.fullmatch(address):
        raise ValueError(f"{address!r} is not the address of a registry: write HOST, HOST:PORT or http://HOST:PORT")
    return address


def endpoints(registry: str, settings: RegistrySettings, *, with_mirrors: bool) -> list[Endpoint]:
    mirrors = settings.mirrors.get(registry, ()) if with_mirrors else ()
    return [*(_endpoint(mirror, mirror, settings) for mirror in mirrors), _endpoint(registry, registry, settings)]


def tls_context(host: str) -> ssl.SSLContext:
    """With the certificate authorities of the system, and those that Docker or podman have for this registry."""
    context = ssl.create_default_context()
    for directory in _CERTIFICATES:
        for certificate in sorted((directory / host).glob("*.crt")):
            context.load_verify_locations(certificate)
    return context


def _endpoint(name: str, address: str, settings: RegistrySettings) -> Endpoint:
    scheme, separator, host = address.rpartition("://")
    host = host.rstrip("/")
    if separator:
        return Endpoint(host, (scheme,), host)
    if host in settings.plain_http:
        return Endpoint(name, ("http",), host)
    # As Docker does it: a registry of this machine often has no certificate.
    schemes = ("https", "http") if _is_loopback(host) else ("https",)
    return Endpoint(name, schemes, _HOSTS.get(host, host))


def _is_loopback(host: str) -> bool:
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


State = Literal[
    "Pulling fs layer",
    "Downloading",
    "Pull complete",
    "Already exists",
    "Preparing",
    "Pushing",
    "Pushed",
    "Mounted from",
    "Layer already exists",
]
"""In Docker's words."""
FINAL: tuple[State, ...] = ("Pull complete", "Already exists", "Pushed", "Mounted from", "Layer already exists")


@dataclass(frozen=True, slots=True)
class LayerProgress:
    """What a pull or push reports about one blob."""

    id: str
    """As Docker shows it: the first twelve digits."""
    state: State
    done: int = 0
    total: int = 0
    source: str = ""
    """The repository of `Mounted from`."""


Report = Callable[[LayerProgress], None]


def ignore(progress: LayerProgress) -> None:
    """For callers that show no progress."""
