"""The runtime config of a pod: what its supervisor runs, with command, environment, working directory and mounts.

Pure. A pod that cannot be started (yet) has waiting reasons instead, which its status shows. Fields without effect are
warnings, which become Warning events.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainwright.cluster.address_range import second_address
from trainwright.cluster.node.network.hosts import hostname
from trainwright.cluster.node.pods.config.container_config import ContainerConfigBuilder
from trainwright.cluster.node.pods.config.container_image import ContainerError, has_command
from trainwright.cluster.node.pods.config.container_resources import memory_limit
from trainwright.cluster.node.pods.config.environment import MAX_POD_BYTES, check_pod
from trainwright.cluster.node.pods.config.pod_context import (
    PodContext,
    PodWarning,
    image_of,
    node_fields,
    node_user,
    pod_python,
    volume_directory,
)
from trainwright.cluster.node.pods.config.security_context import (
    container_security,
    file_owner,
    image_security,
    pod_fields_not_honoured,
)
from trainwright.cluster.node.pods.config.unsupported_fields import unsupported_fields
from trainwright.cluster.node.referenced_objects import PodConfigError, ReferencedObjects
from trainwright.cluster.node.supervisor.containers import container_status
from trainwright.cluster.node.supervisor.containers.cri_log import MAX_LOG_BYTES
from trainwright.cluster.node.supervisor.pod_json import ContainerJson, NfsVolumeJson, OwnerJson, PodJson
from trainwright.cluster.node.supervisor.sandbox.sandbox import OVERLAY
from trainwright.cluster.node.volumes.files import UnsupportedVolumeError
from trainwright.cluster.node.volumes.sources import Volume, VolumeContext, plan_volumes
from trainwright.objects import Object
from trainwright.objects.kinds.pods import is_sidecar
from trainwright.objects.node_annotations import DIRECTORY, HOST_IMAGE, LOG_MAX_SIZE, PYTHON
from trainwright.objects.quantities import parse_quantity

_MAX_QUOTED = 100
_MAX_REASONS = 20
"""After so many containers with an error the others of a pod are not configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingReason:
    """Why a container waits (ContainerStateWaiting); without a container it applies to all."""

    reason: str
    message: str
    container: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    pod_json: PodJson
    volumes: tuple[Volume, ...]
    python: str | None
    """None if all containers run on files of their images."""
    shared_directory: str | None
    warnings: tuple[PodWarning, ...]


def generate_runtime_config(
    pod: Object, context: PodContext, objects: ReferencedObjects
) -> RuntimeConfig | tuple[WaitingReason, ...]:
    try:
        owner, group = file_owner(pod, node_user(context))
        of_volumes = VolumeContext(
            pod=pod,
            objects=objects,
            node=node_fields(context),
            owner=owner,
            group=group,
            nfs=context.node.nfs,
            provisioned=context.node.provisioned,
        )
        volumes = plan_volumes(of_volumes, directory=volume_directory(context))
    except PodConfigError as error:
        return (WaitingReason(reason="FailedMount", message=str(error)),)
    except UnsupportedVolumeError as error:
        return (WaitingReason(reason="UnsupportedVolume", message=str(error)),)
    annotations = pod["metadata"].get("annotations") or {}
    log_limit = _log_limit(annotations.get(LOG_MAX_SIZE))
    waiting = [
        *_unsupported_pod(pod["spec"], context),
        *_invalid_annotations(annotations, log_limit),
        *_unsupported_containers(pod, context),
    ]
    if waiting:
        return tuple(waiting)
    containers = _configure_containers(pod, context, objects, volumes)
    if containers.waiting:
        return tuple(containers.waiting)
    return RuntimeConfig(
        pod_json=_pod_json(pod, context, volumes, containers, log_limit=log_limit or MAX_LOG_BYTES),
        volumes=tuple(volumes.values()),
        python=pod_python(annotations, context) if _uses_host_files(pod, context) else None,
        shared_directory=annotations.get(DIRECTORY) if _uses_host_files(pod, context) else None,
        warnings=(
            *_unknown_images(pod, context, annotations),
            *containers.warnings,
            *_fields_not_honoured(pod, context, containers),
        ),
    )


class _Containers:
    """What was found while the containers of a pod were configured."""

    def __init__(self) -> None:
        self.inits: list[ContainerJson] = []
        self.mains: list[ContainerJson] = []
        self.waiting: list[WaitingReason] = []
        self.warnings: list[PodWarning] = []
        self.not_honoured: list[str] = []
        self.program_bytes = 0


