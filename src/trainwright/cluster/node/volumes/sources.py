"""The volume sources of a pod: path and content of each volume, decided without access to the disk.

A volume type is one function in the table at the end; `setup` creates the volume on the disk.
"""

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil

from trainwright.cluster.node.referenced_objects import (
    PodConfigError,
    ReferencedObjects,
    config_map_data,
    missing,
    secret_data,
)
from trainwright.objects import Object
from trainwright.objects.quantities import parse_quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    content: bytes
    mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A directory (or file) of the host that is mounted into containers."""

    name: str
    path: str
    host_path_type: str | None = None
    """hostPath.type, for a path that the user chose; None for a directory of the node."""
    memory: bool = False
    size: int | None = None
    files: Mapping[str, File] | None = None
    """The content of the volume; None if containers write it."""
    read_only: bool = False


class UnsupportedVolumeError(Exception):
    """This node does not support the volume; the message names the field."""


def plan_volumes(pod: Object, *, directory: str, objects: ReferencedObjects) -> dict[str, Volume]:
    """The volumes by name; raises PodConfigError or UnsupportedVolumeError.

    `directory` is for volumes that end with the pod.
    """
    volumes = {}
    for index, spec in enumerate(pod["spec"].get("volumes") or []):
        name = spec["name"]
        kinds = [kind for kind in spec if kind != "name" and spec[kind] is not None]
        kind = kinds[0] if kinds else "emptyDir"  # Kubernetes' default
        source = _SOURCES.get(kind)
        if source is None:
            supported = ", ".join(_SOURCES)
            raise UnsupportedVolumeError(f"spec.volumes[{index}].{kind}: this node supports {supported}")
        volumes[name] = source(name, spec.get(kind) or {}, posixpath.join(directory, name), objects)
    return volumes


def _empty_dir(name: str, spec: Object, path: str, _: ReferencedObjects) -> Volume:
    limit = spec.get("sizeLimit")
    size = ceil(parse_quantity(limit)) if limit else None
    return Volume(name=name, path=path, memory=spec.get("medium") == "Memory", size=size)


def _host_path(name: str, spec: Object, _: str, __: ReferencedObjects) -> Volume:
    path = _absolute(spec["path"], f'volume "{name}": hostPath.path')
    return Volume(name=name, path=path, host_path_type=spec.get("type") or "")


def _claim(name: str, spec: Object, _: str, objects: ReferencedObjects) -> Volume:
    claim_name = spec["claimName"]
    claim = objects.claims.get(claim_name)
    if claim is None:
        raise missing("persistentvolumeclaim", claim_name, objects.namespace)
    if (claim.get("status") or {}).get("phase") != "Bound":
        raise PodConfigError(f'persistentvolumeclaim "{claim_name}" is not bound yet: its events say what it waits for')
    volume_name = claim["spec"]["volumeName"]
    volume = objects.volumes.get(volume_name)
    if volume is None:
        raise PodConfigError(
            f'persistentvolume "{volume_name}" of claim "{claim_name}" not found: delete the claim and create it again'
        )
    read_only = bool(spec.get("readOnly"))
    if host_path := volume["spec"].get("hostPath"):
        path = _absolute(host_path["path"], f'persistentvolume "{volume_name}": spec.hostPath.path')
        # Created if missing: the user of a claim cannot create directories on the node.
        return Volume(
            name=name, path=path, host_path_type=host_path.get("type") or "DirectoryOrCreate", read_only=read_only
        )
    if local := volume["spec"].get("local"):
        path = _absolute(local["path"], f'persistentvolume "{volume_name}": spec.local.path')
        return Volume(name=name, path=path, host_path_type="Directory", read_only=read_only)
    source = next((kind for kind in volume["spec"] if kind in _REMOTE_VOLUMES), "its source")
    raise UnsupportedVolumeError(
        f'persistentvolume "{volume_name}" of claim "{claim_name}": spec.{source}: this node mounts hostPath and local'
    )


def _config_map(name: str, spec: Object, path: str, objects: ReferencedObjects) -> Volume:
    source = objects.config_maps.get(spec.get("name", ""))
    return _of_files("configmap", name, spec, path, source, config_map_data, objects.namespace)


def _secret(name: str, spec: Object, path: str, objects: ReferencedObjects) -> Volume:
    named = {**spec, "name": spec.get("secretName", "")}
    return _of_files("secret", name, named, path, objects.secrets.get(named["name"]), secret_data, objects.namespace)


def _of_files(
    kind: str,
    name: str,
    spec: Object,
    path: str,
    source: Object | None,
    read: Callable[[Object], dict[str, bytes]],
    namespace: str,
) -> Volume:
    optional = bool(spec.get("optional"))
    if source is None and not optional:
        raise missing(kind, spec["name"], namespace)
    data = read(source) if source is not None else {}
    mode = spec.get("defaultMode") or 0o644
    files = {}
    if items := spec.get("items"):
        for item in items:
            if item["key"] in data:
                files[_inside(item["path"])] = File(content=data[item["key"]], mode=item.get("mode") or mode)
            elif not optional:
                raise PodConfigError(
                    f'{kind} "{spec["name"]}" references non-existent config key: {item["key"]} (it has '
                    f"{', '.join(sorted(data)) or 'none'})"
                )
    else:
        files = {key: File(content=content, mode=mode) for key, content in data.items()}
    return Volume(name=name, path=path, files=files, read_only=True)


def _absolute(path: str, where: str) -> str:
    if not path.startswith("/"):
        raise UnsupportedVolumeError(f"{where}: {path!r}: write an absolute path")
    return posixpath.normpath(path)


def _inside(path: str) -> str:
    normal = posixpath.normpath(path)
    if normal.startswith(("/", "..")):
        raise UnsupportedVolumeError(f"items[].path {path!r} leads out of the volume")
    return normal


_SOURCES: dict[str, Callable[[str, Object, str, ReferencedObjects], Volume]] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "persistentVolumeClaim": _claim,
    "configMap": _config_map,
    "secret": _secret,
}
_REMOTE_VOLUMES = frozenset(
    {"nfs", "csi", "iscsi", "fc", "rbd", "cephfs", "glusterfs", "azureFile", "azureDisk", "gcePersistentDisk",
     "awsElasticBlockStore", "vsphereVolume", "portworxVolume", "scaleIO", "storageos", "cinder", "flexVolume"}
)  # fmt: skip
