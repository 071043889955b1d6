"""Where a pod's volumes come from and what they hold, decided without looking at the disk; `prepare` makes it so."""

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil

from trainwright.cluster.node.pods.environment import MissingSource, Sources, config_data, secret_data
from trainwright.objects import Object
from trainwright.objects.quantities import parse_quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    content: bytes
    mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A directory (or file) of the host that containers see at their mount paths."""

    name: str
    path: str
    host_type: str | None = None
    """For a path that the manifest names: hostPath.type, what has to be there (None: the path is the node's own)."""
    memory: bool = False
    size: int | None = None
    files: Mapping[str, File] | None = None
    """What the volume consists of; None: whatever containers write."""
    read_only: bool = False


class UnsupportedVolume(Exception):  # noqa: N818 - the pod waits, and says so
    """This node does not know such a volume; the message names the field."""


def plan_volumes(pod: Object, *, directory: str, sources: Sources) -> dict[str, Volume]:
    """The volumes by name; raises MissingSource or UnsupportedVolume. `directory` holds those that end with the pod."""
    volumes = {}
    for index, spec in enumerate(pod["spec"].get("volumes") or []):
        name = spec["name"]
        kinds = [kind for kind in spec if kind != "name" and spec[kind] is not None]
        kind = kinds[0] if kinds else "emptyDir"  # Kubernetes' default
        reader = _READERS.get(kind)
        if reader is None:
            known = ", ".join(_READERS)
            raise UnsupportedVolume(f"spec.volumes[{index}].{kind}: this node supports {known}")
        volumes[name] = reader(name, spec.get(kind) or {}, posixpath.join(directory, name), sources)
    return volumes


def needed_objects(pod: Object) -> tuple[set[str], set[str], set[str]]:
    """Names of the ConfigMaps, Secrets and claims that the pod refers to."""
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
    return _named(config_maps), _named(secrets), _named(claims)


def _named(names: set[str | None]) -> set[str]:
    return {name for name in names if name}


def _empty_dir(name: str, spec: Object, path: str, _: Sources) -> Volume:
    limit = spec.get("sizeLimit")
    size = ceil(parse_quantity(limit)) if limit else None
    return Volume(name=name, path=path, memory=spec.get("medium") == "Memory", size=size)


def _host_path(name: str, spec: Object, _: str, __: Sources) -> Volume:
    path = _absolute(spec["path"], f'volume "{name}": hostPath.path')
    return Volume(name=name, path=path, host_type=spec.get("type") or "")


def _claim(name: str, spec: Object, _: str, sources: Sources) -> Volume:
    claim_name = spec["claimName"]
    claim = sources.claims.get(claim_name)
    if claim is None:
        raise MissingSource(f'persistentvolumeclaim "{claim_name}" not found')
    if (claim.get("status") or {}).get("phase") != "Bound":
        raise MissingSource(f'persistentvolumeclaim "{claim_name}" is not bound yet')
    volume_name = claim["spec"]["volumeName"]
    volume = sources.volumes.get(volume_name)
    if volume is None:
        raise MissingSource(f'persistentvolume "{volume_name}" of claim "{claim_name}" not found')
    read_only = bool(spec.get("readOnly"))
    if host_path := volume["spec"].get("hostPath"):
        found = _absolute(host_path["path"], f'persistentvolume "{volume_name}": spec.hostPath.path')
        # A volume that nobody can have made by hand is made: the claim's user has no say in what is on the node.
        return Volume(
            name=name, path=found, host_type=host_path.get("type") or "DirectoryOrCreate", read_only=read_only
        )
    if local := volume["spec"].get("local"):
        found = _absolute(local["path"], f'persistentvolume "{volume_name}": spec.local.path')
        return Volume(name=name, path=found, host_type="Directory", read_only=read_only)
    sort = next((kind for kind in volume["spec"] if kind in _REMOTE_VOLUMES), "its source")
    raise UnsupportedVolume(
        f'persistentvolume "{volume_name}" of claim "{claim_name}": spec.{sort}: this node mounts hostPath and local'
    )


def _config_map(name: str, spec: Object, path: str, sources: Sources) -> Volume:
    return _of_files("configmap", name, spec, path, sources.config_maps.get(spec.get("name", "")), config_data)


def _secret(name: str, spec: Object, path: str, sources: Sources) -> Volume:
    named = {**spec, "name": spec.get("secretName", "")}
    return _of_files("secret", name, named, path, sources.secrets.get(named["name"]), secret_data)


def _of_files(
    kind: str,
    name: str,
    spec: Object,
    path: str,
    source: Object | None,
    read: Callable[[Object], dict[str, bytes]],
) -> Volume:
    optional = bool(spec.get("optional"))
    if source is None and not optional:
        raise MissingSource(f'{kind} "{spec["name"]}" not found')
    data = read(source) if source is not None else {}
    mode = spec.get("defaultMode") or 0o644
    files = {}
    if items := spec.get("items"):
        for item in items:
            if item["key"] in data:
                files[_inside(item["path"])] = File(content=data[item["key"]], mode=item.get("mode") or mode)
            elif not optional:
                raise MissingSource(f'{kind} "{spec["name"]}" references non-existent config key: {item["key"]}')
    else:
        files = {key: File(content=content, mode=mode) for key, content in data.items()}
    return Volume(name=name, path=path, files=files, read_only=True)


def _absolute(path: str, where: str) -> str:
    if not path.startswith("/"):
        raise UnsupportedVolume(f"{where}: {path!r}: write an absolute path")
    return posixpath.normpath(path)


def _inside(path: str) -> str:
    normal = posixpath.normpath(path)
    if normal.startswith(("/", "..")):
        raise UnsupportedVolume(f"items[].path {path!r} leads out of the volume")
    return normal


_READERS: dict[str, Callable[[str, Object, str, Sources], Volume]] = {
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