def _configure_containers(
    pod: Object, context: PodContext, objects: ReferencedObjects, volumes: Mapping[str, Volume]
) -> _Containers:
    found = _Containers()
    for kind, configs in (("initContainers", found.inits), ("containers", found.mains)):
        for index, spec in enumerate(pod["spec"].get(kind) or []):
            try:
                path, image = f"spec.{kind}[{index}]", context.images.get(spec["name"])
                if image is not None and image.has_own_files:
                    security = image_security(pod, spec, path, image, node_user(context))
                else:
                    security = container_security(pod, spec, path, node_user(context))
                found.not_honoured += security.not_honoured
                sidecar = kind == "initContainers" and is_sidecar(spec)
                builder = ContainerConfigBuilder(
                    pod, spec, context, objects, volumes, security.config, sidecar=sidecar, home=security.home
                )
                configs.append(builder.build())
                found.warnings += builder.warnings
                found.program_bytes += builder.program_bytes
                check_pod(found.program_bytes)
            except PodConfigError as error:
                reason = "CreateContainerError" if isinstance(error, ContainerError) else "CreateContainerConfigError"
                found.waiting.append(WaitingReason(reason=reason, message=str(error), container=spec["name"]))
                if len(found.waiting) == _MAX_REASONS or found.program_bytes > MAX_POD_BYTES:
                    return found
    return found


def _fields_not_honoured(pod: Object, context: PodContext, containers: _Containers) -> list[PodWarning]:
    fields = [
        *unsupported_fields(pod, context.node.sandbox.level, limits=bool(context.node.cgroups)),
        *pod_fields_not_honoured(pod, node_user(context)),
        *containers.not_honoured,
    ]
    text = f"without effect on this node: {', '.join(fields)}"
    return [PodWarning("FieldNotHonoured", text)] if fields else []


def _pod_json(
    pod: Object, context: PodContext, volumes: Mapping[str, Volume], containers: _Containers, *, log_limit: int
) -> PodJson:
    metadata, spec, homes = pod["metadata"], pod["spec"], context.private_homes
    memory = [volume for volume in volumes.values() if volume.memory and context.node.sandbox.level == OVERLAY]
    return {
        "uid": metadata["uid"],
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "labels": metadata.get("labels") or {},
        "createdAt": metadata.get("creationTimestamp") or "",
        "owner": _controller(pod),
        "address": context.address,
        "ownPorts": not context.node.sandbox.shared_ports and not spec.get("hostNetwork"),
        "secondAddress": second_address(context.address),
        "sandbox": context.node.sandbox.level,
        "ownUsers": context.node.sandbox.user_namespace,
        "asRoot": context.node.sandbox.user_namespace and any(image.has_own_files for image in context.images.values()),
        "hostname": hostname(pod),
        "grace": spec.get("terminationGracePeriodSeconds", 30),
        "restartPolicy": spec.get("restartPolicy") or container_status.ALWAYS,
        "backoff": container_status.BACKOFF,
        "memoryVolumes": [{"path": volume.path, "size": volume.size, "group": volume.group} for volume in memory],
        "nfsProgram": context.node.nfs.program,
        "nfsVolumes": _nfs_volumes(volumes),
        "memoryLimit": memory_limit(pod),
        "privateHomes": list(dict.fromkeys((*homes, context.node.home))) if homes else [],
        "openFiles": context.node.open_files,
        "deadlineAt": deadline_at(pod, context.started_at),
        "logLimit": log_limit,
        "cgroups": _cgroups(context, pod, [*containers.inits, *containers.mains]),
        "hidden": [],  # found when the pod is set up
        "initContainers": containers.inits,
        "containers": containers.mains,
    }


def _cgroups(context: PodContext, pod: Object, containers: Sequence[ContainerJson]) -> dict[str, str]:
    """The pod's directories; none for a pod without limits."""
    limited = any(container.get("limits") for container in containers)
    uid = pod["metadata"]["uid"]
    return {controller: f"{path}/pod{uid}" for controller, path in context.node.cgroups.items()} if limited else {}


def _nfs_volumes(volumes: Mapping[str, Volume]) -> list[NfsVolumeJson]:
    return [
        {"name": volume.name, "path": volume.path, "source": volume.nfs.source, "options": volume.nfs.options}
        for volume in volumes.values()
        if volume.nfs is not None
    ]


def deadline_at(pod: Object, started_at: float) -> float | None:
    """When activeDeadlineSeconds end, in seconds since the epoch."""
    seconds = pod["spec"].get("activeDeadlineSeconds")
    return None if seconds is None else started_at + float(seconds)


