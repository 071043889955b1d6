"""The runtime config of a pod: what its supervisor runs, with command, environment, working directory and mounts.

Pure. A pod that cannot be started (yet) has waiting reasons instead, which its status shows. Fields without effect are
warnings, which become Warning events.
"""

import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from trainwright.cluster.node.devices.nvidia import Gpu
from trainwright.cluster.node.network.hosts import hostname, replace_names
from trainwright.cluster.node.pod_fields import NodeFields, service_account_of
from trainwright.cluster.node.pods.config.environment import expand, make_environment
from trainwright.cluster.node.pods.config.lifecycle_config import lifecycle_settings, termination_mount
from trainwright.cluster.node.pods.config.limits import container_limits, memory_limit
from trainwright.cluster.node.pods.config.omp_threads import cpu_of, omp_threads, processes_per_pod
from trainwright.cluster.node.pods.config.security_context import (
    NodeUser,
    container_security,
    file_owner,
    pod_fields_not_honoured,
)
from trainwright.cluster.node.pods.config.unsupported_fields import unsupported_fields
from trainwright.cluster.node.referenced_objects import PodConfigError, ReferencedObjects
from trainwright.cluster.node.supervisor.containers import container_status
from trainwright.cluster.node.supervisor.containers.cri_log import MAX_LOG_BYTES
from trainwright.cluster.node.supervisor.sandbox.sandbox import OVERLAY, PRIVATE_DIRECTORIES
from trainwright.cluster.node.volumes.files import UnsupportedVolumeError
from trainwright.cluster.node.volumes.nfs import NfsSupport
from trainwright.cluster.node.volumes.sources import Volume, VolumeContext, is_provisioned, plan_volumes
from trainwright.objects import Object
from trainwright.objects.node_annotations import DIRECTORY, HOST_IMAGE, LISTEN_PORTS, LOG_MAX_SIZE, PYTHON, REPLICAS
from trainwright.objects.quantities import parse_quantity

_SERVICE_ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - of the machine, as under torchrun
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodContext:
    """What the node adds to a pod."""

    node_name: str
    host_address: str
    address: str
    directory: str
    hosts_file: str
    level: str
    user_namespace: bool = False
    python: str
    home: str
    """The value of HOME."""
    shared_home: str | None = None
    """The home directory that pods share with this machine; None if there is none to share."""
    open_files: int | None = None
    """The soft limit of open files with which the cluster was started."""
    hidden: tuple[str, ...] = ()
    """Directories of this machine that pods see empty, by their real paths."""
    provisioned: str | None = None
    """The directory, below a hidden one, of the volumes that the default StorageClass provides."""
    user: int = 1000
    """The user of the node's processes."""
    allocatable: Mapping[str, Fraction] = field(default_factory=dict)
    service_variables: Mapping[str, str] = field(default_factory=dict)
    """The variables by which programs find Services; those of the API server among them."""
    nfs: NfsSupport = field(default_factory=NfsSupport)
    cgroups: Mapping[str, str] = field(default_factory=dict)
    """The node's directory of each cgroup controller; empty if limits cannot be enforced."""
    started_at: float = 0.0
    """When the node accepted the pod, in seconds since the epoch: activeDeadlineSeconds begin then."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Name -> address of other pods, at `plain`, where the pod has no /etc/hosts of its own."""
    gpus: Mapping[str, tuple[Gpu, ...]] | None = None
    """Those of each container; None on a machine that has none."""
    host_id: str = ""
    """The same for all pods of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingReason:
    """Why a container waits (ContainerStateWaiting); without a container it applies to all."""

    reason: str
    message: str
    container: str | None = None


@dataclass(frozen=True, slots=True)
class PodWarning:
    """A Warning event on the pod."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    pod_json: dict[str, Any]
    """For the supervisor, see `supervisor`."""
    volumes: tuple[Volume, ...]
    python: str
    shared_directory: str | None
    provisioned: str | None
    warnings: tuple[PodWarning, ...]


