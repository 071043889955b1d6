"""The objects that a pod refers to: ConfigMaps, Secrets and tokens of its environment and volumes, claims and their
volumes."""

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from trainwright.objects import Object

DEFAULT_TOKEN_SECONDS = 3600


class TokenSource(NamedTuple):
    """Which token of the pod's service account a projected volume has."""

    audience: str = ""
    """Empty for the API server's own."""
    expiration_seconds: int = DEFAULT_TOKEN_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencedObjects:
    """Those that exist, by name."""

    namespace: str = "default"
    """The namespace of the pod."""
    config_maps: Mapping[str, Object] = field(default_factory=dict)
    secrets: Mapping[str, Object] = field(default_factory=dict)
    claims: Mapping[str, Object] = field(default_factory=dict)
    volumes: Mapping[str, Object] = field(default_factory=dict)
    tokens: Mapping[TokenSource, str] = field(default_factory=dict)
    _decoded: dict[tuple[str, int], dict[str, bytes]] = field(default_factory=dict, repr=False, compare=False)

    def decoded(self, read: Callable[[Object], dict[str, bytes]], found: Object) -> dict[str, bytes]:
        """The data of one of these objects, decoded once: a pod can refer to it thousands of times."""
        key = (read.__name__, id(found))
        if key not in self._decoded:
            self._decoded[key] = read(found)
        return self._decoded[key]


class References(NamedTuple):
    """Names of objects in the namespace of a pod."""

    config_maps: frozenset[str]
    secrets: frozenset[str]
    claims: frozenset[str] = frozenset()
    tokens: frozenset[TokenSource] = frozenset()


class PodConfigError(Exception):
    """The pod cannot be started (yet), for example because a ConfigMap does not exist.

    The message is the kubelet's, and what to do.
    """


def missing(kind: str, name: str, namespace: str) -> PodConfigError:
    return PodConfigError(f'{kind} "{name}" not found: create it in namespace {namespace}, or correct its name')


def all_references(pod: Object) -> References:
    """The objects of its environment and its volumes."""
    config_maps: set[str | None] = set()
    secrets: set[str | None] = set()
    spec = pod["spec"]
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        for source in container.get("envFrom") or []:
            config_maps.add((source.get("configMapRef") or {}).get("name"))
            secrets.add((source.get("secretRef") or {}).get("name"))
        for variable in container.get("env") or []:
            reference = variable.get("valueFrom") or {}
            config_maps.add((reference.get("configMapKeyRef") or {}).get("name"))
            secrets.add((reference.get("secretKeyRef") or {}).get("name"))
    claims = ((volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in spec.get("volumes") or [])
    files = file_references(pod)
    return files._replace(
        config_maps=files.config_maps | _without_none(config_maps),
        secrets=files.secrets | _without_none(secrets),
        claims=_without_none(claims),
    )


def file_references(pod: Object) -> References:
    """The objects of the files in its volumes, which follow them."""
    config_maps: set[str | None] = set()
    secrets: set[str | None] = set()
    tokens = set()
    for volume in pod["spec"].get("volumes") or []:
        config_maps.add((volume.get("configMap") or {}).get("name"))
        secrets.add((volume.get("secret") or {}).get("secretName"))
        for source in (volume.get("projected") or {}).get("sources") or []:
            config_maps.add((source.get("configMap") or {}).get("name"))
            secrets.add((source.get("secret") or {}).get("name"))
            if token := source.get("serviceAccountToken"):
                tokens.add(token_source(token))
    return References(_without_none(config_maps), _without_none(secrets), tokens=frozenset(tokens))


def token_source(spec: Object) -> TokenSource:
    return TokenSource(spec.get("audience") or "", int(spec.get("expirationSeconds") or DEFAULT_TOKEN_SECONDS))


def config_map_text(config_map: Object) -> dict[str, bytes]:
    """What environment variables can refer to."""
    return {key: str(value).encode() for key, value in (config_map.get("data") or {}).items()}


def config_map_data(config_map: Object) -> dict[str, bytes]:
    binary = config_map.get("binaryData") or {}
    return config_map_text(config_map) | {key: base64.b64decode(value) for key, value in binary.items()}


def secret_data(secret: Object) -> dict[str, bytes]:
    return {key: base64.b64decode(value or "") for key, value in (secret.get("data") or {}).items()}


def _without_none(names: Iterable[str | None]) -> frozenset[str]:
    return frozenset(name for name in names if name)
