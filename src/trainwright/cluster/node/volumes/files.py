"""The files of volumes that have their content from the API: configMap, secret, downwardAPI and projected. Pure."""

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainwright.cluster.node.pod_fields import NodeFields, field_value, resource_value
from trainwright.cluster.node.referenced_objects import (
    PodConfigError,
    ReferencedObjects,
    config_map_data,
    missing,
    secret_data,
    token_source,
)
from trainwright.objects import Object

_DEFAULT_MODE = 0o644


class UnsupportedVolumeError(Exception):
    """This node does not support the volume; the message names the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    content: bytes
    mode: int
    owner: int | None = None
    """The user, for a token that no other may read."""


Files = Mapping[str, File]
"""By path in the volume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContext:
    """What the content of files depends on."""

    pod: Object
    objects: ReferencedObjects = field(default_factory=ReferencedObjects)
    node: NodeFields = field(default_factory=NodeFields)
    owner: int | None = None
    """The user of all containers, if they have the same, who is not that of the node."""
    group: int | None = None
    """fsGroup: the group of the volumes."""


def files_of_volume(kind: str, spec: Object, context: FileContext) -> Files:
    """Raises PodConfigError or UnsupportedVolumeError. The kind is a key of FILE_VOLUMES."""
    mode = spec.get("defaultMode")
    return FILE_VOLUMES[kind](spec, _DEFAULT_MODE if mode is None else int(mode), context)


def _config_map(spec: Object, mode: int, context: FileContext) -> Files:
    name = str(spec.get("name") or "")
    found = context.objects.config_maps.get(name)
    data = context.objects.decoded(config_map_data, found) if found is not None else None
    return _of_data("configmap", "config", name, spec, data, mode, context)


def _secret(spec: Object, mode: int, context: FileContext) -> Files:
    name = str(spec.get("secretName") or spec.get("name") or "")  # the first in volumes, the second in projections
    found = context.objects.secrets.get(name)
    data = context.objects.decoded(secret_data, found) if found is not None else None
    return _of_data("secret", "secret", name, spec, data, mode, context)


def _of_data(
    kind: str,
    kind_of_key: str,
    name: str,
    spec: Object,
    data: Mapping[str, bytes] | None,
    mode: int,
    context: FileContext,
) -> Files:
    optional = bool(spec.get("optional"))
    if data is None and not optional:
        raise missing(kind, name, context.objects.namespace)
    data = data or {}
    items = spec.get("items")
    if not items:
        return {key: File(content=content, mode=mode) for key, content in data.items()}
    files = {}
    for item in items:
        if item["key"] in data:
            files[_inside(item["path"])] = File(content=data[item["key"]], mode=_mode(item, mode))
        elif not optional:
            keys = ", ".join(sorted(data)) or "none"
            raise PodConfigError(
                f'{kind} "{name}" references non-existent {kind_of_key} key: {item["key"]} (it has {keys})'
            )
    return files


def _downward_api(spec: Object, mode: int, context: FileContext) -> Files:
    files = {}
    values: dict[str, bytes] = {}
    for item in spec.get("items") or []:
        if reference := item.get("fieldRef"):
            path = str(reference.get("fieldPath"))
            if path not in values:  # shared, because all annotations together can be long
                values[path] = field_value(context.pod, path, context.node).encode(errors="surrogateescape")
            content = values[path]
        else:
            content = resource_value(item["resourceFieldRef"], None, context.pod, context.node).encode()
        files[_inside(item["path"])] = File(content=content, mode=_mode(item, mode))
    return files


def _projected(spec: Object, mode: int, context: FileContext) -> Files:
    files: dict[str, File] = {}
    for index, source in enumerate(spec.get("sources") or []):
        for kind, projection in source.items():
            if projection is None:
                continue
            if kind not in _PROJECTIONS:
                supported = ", ".join(_PROJECTIONS)
                raise UnsupportedVolumeError(f"projected.sources[{index}].{kind}: this node supports {supported}")
            files.update(_PROJECTIONS[kind](projection, mode, context))
    return files


def _service_account_token(spec: Object, mode: int, context: FileContext) -> Files:
    token = context.objects.tokens.get(token_source(spec))
    if token is None:
        raise PodConfigError("failed to fetch token: the API server has issued none")
    if context.owner is not None or context.group is not None:
        mode = 0o600
    return {_inside(spec["path"]): File(content=token.encode(), mode=mode, owner=context.owner)}


def _mode(item: Object, default: int) -> int:
    mode = item.get("mode")
    return default if mode is None else int(mode)


def _inside(path: str) -> str:
    normal = posixpath.normpath(path)
    if normal.startswith(("/", "..")) or normal == ".":
        raise UnsupportedVolumeError(f"items[].path {path!r} leads out of the volume")
    return normal


_Source = Callable[[Object, int, FileContext], Files]

_PROJECTIONS: dict[str, _Source] = {
    "configMap": _config_map,
    "secret": _secret,
    "downwardAPI": _downward_api,
    "serviceAccountToken": _service_account_token,
}
FILE_VOLUMES: dict[str, _Source] = {
    "configMap": _config_map,
    "secret": _secret,
    "downwardAPI": _downward_api,
    "projected": _projected,
}