def generate_runtime_config(
    pod: Object, context: PodContext, objects: ReferencedObjects
) -> RuntimeConfig | tuple[WaitingReason, ...]:
    try:
        owner, group = file_owner(pod, node_user(context))
        of_volumes = VolumeContext(
            pod=pod, objects=objects, node=node_fields(context), owner=owner, group=group, nfs=context.nfs
        )
        volumes = plan_volumes(of_volumes, directory=volume_directory(context))
    except PodConfigError as error:
        return (WaitingReason(reason="FailedMount", message=str(error)),)
    except UnsupportedVolumeError as error:
        return (WaitingReason(reason="UnsupportedVolume", message=str(error)),)
    annotations = pod["metadata"].get("annotations") or {}
    ports = _listen_ports(annotations.get(LISTEN_PORTS, ""))
    log_limit = _log_limit(annotations.get(LOG_MAX_SIZE))
    waiting = [*_invalid_annotations(annotations, ports, log_limit), *_unsupported_containers(pod)]
    if waiting:
        return tuple(waiting)
    warnings = list(_warnings(pod, context, annotations))
    not_honoured = [
        *unsupported_fields(pod, context.level, limits=bool(context.cgroups)),
        *pod_fields_not_honoured(pod, node_user(context)),
    ]
    containers: dict[str, list[dict[str, Any]]] = {"initContainers": [], "containers": []}
    for kind, configs in containers.items():
        for index, spec in enumerate(pod["spec"].get(kind) or []):
            try:
                security = container_security(pod, spec, f"spec.{kind}[{index}]", node_user(context))
                not_honoured += security.not_honoured
                sidecar = kind == "initContainers" and spec.get("restartPolicy") == container_status.ALWAYS
                builder = _ContainerConfigBuilder(
                    pod, spec, context, objects, volumes, security.config, sidecar=sidecar
                )
                configs.append(builder.build())
                warnings += builder.warnings
            except PodConfigError as error:
                waiting.append(
                    WaitingReason(reason="CreateContainerConfigError", message=str(error), container=spec["name"])
                )
    if waiting:
        return tuple(waiting)
    if not_honoured:
        warnings.append(PodWarning("FieldNotHonoured", f"without effect on this node: {', '.join(not_honoured)}"))
    memory = [volume for volume in volumes.values() if volume.memory and context.level == OVERLAY]
    return RuntimeConfig(
        pod_json={
            "uid": pod["metadata"]["uid"],
            "namespace": pod["metadata"]["namespace"],
            "name": pod["metadata"]["name"],
            "labels": pod["metadata"].get("labels") or {},
            "createdAt": pod["metadata"].get("creationTimestamp") or "",
            "owner": _controller(pod),
            "address": context.address,
            "sandbox": context.level,
            "ownUsers": context.user_namespace,
            "hostname": hostname(pod),
            "grace": pod["spec"].get("terminationGracePeriodSeconds", 30),
            "restartPolicy": pod["spec"].get("restartPolicy") or container_status.ALWAYS,
            "listenPorts": ports or [],
            "backoff": container_status.BACKOFF,
            "logLimit": log_limit,
            "memoryVolumes": [{"path": volume.path, "size": volume.size, "group": volume.group} for volume in memory],
            "nfsProgram": context.nfs.program,
            "nfsVolumes": _nfs_volumes(volumes),
            "memoryLimit": memory_limit(pod),
            "hidden": list(context.hidden),
            "openFiles": context.open_files,
            "cgroups": _cgroups(context, pod, containers),
            "deadlineAt": deadline_at(pod, context.started_at),
            **containers,
        },
        volumes=tuple(volumes.values()),
        python=_python(annotations, context),
        shared_directory=annotations.get(DIRECTORY),
        provisioned=context.provisioned,
        warnings=tuple(warnings),
    )


def node_fields(context: PodContext) -> NodeFields:
    return NodeFields(
        values={
            "spec.nodeName": context.node_name,
            "status.podIP": context.address,
            "status.podIPs": context.address,
            "status.hostIP": context.host_address,
            "status.hostIPs": context.host_address,
        },
        allocatable=context.allocatable,
    )


def _cgroups(context: PodContext, pod: Object, containers: Mapping[str, list[dict[str, Any]]]) -> dict[str, str]:
    """The pod's directories; none for a pod without limits."""
    limited = any(container["limits"] for group in containers.values() for container in group)
    uid = pod["metadata"]["uid"]
    return {controller: f"{path}/pod{uid}" for controller, path in context.cgroups.items()} if limited else {}


