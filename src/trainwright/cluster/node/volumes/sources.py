"""The volume sources of a pod: path and content of each volume, decided without access to the disk.

A volume type is one function in the table at the end; `pods/pod_setup.py` creates the volume on the disk. An NFS export
is mounted by root, or replaced by a directory of this machine that the user maps to it.
"""

import posixpath
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from pathlib import PurePosixPath

from trainwright.cluster.node.referenced_objects import PodConfigError, missing
from trainwright.cluster.node.volumes.files import (
    FILE_VOLUMES,
    FileContext,
    Files,
    UnsupportedVolumeError,
    files_of_volume,
)
from trainwright.objects import Object
from trainwright.objects.quantities import parse_quantity

_SERVER = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9._:%\[\]-]{0,252}")
"""It must not begin like an option of mount.nfs."""
_DEFAULT_OPTIONS = "retry=0"
"""One attempt: the pod tries again by itself."""
_MAX_FILE_BYTES = 64 * 1024 * 1024
"""The size of all files from the API in one pod: a manifest can mount an object of a megabyte thousands of times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NfsSupport:
    """What this node can do about NFS."""

    mappings: Mapping[str, str] = field(default_factory=dict)
    """`SERVER:/PATH` -> directory of this machine."""
    program: str | None = None
    """The path of mount.nfs; None if this node cannot mount."""
    reason: str = "only root can mount it"
    """Why it cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NfsMount:
    source: str
    options: str


def mapped_directory(server: str, path: str, mappings: Mapping[str, str]) -> str | None:
    """The directory for an export, or below that of the longest mapped path above it."""
    wanted = posixpath.normpath(f"/{path.lstrip('/')}")  # two slashes at the beginning would stay
    for above in (wanted, *map(str, PurePosixPath(wanted).parents)):
        if (directory := mappings.get(f"{server}:{above}")) is not None:
            return posixpath.normpath(posixpath.join(directory, posixpath.relpath(wanted, above)))
    return None


