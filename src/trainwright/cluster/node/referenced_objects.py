"""The objects that a pod refers to: ConfigMaps and Secrets of its environment and volumes, claims and their volumes."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwright.objects import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencedObjects:
    """Those that exist, by name."""

    namespace: str = "default"
    """The namespace of the pod."""
    config_maps: Mapping[str, Object] = field(default_factory=dict)
    secrets: Mapping[str, Object] = field(default_factory=dict)
    claims: Mapping[str, Object] = field(default_factory=dict)
    volumes: Mapping[str, Object] = field(default_factory=dict)


class PodConfigError(Exception):
    """The pod cannot be started (yet), for example because a ConfigMap does not exist.

    The message is the kubelet's, and what to do.
    """


def missing(kind: str, name: str, namespace: str) -> PodConfigError:
    return PodConfigError(f'{kind} "{name}" not found: create it in namespace {namespace}, or correct its name')


def referenced_names(pod: Object) -> tuple[set[str], set[str], set[str]]:
    """Names of the ConfigMaps, Secrets and PersistentVolumeClaims."""
    config_maps: set[str | None] = set()
    secrets: set[str | None] = set()
    claims: set[str | None] = set()
    spec = pod["spec"]
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        for source in container.get("envFrom") or []:
            config_maps.add((source.get("configMapRef") or {}).get("name"))
            secrets.add((source.get("secretRef") or {}).get("name"))
        for variable in container.get("env") or []:
            reference = variable.get("valueFrom") or {}
            config_maps.add((reference.get("configMapKeyRef") or {}).get("name"))
            secrets.add((reference.get("secretKeyRef") or {}).get("name"))
    for volume in spec.get("volumes") or []:
        config_maps.add((volume.get("configMap") or {}).get("name"))
        secrets.add((volume.get("secret") or {}).get("secretName"))
        claims.add((volume.get("persistentVolumeClaim") or {}).get("claimName"))
    return _without_none(config_maps), _without_none(secrets), _without_none(claims)


def config_map_data(config_map: Object) -> dict[str, bytes]:
    data = {key: str(value).encode() for key, value in (config_map.get("data") or {}).items()}
    return data | {key: base64.b64decode(value) for key, value in (config_map.get("binaryData") or {}).items()}


def secret_data(secret: Object) -> dict[str, bytes]:
    return {key: base64.b64decode(value or "") for key, value in (secret.get("data") or {}).items()}


def _without_none(names: set[str | None]) -> set[str]:
    return {name for name in names if name}