def _nfs_volumes(volumes: Mapping[str, Volume]) -> list[dict[str, str]]:
    return [
        {"name": volume.name, "path": volume.path, "source": volume.nfs.source, "options": volume.nfs.options}
        for volume in volumes.values()
        if volume.nfs is not None
    ]


def node_user(context: PodContext) -> NodeUser:
    return NodeUser(level=context.level, user=context.user, user_namespace=context.user_namespace)


def volume_directory(context: PodContext) -> str:
    return posixpath.join(context.directory, "volumes")


def deadline_at(pod: Object, started_at: float) -> float | None:
    """When activeDeadlineSeconds end, in seconds since the epoch."""
    seconds = pod["spec"].get("activeDeadlineSeconds")
    return None if seconds is None else started_at + float(seconds)


def with_changes(config: dict[str, Any], pod: Object, *, deadline: float | None) -> dict[str, Any]:
    """The config of a running pod with those fields of its spec that may change."""
    changed = {**config, "deadlineAt": deadline}
    for kind in ("initContainers", "containers"):
        images = {spec["name"]: spec.get("image") or "" for spec in pod["spec"].get(kind) or []}
        changed[kind] = [{**one, "image": images.get(one["name"], one.get("image"))} for one in config[kind]]
    return changed


def _controller(pod: Object) -> dict[str, str] | None:
    """The owner that controls the pod, such as a job: what the pod leaves on the node is kept as long as it exists."""
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return {field: str(owner.get(field) or "") for field in ("apiVersion", "kind", "name", "uid")}
    return None


def is_host_image(image: str) -> bool:
    name = image.partition("@")[0]
    return name == HOST_IMAGE or name.startswith(f"{HOST_IMAGE}:")