def with_changes(config: PodJson, pod: Object, *, deadline: float | None) -> PodJson:
    """The config of a running pod with those fields of its spec that may change."""
    images = {spec["name"]: spec.get("image") or "" for spec in _specs(pod)}

    def with_image(container: ContainerJson) -> ContainerJson:
        return {**container, "image": images.get(container["name"], container.get("image") or "")}

    return {
        **config,
        "deadlineAt": deadline,
        "initContainers": [with_image(container) for container in config["initContainers"]],
        "containers": [with_image(container) for container in config["containers"]],
    }


def _controller(pod: Object) -> OwnerJson | None:
    """The owner that controls the pod, such as a job: what the pod leaves on the node is kept as long as it exists."""
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return {
                "apiVersion": str(owner.get("apiVersion") or ""),
                "kind": str(owner.get("kind") or ""),
                "name": str(owner.get("name") or ""),
                "uid": str(owner.get("uid") or ""),
            }
    return None


def _uses_host_files(pod: Object, context: PodContext) -> bool:
    return any(not image_of(spec, context).has_own_files for spec in _specs(pod))


def _specs(pod: Object) -> list[Object]:
    return [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]


def _unsupported_pod(spec: Object, context: PodContext) -> Iterator[WaitingReason]:
    """Pods of another system, and of user namespaces that the node cannot give them. Pod Security admission allows
    them what it forbids to other pods, so that they must not run as those do."""
    system = (spec.get("os") or {}).get("name", "linux")
    if system != "linux":
        message = f"spec.os.name is {system}, and this node runs Linux: correct it, or leave it out"
        yield WaitingReason(reason="PodOSNotSupported", message=message)
    if spec.get("hostUsers") is False and node_user(context).may_change_user:
        message = (
            "spec.hostUsers is false, and this node gives pods no users of their own when the cluster runs as root: "
            "leave it out, and set securityContext.runAsUser"
        )
        yield WaitingReason(reason="UserNamespacesNotSupported", message=message)


def _unsupported_containers(pod: Object, context: PodContext) -> list[WaitingReason]:
    waiting = []
    for spec in _specs(pod):
        image = image_of(spec, context)
        if image.has_own_files and context.node.sandbox.level != OVERLAY:
            message = (
                f"image {spec['image']} has files of its own, which a container can only have at sandbox overlay: run "
                "the cluster as root, or allow unprivileged user namespaces. To use this machine's files instead: "
                f"trainwright image map {spec['image']} --python {context.node.settings.python}"
            )
            waiting.append(WaitingReason(reason="ImageNeedsOverlay", message=message, container=spec["name"]))
        elif not has_command(spec, image) and image.image_id:
            message = f"no command specified: neither image {spec['image']} nor container {spec['name']} has one"
            waiting.append(WaitingReason(reason="CreateContainerError", message=message, container=spec["name"]))
        elif not spec.get("command") and not image.image_id:
            message = (
                f"this node has no image {spec.get('image') or '(none)'} that could define the command: build, pull or "
                f"load it with `trainwright image`, or add `command:` to container {spec['name']}"
            )
            waiting.append(WaitingReason(reason="ImageHasNoCommand", message=message, container=spec["name"]))
    return waiting


def _invalid_annotations(annotations: Mapping[str, str], log_limit: int | None) -> list[WaitingReason]:
    waiting = []
    if log_limit is None:
        text = f"annotation {LOG_MAX_SIZE}: {_quoted(annotations[LOG_MAX_SIZE])}: write a size such as 100Mi"
        waiting.append(WaitingReason(reason="InvalidAnnotation", message=text))
    for name in (PYTHON, DIRECTORY):
        path = annotations.get(name, "/absolute")
        if not path.startswith("/") or posixpath.normpath(path) == "/":
            text = f"annotation {name}: {_quoted(path)}: write an absolute path below /"
            waiting.append(WaitingReason(reason="InvalidAnnotation", message=text))
    return waiting


def _quoted(text: str) -> str:
    """An annotation can have 256 KiB, which no message should repeat."""
    return repr(text) if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]!r}…"


def _unknown_images(pod: Object, context: PodContext, annotations: Mapping[str, str]) -> list[PodWarning]:
    warnings = []
    python = pod_python(annotations, context)
    unknown = sorted({str(spec.get("image") or "") for spec in _specs(pod) if image_of(spec, context).unknown})
    if unknown:
        images_text = f"image {unknown[0]} is" if len(unknown) == 1 else f"images {', '.join(unknown)} are"
        text = f"{images_text} not on this machine: the pod uses the machine's own files and Python {python}"
        warnings.append(PodWarning("UnknownImage", f"{text}. Use the image {HOST_IMAGE} if that is intended"))
    return warnings


def _log_limit(text: str | None) -> int | None:
    """None if the annotation is invalid."""
    if text is None:
        return MAX_LOG_BYTES
    try:
        size = int(parse_quantity(text))
    except ValueError:
        return None
    return size if size > 0 else None