def nfs_mount(server: str, path: str, options: list[str], support: NfsSupport) -> NfsMount:
    """Raises UnsupportedVolumeError, with what to do."""
    if not _SERVER.fullmatch(server):
        raise UnsupportedVolumeError(f"nfs.server {server[:100]!r} is neither a name nor an address")
    source = f"{server}:{posixpath.normpath(path)}"
    if support.program is None:
        raise UnsupportedVolumeError(
            f"this node cannot mount {source}: {support.reason}. Have it mounted on this machine, and start the "
            f"cluster with `trainwright up --map-nfs {source}=DIRECTORY`"
        )
    given = any(option.partition("=")[0] == "retry" for option in options)
    return NfsMount(source=source, options=",".join(options if given else [*options, _DEFAULT_OPTIONS]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A directory (or file) of the host that is mounted into containers."""

    name: str
    path: str
    host_path_type: str | None = None
    """hostPath.type, for a path that the user chose; None for a directory of the node."""
    memory: bool = False
    size: int | None = None
    files: Files | None = None
    """The content of the volume; None if containers write it."""
    read_only: bool = False
    group: int | None = None
    """The group that owns it (fsGroup)."""
    provisioned: bool = False
    """True for a volume of the default StorageClass that is bound to the pod's claim."""
    nfs: NfsMount | None = None
    """What the supervisor mounts there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeContext(FileContext):
    """What a volume depends on."""

    nfs: NfsSupport = field(default_factory=NfsSupport)
    provisioned: str | None = None
    """The directory of the volumes of the default StorageClass."""


def plan_volumes(context: VolumeContext, *, directory: str, kinds: Collection[str] | None = None) -> dict[str, Volume]:
    """The volumes of the pod by name, or those of some kinds; raises PodConfigError or UnsupportedVolumeError.

    `directory` is for volumes that end with the pod.
    """
    volumes = {}
    size = 0
    for index, spec in enumerate(context.pod["spec"].get("volumes") or []):
        name = spec["name"]
        found = [kind for kind in spec if kind != "name" and spec[kind] is not None]
        kind = found[0] if found else "emptyDir"  # Kubernetes' default
        if kinds is not None and kind not in kinds:
            continue
        source = _SOURCES.get(kind)
        if source is None:
            supported = ", ".join(_SOURCES)
            raise UnsupportedVolumeError(f"spec.volumes[{index}].{kind}: this node supports {supported}")
        try:
            volumes[name] = source(name, spec.get(kind) or {}, posixpath.join(directory, name), context)
        except UnsupportedVolumeError as error:
            raise UnsupportedVolumeError(f'volume "{name}": {error}') from error
        size += sum(len(file.content) for file in (volumes[name].files or {}).values())
        if size > _MAX_FILE_BYTES:
            raise PodConfigError(
                f'volume "{name}": the files of ConfigMaps, Secrets and fields in the volumes of this pod have more '
                f"than {_MAX_FILE_BYTES:,} bytes: mount fewer of them, or use a persistentVolumeClaim"
            )
    return volumes


def mount_failure(volume: str, error: object) -> str:
    """As the kubelet words it."""
    return f'MountVolume.SetUp failed for volume "{volume}" : {error}'


def _empty_dir(name: str, spec: Object, path: str, context: VolumeContext) -> Volume:
    limit = spec.get("sizeLimit")
    size = ceil(parse_quantity(limit)) if limit else None
    in_memory = spec.get("medium") == "Memory"
    return Volume(name=name, path=path, memory=in_memory, size=size, group=context.group)


def _host_path(name: str, spec: Object, _: str, __: VolumeContext) -> Volume:
    path = _absolute(spec["path"], "hostPath.path")
    return Volume(name=name, path=path, host_path_type=spec.get("type") or "")


def _claim(name: str, spec: Object, path: str, context: VolumeContext) -> Volume:
    objects = context.objects
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
    bound_to = volume["spec"].get("claimRef") or {}
    if bound_to.get("uid") != claim["metadata"]["uid"]:
        raise PodConfigError(
            f'persistentvolume "{volume_name}" is bound to a different claim than "{claim_name}": '
            f"{bound_to.get('namespace')}/{bound_to.get('name')}"
        )
    read_only = bool(spec.get("readOnly"))
    if host_path := volume["spec"].get("hostPath"):
        directory = _absolute(host_path["path"], f'persistentvolume "{volume_name}": spec.hostPath.path')
        # Created if missing: the user of a claim cannot create directories on the node.
        return Volume(
            name=name,
            path=directory,
            host_path_type=host_path.get("type") or "DirectoryOrCreate",
            read_only=read_only,
            provisioned=posixpath.dirname(directory) == context.provisioned,
        )
    if local := volume["spec"].get("local"):
        directory = _absolute(local["path"], f'persistentvolume "{volume_name}": spec.local.path')
        return Volume(name=name, path=directory, host_path_type="Directory", read_only=read_only)
    if nfs := volume["spec"].get("nfs"):
        options = volume["spec"].get("mountOptions") or []
        return _nfs_volume(name, nfs, path, context, options=options, read_only=read_only)
    source = next((kind for kind in volume["spec"] if kind in _REMOTE_VOLUMES), "its source")
    raise UnsupportedVolumeError(
        f'persistentvolume "{volume_name}" of claim "{claim_name}": spec.{source}: this node mounts hostPath, local '
        "and nfs"
    )


def _nfs(name: str, spec: Object, path: str, context: VolumeContext) -> Volume:
    return _nfs_volume(name, spec, path, context, options=[], read_only=False)


def _nfs_volume(
    name: str, spec: Object, path: str, context: VolumeContext, *, options: list[str], read_only: bool
) -> Volume:
    server, exported = str(spec["server"]), _absolute(spec["path"], "nfs.path")
    read_only = read_only or bool(spec.get("readOnly"))
    if (directory := mapped_directory(server, exported, context.nfs.mappings)) is not None:
        return Volume(name=name, path=directory, host_path_type="Directory", read_only=read_only)
    mount = nfs_mount(server, exported, options, context.nfs)
    return Volume(name=name, path=path, nfs=mount, read_only=read_only)


def _files(kind: str, name: str, spec: Object, path: str, context: VolumeContext) -> Volume:
    try:
        files = files_of_volume(kind, spec, context)
        return Volume(name=name, path=path, files=files, read_only=True, group=context.group)
    except PodConfigError as error:
        raise PodConfigError(mount_failure(name, error)) from error


def _absolute(path: str, where: str) -> str:
    if not path.startswith("/"):
        raise UnsupportedVolumeError(f"{where}: {path!r}: write an absolute path")
    return posixpath.normpath(path)


_SOURCES: dict[str, Callable[[str, Object, str, VolumeContext], Volume]] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "persistentVolumeClaim": _claim,
    "nfs": _nfs,
    **{kind: partial(_files, kind) for kind in FILE_VOLUMES},
}
_REMOTE_VOLUMES = frozenset(
    {"csi", "iscsi", "fc", "rbd", "cephfs", "glusterfs", "azureFile", "azureDisk", "gcePersistentDisk",
     "awsElasticBlockStore", "vsphereVolume", "portworxVolume", "scaleIO", "storageos", "cinder", "flexVolume"}
)  # fmt: skip