class _ContainerConfigBuilder:
    def __init__(
        self,
        pod: Object,
        spec: Object,
        context: PodContext,
        objects: ReferencedObjects,
        volumes: Mapping[str, Volume],
        security: dict[str, Any],
        *,
        sidecar: bool,
    ) -> None:
        self._pod = pod
        self._spec = spec
        self._context = context
        self._objects = objects
        self._volumes = volumes
        self._sidecar = sidecar
        self._annotations = pod["metadata"].get("annotations") or {}
        self._overlay = context.level == OVERLAY
        self._security: dict[str, Any] = security
        self._host_paths: dict[str, str] = {}
        self._replaced: set[str] = set()
        self._gpus = (context.gpus or {}).get(spec["name"], ())
        self.warnings: list[PodWarning] = []

    def build(self) -> dict[str, Any]:
        # Values of variables may contain mount paths, and subPathExpr may contain variables: paths come first.
        message = termination_mount(self._spec, self._context.directory)
        if not self._overlay:
            self._host_paths[message["target"]] = message["source"]
            self._replaced.add(message["target"])
        for mount in self._spec.get("volumeMounts") or []:
            if not self._overlay and not mount.get("subPathExpr"):
                self._host_paths[mount["mountPath"].rstrip("/")] = self._source(mount, {})
        variables = make_environment(
            self._spec,
            pod=self._pod,
            objects=self._objects,
            node=node_fields(self._context),
            services=self._context.service_variables,
            adapt=self._adapt_value,
        )
        mounts = [self._mount(mount, variables) for mount in self._spec.get("volumeMounts") or []]
        if self._overlay and all(mount["target"] != message["target"] for mount in mounts):
            mounts.append(message)
        arguments = [*self._spec["command"], *(self._spec.get("args") or [])]
        argv = [self._adapt_path(expand(argument, variables)) for argument in arguments]
        shared = self._annotations.get(DIRECTORY)
        cwd = self._adapt_path(self._spec.get("workingDir") or shared or "/")
        if not self._overlay:
            self._warn_about_unused_paths()
        return {
            "name": self._spec["name"],
            "argv": argv,
            "limits": container_limits(self._spec) if self._context.cgroups else {},
            "security": self._security,
            "env": {**self._base_environment(argv, variables), **self._context.service_variables, **variables},
            "cwd": cwd,
            "mounts": [*self._node_mounts(mounts), *mounts] if self._overlay else mounts,
            **{field: True for field in ("stdin", "stdinOnce", "tty") if self._spec.get(field)},
            "gpus": [gpu.uuid for gpu in self._gpus],
            "devices": sorted({node for gpu in self._gpus for node in gpu.nodes}),
            **lifecycle_settings(
                self._spec,
                address=self._context.address,
                directory=self._context.directory,
                sidecar=self._sidecar,
                variables=variables,
                adapt=self._adapt_path,
            ),
        }

    def _base_environment(self, argv: list[str], variables: Mapping[str, str]) -> dict[str, str]:
        """The variables that an image would define.

        GLOO_SOCKET_IFNAME: pods have loopback addresses, and gloo does not choose that interface by itself.
        """
        python = _python(self._annotations, self._context)
        same_user = self._security.get("user") in {None, self._context.user}
        return {
            "PATH": f"{posixpath.dirname(python)}:{_SYSTEM_PATH}",
            "HOME": self._context.home if same_user else "/",
            "HOSTNAME": hostname(self._pod),
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": str(self._threads(argv, variables)),
            "GLOO_SOCKET_IFNAME": "lo",
            **self._gpu_environment(),
        }

    def _gpu_environment(self) -> dict[str, str]:
        """NCCL_HOSTID: pods have host names of their own, but their GPUs are in one machine and can copy directly."""
        if self._context.gpus is None:
            return {}
        uuids = ",".join(gpu.uuid for gpu in self._gpus)
        if not uuids:
            return {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
        return {
            "CUDA_VISIBLE_DEVICES": uuids,
            "NVIDIA_VISIBLE_DEVICES": uuids,
            "NCCL_HOSTID": self._context.host_id,
            "NCCL_SOCKET_IFNAME": "lo",
        }

    def _threads(self, argv: list[str], variables: Mapping[str, str]) -> int:
        replicas = self._annotations.get(REPLICAS, "")
        return omp_threads(
            cores=int(self._context.allocatable.get("cpu", 1)),
            replicas=int(replicas) if replicas.isdecimal() else None,
            processes=processes_per_pod(argv, variables),
            cpu=cpu_of(self._spec),
        )

    def _mount(self, mount: Object, variables: Mapping[str, str]) -> dict[str, Any]:
        read_only = bool(mount.get("readOnly")) or self._volume(mount).read_only
        target = posixpath.normpath(posixpath.join("/", mount["mountPath"]))
        if target == "/":
            raise PodConfigError(
                f"volumeMounts {mount['name']}: mountPath / would hide the root file system of the container"
            )
        volume = self._volume(mount)
        return {
            "name": mount["name"],
            "source": self._source(mount, variables),
            "volume": volume.path,
            "hostPath": volume.host_path_type is not None and not is_provisioned(volume, self._context.provisioned),
            "target": target,
            "readOnly": read_only,
        }

    def _source(self, mount: Object, variables: Mapping[str, str]) -> str:
        below = mount.get("subPath") or expand(mount.get("subPathExpr") or "", variables)
        if below and (below.startswith("/") or ".." in below.split("/")):
            raise PodConfigError(f"volumeMounts {mount['name']}: subPath {below!r} leads out of the volume")
        return posixpath.normpath(posixpath.join(self._volume(mount).path, below))

    def _volume(self, mount: Object) -> Volume:
        volume = self._volumes.get(mount["name"])
        if volume is None:
            raise PodConfigError(f'volumeMounts: no volume is named "{mount["name"]}"')
        return volume

    def _node_mounts(self, volumes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The hosts file, and what the pod shares with this machine: the user's home, the directory of the manifest and
        the installation of its Python. The rest of the machine's files is below private layers.

        A volume that is mounted at or above the home replaces it, as it replaces the files of an image.
        """
        mounts = [{"source": self._context.hosts_file, "target": "/etc/hosts", "readOnly": True}]
        home = self._context.shared_home
        if home and not any(_contains(volume["target"], home) for volume in volumes):
            mounts.append({"source": home, "target": home, "readOnly": False})
        installation = _installation(_python(self._annotations, self._context))
        private = any(_contains(private, installation) for private in PRIVATE_DIRECTORIES)
        if private and not (home and _contains(home, installation)):
            mounts.append({"source": installation, "target": installation, "readOnly": True})
        if self._gpus:  # NCCL copies between the GPUs of different pods through it
            mounts.append({"source": _SHARED_MEMORY, "target": _SHARED_MEMORY, "readOnly": False})
        if shared := self._annotations.get(DIRECTORY):
            path = posixpath.normpath(shared)
            mounts.append({"source": path, "target": path, "readOnly": False})
        return mounts

    # At `plain` there are no mounts and no hosts file: host paths and addresses replace paths and names in values.

    def _adapt_value(self, value: str) -> str:
        return value if self._overlay else self._adapt_path(replace_names(value, self._context.names))

    def _adapt_path(self, text: str) -> str:
        for path in sorted(self._host_paths, key=len, reverse=True):
            replaced = re.sub(rf"(?<![\w./-]){re.escape(path)}(?![\w.-])", _literal(self._host_paths[path]), text)
            if replaced != text:
                self._replaced.add(path)
                text = replaced
        return text

    def _warn_about_unused_paths(self) -> None:
        for path, source in self._host_paths.items():
            # Every pod has the token of the default service account; few programs use it.
            unused = path == _SERVICE_ACCOUNT_PATH and service_account_of(self._pod) == "default"
            if path not in self._replaced and path != source and not unused:
                self.warnings.append(
                    PodWarning(
                        "MountPathNotHonoured",
                        f"container {self._spec['name']}: at sandbox plain nothing can be mounted at {path}; the "
                        f"volume is at {source}, and neither command, args nor env contain the mount path",
                    )
                )


def _unsupported_containers(pod: Object) -> list[WaitingReason]:
    waiting = []
    for kind in ("initContainers", "containers"):
        for spec in pod["spec"].get(kind) or []:
            if not spec.get("command"):
                message = (
                    f"this node has no image {spec.get('image') or '(none)'} that could define the command: add "
                    f"`command:` to container {spec['name']}"
                )
                waiting.append(WaitingReason(reason="ImageHasNoCommand", message=message, container=spec["name"]))
    return waiting


def _invalid_annotations(
    annotations: Mapping[str, str], ports: list[int] | None, log_limit: int | None
) -> list[WaitingReason]:
    waiting = []
    if log_limit is None:
        text = f"annotation {LOG_MAX_SIZE}: {annotations[LOG_MAX_SIZE]!r}: write a size such as 100Mi"
        waiting.append(WaitingReason(reason="InvalidAnnotation", message=text))
    if ports is None:
        text = f"annotation {LISTEN_PORTS}: {annotations[LISTEN_PORTS]!r}: write 23456 or 80,443"
        waiting.append(WaitingReason(reason="InvalidAnnotation", message=text))
    for name in (PYTHON, DIRECTORY):
        path = annotations.get(name, "/absolute")
        if not path.startswith("/") or posixpath.normpath(path) == "/":
            text = f"annotation {name}: {path!r}: write an absolute path below /"
            waiting.append(WaitingReason(reason="InvalidAnnotation", message=text))
    return waiting


def _warnings(pod: Object, context: PodContext, annotations: Mapping[str, str]) -> list[PodWarning]:
    warnings = []
    python = _python(annotations, context)
    containers = [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]
    images = [str(spec.get("image") or "") for spec in containers]
    unknown = sorted({image for image in images if not is_host_image(image)})
    if unknown:
        images_text = f"image {unknown[0]} is" if len(unknown) == 1 else f"images {', '.join(unknown)} are"
        text = f"{images_text} not on this machine: the pod uses the machine's own files and Python {python}"
        warnings.append(PodWarning("UnknownImage", f"{text}. Use the image {HOST_IMAGE} if that is intended"))
    return warnings


def _python(annotations: Mapping[str, str], context: PodContext) -> str:
    return annotations.get(PYTHON) or context.python


def _installation(python: str) -> str:
    """PREFIX of PREFIX/bin/python: the directory of a virtual environment or installation."""
    return posixpath.dirname(posixpath.dirname(python))


def _contains(directory: str, path: str) -> bool:
    return path == directory or path.startswith(f"{directory.rstrip('/')}/")


def _log_limit(text: str | None) -> int | None:
    """None if the annotation is invalid."""
    if text is None:
        return MAX_LOG_BYTES
    try:
        size = int(parse_quantity(text))
    except ValueError:
        return None
    return size if size > 0 else None


def _listen_ports(text: str) -> list[int] | None:
    """None if the annotation is invalid."""
    items = [item.strip() for item in text.split(",") if item.strip()]
    if not all(item.isdecimal() and 0 < int(item) < 65536 for item in items):
        return None
    return [int(item) for item in items]


def _literal(text: str) -> Callable[[re.Match[str]], str]:
    return lambda _: text
